"""A dependency parse as the caption parser reads it: hyphenated words and prepositions joined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from augmentation.captions.hyphens import hyphen_groups
from augmentation.regions.mentions import offsets
from augmentation.ssa.lexicon import COMPOUND_PREPOSITIONS
from augmentation.ssa.repairs import repair, verb_nouns
from captioning.text.phrases import children_of
from captioning.types import Parse

# Words of a preposition, such as "in front of", at most.
_MAX_PREPOSITION_WORDS = 4
NOT = frozenset(("not", "n't", "never"))


@dataclass(frozen=True, slots=True)
class Words:
    """Words of a caption.

    Attributes:
        tokens: with hyphenated words as one, after `augmentation.ssa.repairs`.
        spans: characters ``(start, end)`` of each in the caption with single blanks.
        children: of each, in order.
    """

    tokens: Parse
    spans: tuple[tuple[int, int], ...]
    children: tuple[tuple[int, ...], ...]

    def having(self, position: int, *deps: str) -> list[int]:
        """Children in some relations."""
        return [i for i in self.children[position] if self.tokens[i].dep in deps]

    def negations(self, position: int) -> list[int]:
        """Children that say "not", whatever relation their parse has."""
        return [
            i
            for i in self.children[position]
            if self.tokens[i].dep == "neg" or self.tokens[i].text.lower() in NOT
        ]

    def preposition(self, position: int) -> tuple[str, list[int]]:
        """The name of a preposition, and its objects.

        ``("in-front-of", [n])`` of "in" in "in front of a dog".
        """
        path, name = position, [self.tokens[position].lemma]
        result: tuple[str, list[int]] = (name[0], self.having(position, "pobj", "pcomp"))
        while len(name) < _MAX_PREPOSITION_WORDS:
            inner = self._inner(path)
            if inner < 0:
                break
            parts = self.tokens[inner].dep in ("pobj", "advmod") and self._determiner(inner)
            name += [*([parts] if parts else []), self.tokens[inner].lemma]
            path = inner
            joined = COMPOUND_PREPOSITIONS.get(tuple(name))
            if joined:
                result = (joined, self.having(path, "pobj", "pcomp"))
        return result

    def _inner(self, position: int) -> int:
        """The next word of a possible preposition of several words, or -1."""
        return next(iter(self.having(position, "prep", "pobj")), -1)

    def _determiner(self, position: int) -> str:
        return next((self.tokens[i].lemma for i in self.having(position, "det")), "")


def parsed_words(caption: str, parse: Parse) -> Words:
    """The words of a parsed caption.

    Raises:
        ValueError: the parse is not of this caption.
    """
    spans = offsets(caption, parse)
    touches = [i > 0 and spans[i - 1][1] == start for i, (start, _) in enumerate(spans)]
    groups = hyphen_groups([token.text for token in parse], touches)
    tokens = _join_tokens(parse, groups)
    if nouns := verb_nouns(tokens):
        for noun in reversed(nouns):
            groups[noun : noun + 2] = [groups[noun] + groups[noun + 1]]
        tokens = _join_tokens(parse, groups)
    tokens = repair(tokens)
    return Words(
        tokens=tokens,
        spans=tuple((spans[group[0]][0], spans[group[-1]][1]) for group in groups),
        children=tuple(map(tuple, children_of(tokens))),
    )


def _join_tokens(parse: Parse, groups: Sequence[Sequence[int]]) -> Parse:
    """One word for each group of words."""
    new_index = {old: new for new, group in enumerate(groups) for old in group}
    tokens = []
    for new, group in enumerate(groups):
        head = _head(parse, group)
        token = parse[head]
        if len(group) > 1:
            last = parse[group[-1]]
            text = _spelt([parse[i].text for i in group])
            lemma = text.lower().removesuffix(last.text.lower()) + last.lemma
            token = replace(token, text=text, lemma=lemma)
        # a word that is its own head, or whose head is within its group, is the group's head
        tokens.append(replace(token, head=new if token.head in group else new_index[token.head]))
    return tuple(tokens)


def _spelt(texts: Sequence[str]) -> str:
    """ "hula-hooping" of "hula" and "hooping", and of "hula", "-" and "hooping"."""
    return "".join(texts[:1]) + "".join(
        text if "-" in (before, text) else f"-{text}" for before, text in pairwise(texts)
    )


def _head(parse: Parse, group: Sequence[int]) -> int:
    """The word of a group whose head is outside it; the last one of several."""
    outside = [i for i in group if parse[i].head not in group or parse[i].head == i]
    words = [i for i in outside if parse[i].tag != "HYPH"]
    return (words or outside or list(group))[-1]
