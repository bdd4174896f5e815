"""Complete sentence templates with word trigram counts of a corpus, without a language model.

A neural language model writes better ones. The trigram model is `captioning.text.ngrams`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations

import numpy as np

from augmentation.writing.gap_filling import (
    PARTICLES,
    RequiredTokens,
    determiners_before,
    up_to_last_lexical,
)
from augmentation.writing.prompt import Prompt
from augmentation.writing.writers import AbstractWriter, Answer
from captioning.config.ranges import NonNegativeFloat, NonNegativeInt
from captioning.text.lemmas import load_lemmas
from captioning.text.ngrams import NgramLanguageModel
from captioning.text.object_words import LEMMAS

MAX_SMALL_WORDS = 2  # more would make too many combinations


class TrigramWriter(AbstractWriter):
    """Inserts small words between required words by trigram counts, under `GapFilling`'s rules.

    The small words before each required word (none, a determiner, a particle, or both) are drawn by
    the probability of them and the required word after the two words before.

    Args:
        temperature: sampling temperature; 0 selects the most likely words.
        max_small_words: before each required word, 0 to 2.

    Raises:
        ValueError: ``temperature`` or ``max_small_words`` is out of range.
    """

    uses_gpu = False

    def __init__(
        self, *, temperature: NonNegativeFloat = 0.3, max_small_words: NonNegativeInt = 2
    ) -> None:
        if temperature < 0 or not 0 <= max_small_words <= MAX_SMALL_WORDS:
            raise ValueError(
                "temperature must not be negative and max_small_words must be 0 to 2: got "
                f"{temperature} and {max_small_words}"
            )
        self._temperature, self._max_small_words = temperature, max_small_words
        self._lemma = load_lemmas(LEMMAS)
        self._model: NgramLanguageModel | None = None

    def learn(self, captions: Sequence[str]) -> None:
        """Count the trigrams of captions."""
        self._model = NgramLanguageModel(captions)

    def answers(self, prompts: Sequence[Prompt], *, seed: int) -> list[Answer]:
        """See `AbstractWriter`; the likelihood is the mean over words.

        Raises:
            ValueError: `learn` was not called, or a prompt has no required words.
        """
        if self._model is None or not all(prompt.required_tokens for prompt in prompts):
            raise ValueError(
                "writer=trigrams works only with sentence templates (method=toca); choose a "
                "language model: writer@method.writer=smollm2_free, server or llama_cpp"
            )
        generator = np.random.default_rng(seed)
        return [
            self._answer(up_to_last_lexical(p.required_tokens), self._model, generator)
            for p in prompts
        ]

    def _answer(
        self, required: RequiredTokens, model: NgramLanguageModel, generator: np.random.Generator
    ) -> Answer:
        words: list[str] = []
        for position, (word, _) in enumerate(required):
            choices = list(self._small_words(required, position))
            scores = [model.log_prob_after(words, [*small_words, word]) for small_words in choices]
            words += [*choices[self._draw(np.asarray(scores), generator)], word]
        text = " ".join(words).replace(" ,", ",")
        return Answer(text=text, likelihood=model.log_prob_after([], words) / max(len(words), 1))

    def _small_words(self, required: RequiredTokens, position: int) -> Iterator[tuple[str, ...]]:
        """Choices of small words before a required word; a determiner comes last."""
        determiners = determiners_before(required, position, self._lemma)
        # a sentence begins with a determiner or with a required word
        max_number = min(self._max_small_words, 1) if position == 0 else self._max_small_words
        for number in range(max_number + 1):
            if number == 0 or position > 0:
                yield from permutations(PARTICLES, number)
            if number > 0:
                for particles in permutations(PARTICLES, number - 1):
                    yield from ((*particles, determiner) for determiner in determiners)

    def _draw(self, scores: np.ndarray, generator: np.random.Generator) -> int:
        if self._temperature == 0:
            return int(scores.argmax())
        shares = np.exp((scores - scores.max()) / self._temperature)
        return int(generator.choice(len(scores), p=shares / shares.sum()))
