"""Sentence templates completed with small words alone, so that no given word is ever missing.

A structure (ToCa, section 3.2) leaves out determiners, numbers, pronouns, particles and "to". Here
a language model may write these and nothing else, between the words that the template gives, which
it must write as they stand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from augmentation.regions.inflection import indefinite_article
from captioning.text.lemmas import Lemmatizer, load_lemmas
from captioning.text.object_words import LEMMAS, UNMARKED_PLURALS

# After a determiner a given word comes next.
OF_ONE = ("one", "another", "each")
OF_SEVERAL = ("two", "three", "four", "five", "six", "some", "several", "both", "all")
OF_ANY = ("the", "no", "his", "her", "their", "its")
PARTICLES = ("up", "down", "out", "off", "to", "it", "them", "him")
# Slots that a determiner may stand before: nouns, adjectives, adverbs and participles with a noun.
BEFORE_NOUNS = ("J", "R", "VBG", "VBN")
Given = Sequence[tuple[str, str]]  # tokens and their slots


@dataclass(kw_only=True)
class Line:
    """A sentence that is being written.

    Attributes:
        words: tokens of the given words that are still to come.
        determiners: tokens of those that may stand before each of them.
        capital: tokens of the first given word with a capital, which begins the sentence unless a
            small word does; empty once something is written.
        begun: tokens that are left of a word of which some have been written.
        between: small words since the last given one.
    """

    words: list[list[int]]
    determiners: list[list[int]]
    capital: list[int]
    begun: list[int] = field(default_factory=list)
    between: list[int] = field(default_factory=list)


def up_to_last_lexical(given: Given) -> Given:
    """What is given, without function words behind the last lexical word.

    A slot that no word fitted was to follow them ("a bowl of fruit on").
    """
    lexical = [place for place, (_, slot) in enumerate(given) if slot]
    return given[: max(lexical, default=-1) + 1]


def determiners_before(given: Given, place: int, lemmatizer: Lemmatizer) -> list[str]:
    """Determiners that may stand before a given word: if a noun comes, perhaps after adjectives."""
    slots = [slot for _, slot in given[place:]]
    noun = next((n for n, slot in enumerate(slots) if slot not in BEFORE_NOUNS), len(slots))
    if slots[noun : noun + 1] != ["N"]:
        return []
    while slots[noun + 1 : noun + 2] == ["N"]:  # the last of several nouns is what they name
        noun += 1
    head = given[place + noun][0]
    if head in UNMARKED_PLURALS or lemmatizer(head, "NNS") != head:
        return [*OF_ANY, *OF_SEVERAL]
    return [*OF_ANY, indefinite_article(given[place][0]), *OF_ONE]


class GapFilling:
    """Chooses tokens that say given words in order, with few small words before each.

    Args:
        tokenizer: of the language model; small words of several tokens are not used.
        end: a token that ends a sentence.
        most: small words in a row.

    Raises:
        ValueError: ``most`` is negative.
    """

    def __init__(self, tokenizer: Any, *, end: int, most: int = 2) -> None:
        if most < 0:
            raise ValueError(f"most_small_words must not be negative: got {most}")
        self._tokenizer, self._end, self._most = tokenizer, end, most
        self._lemma, self._particles = load_lemmas(LEMMAS), self._single(PARTICLES)

    def lines(self, words: Sequence[Given]) -> list[Line]:
        """New sentences, of what is given for each, see `up_to_last_lexical`."""
        return [self._line(up_to_last_lexical(of_template)) for of_template in words]

    def _line(self, words: Given) -> Line:
        return Line(
            words=[self._ids(word) for word, _ in words],
            determiners=[self._determiners(words, place) for place in range(len(words))],
            capital=self._ids(words[0][0].capitalize()) if words else [],
        )

    def _determiners(self, of_template: Given, place: int) -> list[int]:
        words = determiners_before(of_template, place, self._lemma)
        return self._single([word.capitalize() if place == 0 else word for word in words])

    def choose(
        self, logits: Tensor, lines: Sequence[Line], draw: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """The next token of each sentence, which the sentence then holds.

        Args:
            logits: ``(B, V)``.
            lines: B sentences.
            draw: ``(B, C)`` logits to ``(B,)`` positions.

        Returns:
            ``(B,) int64``; the end token where a sentence has all its words.
        """
        allowed = [self._allowed(line) for line in lines]
        width = max(map(len, allowed))
        padded = torch.tensor([[*row, *[-1] * (width - len(row))] for row in allowed])
        padded = padded.to(logits.device)
        values = logits.gather(1, padded.clamp(min=0)).masked_fill(padded < 0, -torch.inf)
        tokens = padded.gather(1, draw(values)[:, None]).squeeze(1)
        for line, token in zip(lines, tokens.tolist(), strict=True):
            _note(line, token)
        return tokens

    def _allowed(self, line: Line) -> list[int]:
        """Tokens that may come next."""
        if line.begun:
            return [line.begun[0]]
        if not line.words:
            return [self._end]
        next_word = (line.capital or line.words[0])[0]
        if len(line.between) >= self._most or set(line.determiners[0]) & set(line.between):
            return [next_word]
        small = [*line.determiners[0], *([] if line.capital else self._particles)]
        return [next_word, *(token for token in small if token not in (next_word, *line.between))]

    def _ids(self, word: str) -> list[int]:
        text = word if word == "," else f" {word}"
        return self._tokenizer(text, add_special_tokens=False)["input_ids"]

    def _single(self, words: Sequence[str]) -> list[int]:
        return [ids[0] for ids in map(self._ids, words) if len(ids) == 1]


def _note(line: Line, token: int) -> None:
    """Write a token."""
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
