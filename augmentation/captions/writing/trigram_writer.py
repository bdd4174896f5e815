"""Sentence templates completed by counts of a corpus' own word trigrams: no weights, no download.

A language model knows more of what goes with what: see `captioning.text.ngrams` for this one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations

import numpy as np

from augmentation.captions.writing.gap_filling import (
    PARTICLES,
    Given,
    determiners_before,
    up_to_last_lexical,
)
from augmentation.captions.writing.prompt import Prompt
from augmentation.captions.writing.writers import AbstractWriter, Answer
from captioning.ranges import NonNegativeFloat, NonNegativeInt
from captioning.text.lemmas import load_lemmas
from captioning.text.ngrams import NgramLanguageModel
from captioning.text.object_words import LEMMAS

MOST_SMALL_WORDS = 2  # more would take long to go through


class TrigramWriter(AbstractWriter):
    """Writes small words between the given ones, as `GapFilling` lets a language model do.

    The small words before each given word (none, a determiner, a particle, or both) are drawn by
    the probability that they and the given word have behind the two words before them.

    Args:
        temperature: of the draws; 0 takes the likeliest.
        most_small_words: before each given word, 0 to 2.

    Raises:
        ValueError: a setting out of its range.
    """

    def __init__(
        self, *, temperature: NonNegativeFloat = 0.3, most_small_words: NonNegativeInt = 2
    ) -> None:
        if temperature < 0 or not 0 <= most_small_words <= MOST_SMALL_WORDS:
            raise ValueError(
                "temperature must not be negative and most_small_words must be 0 to 2: got "
                f"{temperature} and {most_small_words}"
            )
        self._temperature, self._most = temperature, most_small_words
        self._lemma = load_lemmas(LEMMAS)
        self._model: NgramLanguageModel | None = None

    def learn(self, captions: Sequence[str]) -> None:
        """Count the trigrams of captions."""
        self._model = NgramLanguageModel(captions)

    def answers(self, prompts: Sequence[Prompt], *, seed: int) -> list[Answer]:
        """See `AbstractWriter`; the likelihood is the mean over words.

        Raises:
            ValueError: nothing was learned, or a prompt has no given words.
        """
        if self._model is None or not all(prompt.given for prompt in prompts):
            raise ValueError(
                "writer=trigrams completes sentence templates of a corpus (method=toca); elsewhere "
                "choose a language model: writer@method.writer=smollm2_free, server or llama_cpp"
            )
        generator = np.random.default_rng(seed)
        return [self._answer(up_to_last_lexical(p.given), self._model, generator) for p in prompts]

    def _answer(
        self, given: Given, model: NgramLanguageModel, generator: np.random.Generator
    ) -> Answer:
        words: list[str] = []
        for place, (word, _) in enumerate(given):
            choices = list(self._small_words(given, place))
            scores = [model.log_prob_after(words, [*small, word]) for small in choices]
            words += [*choices[self._draw(np.asarray(scores), generator)], word]
        text = " ".join(words).replace(" ,", ",")
        return Answer(text=text, likelihood=model.log_prob_after([], words) / max(len(words), 1))

    def _small_words(self, given: Given, place: int) -> Iterator[tuple[str, ...]]:
        """All that may stand before a given word; after a determiner it comes at once."""
        determiners = determiners_before(given, place, self._lemma)
        # a sentence begins with a determiner or with what is given
        most = min(self._most, 1) if place == 0 else self._most
        for number in range(most + 1):
            if number == 0 or place > 0:
                yield from permutations(PARTICLES, number)
            if number > 0:
                for particles in permutations(PARTICLES, number - 1):
                    yield from ((*particles, determiner) for determiner in determiners)

    def _draw(self, scores: np.ndarray, generator: np.random.Generator) -> int:
        if self._temperature == 0:
            return int(scores.argmax())
        shares = np.exp((scores - scores.max()) / self._temperature)
        return int(generator.choice(len(scores), p=shares / shares.sum()))
