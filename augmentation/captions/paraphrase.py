"""Captions said in other words by a language model: what SSA is compared with (appendix D.7).

One paraphrase a caption, which speaks of the same boxes: it says the same (CIC-BART-SSA, D.7). The
paper's prompt shows pairs; those here are of our own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

from augmentation.captions.made import AbstractCaptionMethod, MadeOfPhoto, NewCaption
from augmentation.captions.writing.acceptance import Judge
from augmentation.captions.writing.prompt import Prompt
from augmentation.captions.writing.writers import AbstractWriter
from augmentation.regions.proposal import draw_key
from captioning.data.roster import Roster
from captioning.ranges import PositiveInt, Seed
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
    """Makes one paraphrase of each caption.

    Args:
        writer: the language model.
        most_words: of a caption.
        seed: of the draws.
    """

    what = "captions said in other words by a language model"

    def __init__(
        self, *, writer: AbstractWriter, most_words: PositiveInt = 40, seed: Seed = 0
    ) -> None:
        self.writer, self.most_words, self.seed = writer, most_words, seed

    def captions(self, roster: Roster, *, skip: int = 0) -> Iterator[MadeOfPhoto]:
        """See `AbstractCaptionMethod`."""
        first = skip - skip % PHOTOS_AT_ONCE  # the same photos are asked for at once in every run
        return islice(self._captions(roster, first), skip - first, None)

    def _captions(self, roster: Roster, start: int) -> Iterator[MadeOfPhoto]:
        photos = islice(roster.rows_by_image.values(), start, None)
        while some := list(islice(photos, PHOTOS_AT_ONCE)):
            verdicts = self._verdicts([roster.samples[row] for rows in some for row in rows])
            for rows in some:
                of_photo = list(islice(verdicts, len(rows)))
                refused = Counter(problem for _, problem in of_photo if problem)
                kept = [caption for caption, problem in of_photo if not problem]
                yield MadeOfPhoto(captions=kept, refused=refused)

    def _verdicts(self, samples: Sequence[Sample]) -> Iterator[tuple[NewCaption, str]]:
        """A caption for each, and why it is refused."""
        prompts = [
            Prompt(instruction=INSTRUCTION, examples=EXAMPLES, question=s.caption, names=NAMES)
            for s in samples
        ]
        seed = int(draw_key(self.seed, "paraphrase", samples[0].sample_id), 16) % 2**31
        for sample, answer in zip(samples, self.writer.answers(prompts, seed=seed), strict=True):
            # a paraphrase may be that of another photo, too, but not its own caption
            judge = Judge(known=[sample.caption], most_words=self.most_words)
            verdict = judge.judge(answer, ())
            phrases = carried_over(sample.phrases, verdict.caption)
            yield NewCaption(sample=sample, text=verdict.caption, phrases=phrases), verdict.problem


def carried_over(phrases: Sequence[Phrase], text: str) -> tuple[Phrase, ...]:
    """The phrases of a caption, found again in other words that say the same.

    A phrase is found by its last word, as it stands; those that are not stand for the whole text,
    after the others. All keep their boxes.
    """
    carried, lost, taken = [], [], set()
    for phrase in phrases:
        last = re.findall(r"\w+", phrase.text)[-1:]
        places = [
            match.start()
            for word in last
            for match in re.finditer(rf"\b{re.escape(word)}\b", text, re.IGNORECASE)
            if match.start() not in taken
        ]
        start, end = (places[0], places[0] + len(last[0])) if places else (0, len(text))
        taken.add(start if places else -1)
        moved = Phrase(
            start=start,
            text=text[start:end],
            chain_id=phrase.chain_id,
            kinds=phrase.kinds,
            regions=phrase.regions,
        )
        (carried if places else lost).append(moved)
    return (*sorted(carried, key=lambda phrase: phrase.start), *lost)
