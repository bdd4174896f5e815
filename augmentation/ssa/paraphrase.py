"""Paraphrase captions with a language model, as a baseline for SSA (appendix D.7).

One paraphrase of each caption, with the same meaning and so the same boxes (CIC-BART-SSA, D.7). The
paper's prompt shows example pairs; the examples here are our own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

from augmentation.captions.new_captions import (
    AbstractCaptionMethod,
    NewCaption,
    PhotoCaptions,
    placed_phrases,
)
from augmentation.regions.proposal import draw_key
from augmentation.writing.acceptance import Judge
from augmentation.writing.prompt import Prompt
from augmentation.writing.writers import FAILURES, AbstractWriter, Answer
from captioning.config.ranges import PositiveInt, Seed
from captioning.data.roster import Roster
from captioning.types import Phrase, Sample

INSTRUCTION = "Say each caption of a photo in other words. Add nothing, and leave nothing out."
NAMES = ("Caption", "In other words")
EXAMPLES = (
    ("Two men in hard hats fix the roof of a house.", "A house's roof is mended by two men with "
     "hard hats."),
    ("A brown dog jumps over a log in the woods.", "In a forest a brown dog leaps across a log."),
    ("A woman with an umbrella waits at a bus stop.", "At the stop for buses stands a lady holding "
     "an umbrella."),
    ("Children play soccer on a muddy field.", "Kids kick a ball around on a field full of mud."),
)  # fmt: skip
PHOTOS_AT_ONCE = 8


class Paraphrase(AbstractCaptionMethod):
    """Generates one paraphrase of each caption.

    Args:
        writer: the language model.
        max_words: maximum words of a caption.
        seed: seed of the draws.
    """

    description = "captions said in other words by a language model"
    photos_at_once = PHOTOS_AT_ONCE

    def __init__(
        self, *, writer: AbstractWriter, max_words: PositiveInt = 40, seed: Seed = 0
    ) -> None:
        self.writer, self.max_words, self.seed = writer, max_words, seed
        self.uses_gpu = writer.uses_gpu

    def captions(self, roster: Roster, *, skip: int = 0) -> Iterator[PhotoCaptions]:
        """See `AbstractCaptionMethod`.

        Raises:
            ConnectionError: the language model answered no prompt of a batch; no photo of it is
                yielded, so that the same command asks again.
        """
        first = skip - skip % PHOTOS_AT_ONCE  # every run has the same batches of photos
        return islice(self._captions(roster, first), skip - first, None)

    def _captions(self, roster: Roster, start: int) -> Iterator[PhotoCaptions]:
        photos = islice(roster.rows_by_image.values(), start, None)
        while photo_rows := list(islice(photos, PHOTOS_AT_ONCE)):
            verdicts = self._verdicts([roster.samples[row] for rows in photo_rows for row in rows])
            for rows in photo_rows:
                photo_verdicts = list(islice(verdicts, len(rows)))
                refused = Counter(problem for _, problem in photo_verdicts if problem)
                accepted = [caption for caption, problem in photo_verdicts if not problem]
                yield PhotoCaptions(captions=accepted, refused=refused)

    def _verdicts(self, samples: Sequence[Sample]) -> Iterator[tuple[NewCaption, str]]:
        """Paraphrase of each sample's caption, or the reason for rejecting it."""
        prompts = [
            Prompt(instruction=INSTRUCTION, examples=EXAMPLES, question=s.caption, names=NAMES)
            for s in samples
        ]
        seed = int(draw_key(self.seed, "paraphrase", samples[0].sample_id), 16) % 2**31
        for sample, answer in zip(samples, self._answers(prompts, seed), strict=True):
            # a paraphrase may equal one of another photo, but not its own caption
            judge = Judge(known_captions=[sample.caption], max_words=self.max_words)
            verdict = judge.judge(answer, ())
            phrases = transfer_phrases(sample.phrases, verdict.caption)
            yield NewCaption(sample=sample, text=verdict.caption, phrases=phrases), verdict.problem

    def _answers(self, prompts: Sequence[Prompt], seed: int) -> list[Answer]:
        """Answer to each prompt, after retries by the writer.

        Where the model answers the others, what it fails at is its failure at a prompt.
        """
        answers = self.writer.answers(prompts, seed=seed)
        # One prompt alone, the last of a roster, may be the one that the model fails at.
        if len(answers) > 1 and all(answer.problem in FAILURES for answer in answers):
            reasons = Counter(answer.problem for answer in answers)
            raise ConnectionError(
                f"the language model failed on all {len(answers)} prompts ({dict(reasons)}); "
                "check its server, and run the command again to resume"
            )
        return answers


def transfer_phrases(phrases: Sequence[Phrase], text: str) -> tuple[Phrase, ...]:
    """Find the phrases of a caption in its paraphrase, by their last words (`placed_phrases`)."""
    return placed_phrases(phrases, text, sought=_last_word)


def _last_word(phrase: Phrase) -> str:
    return next(reversed(re.findall(r"\w+", phrase.text)), "")
