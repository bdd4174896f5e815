"""ToCa: new captions synthesised from a corpus (Zhou et al., 2024, text-only synthesis)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from rich.progress import track

from augmentation.captions.new_captions import AbstractCorpusMethod, Elsewhere
from augmentation.toca.answering import Answering, SpreadAnswers
from augmentation.toca.corpus_statistics import (
    CorpusStatistics,
    count_corpus,
    load_statistics,
    merge_statistics,
    save_statistics,
)
from augmentation.toca.joined_words import join_word_parts
from augmentation.toca.prompt_writer import PromptWriter
from augmentation.toca.synthesis import Pace, Synthesis
from augmentation.toca.template_sampling import TemplateSampler
from augmentation.toca.templates import deconstruct
from augmentation.writing.acceptance import Judge
from augmentation.writing.writers import AbstractWriter
from captioning.config.ranges import ArgumentsOf, PositiveInt, Seed
from captioning.data.roster import Roster
from captioning.text.tagger import CaptionTagger

NUM_EXAMPLE_CAPTIONS = 500  # captions that examples are drawn from
FORMAT = 3  # increased when the same corpus gives other statistics


class ToCa(AbstractCorpusMethod):
    """Deconstructs a corpus, draws sentence templates, lets a language model complete them.

    Args:
        writer: the language model.
        tagger: parts of speech.
        prompts: the style of the language model's prompts.
        cache_folder: for statistics of corpora.
        tau, use_structures, use_relations, complete_first, max_given_words: see `TemplateSampler`.
        max_words, whole_words: see `Judge`.
        pace: arguments of `Pace`.
        seed: of all draws.
    """

    name = "toca"
    description = "captions synthesised by a language model, no photo stands behind them"
    size_setting = "pace.num_captions"

    def __init__(
        self,
        *,
        writer: AbstractWriter,
        tagger: CaptionTagger,
        prompts: PromptWriter,
        cache_folder: str | Path,
        tau: float | None = None,
        use_structures: bool = True,
        use_relations: bool = True,
        complete_first: bool = True,
        max_given_words: PositiveInt | None = None,
        max_words: PositiveInt = 30,
        whole_words: bool = True,
        pace: Annotated[Mapping[str, Any], ArgumentsOf(Pace)],
        seed: Seed = 0,
    ) -> None:
        self._writer, self._tagger, self._prompts = writer, tagger, prompts
        self.uses_gpu = writer.uses_gpu
        self._cache_folder = Path(cache_folder)
        self._max_words, self._whole_words = max_words, whole_words
        self._sampling = {
            "tau": tau,
            "use_structures": use_structures,
            "use_relations": use_relations,
            "complete_first": complete_first,
            "max_given_words": max_given_words,
        }
        self.pace, self._seed = Pace(**pace), seed
        self._report: dict[str, Any] = {}

    def synthesise(
        self,
        corpus: Roster,
        folder: Path,
        *,
        prior: Roster | None = None,
        max_captions: int | None = None,
        elsewhere: Elsewhere | None = None,
    ) -> dict[str, Any]:
        """Write ``captions.txt`` and ``provenance.jsonl``, or continue an interrupted synthesis.

        Args:
            corpus: S, source of structures, words and examples.
            folder: of the new corpus.
            prior: X, whose words and lexical pairs are used, too.
            max_captions: an upper limit of `Pace.num_captions`.
            elsewhere: see `AbstractCorpusMethod`.

        Returns:
            Counts, see `Synthesis.run`.

        Raises:
            ValueError: nothing can be made of the corpus, or no answer was accepted.
            OSError: something cannot be written, or the language model cannot be reached.
        """
        statistics = corpus_statistics(corpus, self._tagger, self._cache_folder)
        self._report = {"corpus": statistics.summary(), "left out": statistics.left_out}
        if prior is not None:
            statistics = merge_statistics(
                statistics, corpus_statistics(prior, self._tagger, self._cache_folder)
            )
            self._report["with prior"] = statistics.summary()
        num_captions = min(self.pace.num_captions, max_captions or self.pace.num_captions)
        captions = [sample.caption for sample in corpus.samples]
        sampler = TemplateSampler(statistics, **self._sampling)
        synthesis = Synthesis(
            prompts=self._prompts,
            writer=self._writer,
            judge=Judge(
                known_captions=captions,
                max_words=self._max_words,
                whole_words=self._whole_words,
            ),
            pace=replace(self.pace, num_captions=num_captions),
            seed=self._seed,
            elsewhere=elsewhere and SpreadAnswers(elsewhere=elsewhere),
        )
        if elsewhere is None:
            self.learn(captions)
        return synthesis.run(sampler.templates(np.random.default_rng(self._seed)), folder)

    def worker(self, captions: Sequence[str]) -> Answering:
        """What asks the language model, for a process of its own."""
        self.learn(captions)
        return Answering(
            prompts=self._prompts,
            writer=self._writer,
            num_answers=self.pace.num_answers,
            seed=self._seed,
        )

    def learn(self, captions: Sequence[str]) -> None:
        """Let prompts and language model learn the corpus."""
        self._learn_examples(captions)
        self._writer.learn(captions)

    def _learn_examples(self, captions: Sequence[str]) -> None:
        number = min(NUM_EXAMPLE_CAPTIONS, len(captions))
        rows = np.random.default_rng(self._seed).choice(len(captions), number, replace=False)
        examples: list[str] = [captions[int(row)] for row in sorted(rows)]
        tags = self._tagger.tag(examples)
        self._prompts.learn(examples, [*map(join_word_parts, examples, tags)])

    def report(self) -> dict[str, Any]:
        """Sizes of the statistics, and captions left out of them by reason."""
        return self._report


def corpus_statistics(
    corpus: Roster, tagger: CaptionTagger, cache_folder: Path
) -> CorpusStatistics:
    """The statistics of a corpus, counted once for each corpus and tagger.

    Raises:
        ValueError: no caption has a structure, or the cached file is damaged.
        OSError: the statistics cannot be stored.
    """
    path = cache_folder / f"{corpus.fingerprint}-{tagger.fingerprint[:16]}-{FORMAT}.npz"
    if path.is_file():
        return load_statistics(path)
    captions = [sample.caption for sample in corpus.samples]
    tagged = track(
        tagger.tag(captions),
        total=len(corpus),
        description=f"reading {corpus.name}",
        transient=True,
    )
    statistics = count_corpus(map(deconstruct, map(join_word_parts, captions, tagged)))
    save_statistics(statistics, path)
    return statistics
