"""Complete sentence templates with function words only, so that each required word is kept.

A structure (ToCa, section 3.2) leaves out determiners, numbers, pronouns, particles and "to". Here
a language model may insert only these between the template's words, which it must write unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from captioning.text.inflection import indefinite_article
from captioning.text.lemmas import Lemmatizer, load_lemmas
from captioning.text.object_words import LEMMAS, UNMARKED_PLURALS

# A required word follows a determiner.
SINGULAR_DETERMINERS = ("one", "another", "each")
PLURAL_DETERMINERS = ("two", "three", "four", "five", "six", "some", "several", "both", "all")
ANY_DETERMINERS = ("the", "no", "his", "her", "their", "its")
PARTICLES = ("up", "down", "out", "off", "to", "it", "them", "him")
# Slots that a determiner may stand before: nouns, adjectives, adverbs and participles with a noun.
BEFORE_NOUNS = ("J", "R", "VBG", "VBN")
RequiredTokens = Sequence[tuple[str, str]]  # tokens and their slots


@dataclass(kw_only=True)
class SentenceState:
    """A sentence under construction.

    Attributes:
        words: tokens of the required words that are still missing.
        determiners: tokens of determiners that may precede each required word.
        capital: tokens of the first required word with a capital, which begins the sentence unless
            a small word does; empty once something is written.
        begun: remaining tokens of a word that was begun.
        between: small words since the last required one.
    """

    words: list[list[int]]
    determiners: list[list[int]]
    capital: list[int]
    begun: list[int] = field(default_factory=list)
    between: list[int] = field(default_factory=list)


def up_to_last_lexical(required: RequiredTokens) -> RequiredTokens:
    """Required tokens without the function words after the last lexical word.

    Such words preceded a slot that no word fitted ("a bowl of fruit on").
    """
    lexical = [place for place, (_, slot) in enumerate(required) if slot]
    return required[: max(lexical, default=-1) + 1]


def determiners_before(
    required: RequiredTokens, position: int, lemmatizer: Lemmatizer
) -> list[str]:
    """Determiners before a required word, if a noun follows, possibly after adjectives."""
    slots = [slot for _, slot in required[position:]]
    noun = next((n for n, slot in enumerate(slots) if slot not in BEFORE_NOUNS), len(slots))
    if slots[noun : noun + 1] != ["N"]:
        return []
    while slots[noun + 1 : noun + 2] == ["N"]:  # the last of several nouns is what they name
        noun += 1
    head = required[position + noun][0]
    if head in UNMARKED_PLURALS or lemmatizer(head, "NNS") != head:
        return [*ANY_DETERMINERS, *PLURAL_DETERMINERS]
    return [*ANY_DETERMINERS, indefinite_article(required[position][0]), *SINGULAR_DETERMINERS]


class GapFilling:
    """Chooses tokens that write required words in order, with few small words between them.

    Args:
        tokenizer: tokenizer of the language model; small words of several tokens are not used.
        end: a token that ends a sentence.
        max_small_words: small words in a row.

    Raises:
        ValueError: ``max_small_words`` is negative.
    """

    def __init__(self, tokenizer: Any, *, end: int, max_small_words: int = 2) -> None:
        if max_small_words < 0:
            raise ValueError(f"max_small_words must not be negative: got {max_small_words}")
        self._tokenizer, self._end, self._max_small_words = tokenizer, end, max_small_words
        self._lemma, self._particles = load_lemmas(LEMMAS), self._single(PARTICLES)

    def new_sentences(self, words: Sequence[RequiredTokens]) -> list[SentenceState]:
        """Start sentences with the required words of each, see `up_to_last_lexical`."""
        return [self._line(up_to_last_lexical(required)) for required in words]

    def _line(self, words: RequiredTokens) -> SentenceState:
        return SentenceState(
            words=[self._ids(word) for word, _ in words],
            determiners=[self._determiners(words, place) for place in range(len(words))],
            capital=self._ids(words[0][0].capitalize()) if words else [],
        )

    def _determiners(self, required: RequiredTokens, place: int) -> list[int]:
        words = determiners_before(required, place, self._lemma)
        return self._single([word.capitalize() if place == 0 else word for word in words])

    def choose(
        self, logits: Tensor, sentences: Sequence[SentenceState], draw: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """Choose the next token of each sentence, and append it.

        Args:
            logits: ``(B, V)``.
            sentences: B sentences.
            draw: ``(B, C)`` logits to ``(B,)`` positions.

        Returns:
            ``(B,) int64``; the end token where a sentence has all its words.
        """
        allowed = [self._allowed(line) for line in sentences]
        width = max(map(len, allowed))
        padded = torch.tensor([[*row, *[-1] * (width - len(row))] for row in allowed])
        padded = padded.to(logits.device)
        values = logits.gather(1, padded.clamp(min=0)).masked_fill(padded < 0, -torch.inf)
        tokens = padded.gather(1, draw(values)[:, None]).squeeze(1)
        for line, token in zip(sentences, tokens.tolist(), strict=True):
            _append_token(line, token)
        return tokens

    def _allowed(self, line: SentenceState) -> list[int]:
        """Tokens that may come next in a sentence."""
        if line.begun:
            return [line.begun[0]]
        if not line.words:
            return [self._end]
        next_word = (line.capital or line.words[0])[0]
        if len(line.between) >= self._max_small_words or set(line.determiners[0]) & set(
            line.between
        ):
            return [next_word]
        small = [*line.determiners[0], *([] if line.capital else self._particles)]
        return [next_word, *(token for token in small if token not in (next_word, *line.between))]

    def _ids(self, word: str) -> list[int]:
        text = word if word == "," else f" {word}"
        return self._tokenizer(text, add_special_tokens=False)["input_ids"]

    def _single(self, words: Sequence[str]) -> list[int]:
        return [ids[0] for ids in map(self._ids, words) if len(ids) == 1]


def _append_token(line: SentenceState, token: int) -> None:
    """Append a token to a sentence and update its state."""
    if line.begun:
        line.begun.pop(0)
    elif line.words and token == (line.capital or line.words[0])[0]:
        line.begun = (line.capital or line.words[0])[1:]
        line.words.pop(0)
        line.determiners.pop(0)
        line.between = []
    else:
        line.between.append(token)
    line.capital = []
