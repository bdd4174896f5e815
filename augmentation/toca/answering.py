"""The language model's answers to batches of sentence templates, here or on many machines.

All draws of a batch come from the seed and its number, so batches can be answered in any order and
anywhere. Whether an answer is a new caption depends on those before it: `Synthesis` judges them in
order, in one process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import numpy as np

from augmentation.captions.new_captions import Elsewhere
from augmentation.toca.prompt_writer import PromptWriter
from augmentation.toca.template_sampling import SentenceTemplate
from augmentation.writing.writers import AbstractWriter, Answer
from captioning.spread.base import Job

BATCHES_AT_ONCE = 8  # between two files

Numbered = tuple[int, Sequence[SentenceTemplate]]
"""A batch with its number."""


@dataclass(frozen=True, kw_only=True)
class Answering:
    """Prompts and their answers; as a worker it gives a list of plain answers a batch.

    Attributes:
        prompts: with examples from the corpus.
        writer: the language model.
        num_answers: to each template.
        seed: of all draws.
    """

    prompts: PromptWriter
    writer: AbstractWriter
    num_answers: int
    seed: int
    identity: None = None

    def answers(self, number: int, batch: Sequence[SentenceTemplate]) -> list[Answer]:
        """``num_answers`` to each template of a batch, in order."""
        draws = np.random.default_rng((self.seed, number))
        prompts = self.prompts.prompts(batch, draws)
        repeated = [prompt for prompt in prompts for _ in range(self.num_answers)]
        return self.writer.answers(repeated, seed=int(draws.integers(2**31)))

    def __call__(self, items: Sequence[Numbered]) -> list[list[Any]]:
        """Text, problem and likelihood of each answer."""
        return [
            [[answer.text, answer.problem, answer.likelihood] for answer in self.answers(*batch)]
            for batch in items
        ]


@dataclass(frozen=True, kw_only=True)
class SpreadAnswers:
    """Answers from other processes, each with an `Answering`."""

    elsewhere: Elsewhere

    def __call__(
        self, batches: Iterator[Numbered], begun: int, wanted: Callable[[], int]
    ) -> Iterator[tuple[Numbered, list[Answer]]]:
        """Batches from number ``begun`` on with their answers, in order.

        Args:
            batches: all of them from 0.
            begun: those before it are not needed.
            wanted: how many more are likely to be needed; so many are worked on together, and
                those that are not needed after all are lost.
        """
        there = self.elsewhere
        size = there.spread.shard_size(unit=1, save_every=BATCHES_AT_ONCE)
        rest = islice(batches, begun // size * size, None)  # shards begin as in the first run
        while wave := list(islice(rest, -(-max(1, wanted()) // size) * size)):
            job = Job(
                name="answers",
                build=there.build,
                items=wave,
                unit=1,
                save_every=size,
                settings=there.settings,
                folder=there.folder,
                plugins=there.plugins,
                uses_gpu=there.uses_gpu,
            )
            records = chain.from_iterable(there.spread.results(job))
            for batch, record in zip(wave, records, strict=True):
                if batch[0] >= begun:
                    yield batch, [Answer(text=t, problem=p, likelihood=v) for t, p, v in record]
