"""A dependency parse as the caption parser reads it: hyphens join words, prepositions are names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from augmentation.captions.hyphens import hyphen_groups
from augmentation.captions.ssa.lexicon import COMPOUND_PREPOSITIONS
from augmentation.captions.ssa.repairs import mend, verb_nouns
from augmentation.regions.mentions import offsets
from captioning.text.parts import children_of
from captioning.types import Parse

# "in front of": the noun of a preposition of several words.
_LONGEST = 4


@dataclass(frozen=True, slots=True)
class Words:
    """Words of a caption.

    Attributes:
        tokens: with words that hyphens join as one, and what `mends` mends mended.
        spans: characters ``(start, end)`` of each in the caption with single blanks.
        children: of each, in order.
    """

    tokens: Parse
    spans: tuple[tuple[int, int], ...]
    children: tuple[tuple[int, ...], ...]

    def having(self, position: int, *deps: str) -> list[int]:
        """Children in some relations."""
        return [i for i in self.children[position] if self.tokens[i].dep in deps]

    def preposition(self, position: int) -> tuple[str, list[int]]:
        """What a preposition is called, and the words that it leads to.

        ``("in-front-of", [n])`` of "in" in "in front of a dog".
        """
        path, name = position, [self.tokens[position].lemma]
        result: tuple[str, list[int]] = (name[0], self.having(position, "pobj", "pcomp"))
        while len(name) < _LONGEST:
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
        """The next word of what may be a preposition of several words, or -1."""
        return next(iter(self.having(position, "prep", "pobj")), -1)

    def _determiner(self, position: int) -> str:
        return next((self.tokens[i].lemma for i in self.having(position, "det")), "")


def words_of(caption: str, parse: Parse) -> Words:
    """The words of a parsed caption.

    Raises:
        ValueError: the parse is not of this caption.
    """
    spans = offsets(caption, parse)
    touches = [i > 0 and spans[i - 1][1] == start for i, (start, _) in enumerate(spans)]
    groups = hyphen_groups([token.text for token in parse], touches)
    tokens = _joined(parse, groups)
    if nouns := verb_nouns(tokens):
        for noun in reversed(nouns):
            groups[noun : noun + 2] = [groups[noun] + groups[noun + 1]]
        tokens = _joined(parse, groups)
    tokens = mend(tokens)
    return Words(
        tokens=tokens,
        spans=tuple((spans[group[0]][0], spans[group[-1]][1]) for group in groups),
        children=tuple(map(tuple, children_of(tokens))),
    )


def _joined(parse: Parse, groups: Sequence[Sequence[int]]) -> Parse:
    """One word for each group of words."""
    new_of = {old: new for new, group in enumerate(groups) for old in group}
    tokens = []
    for new, group in enumerate(groups):
        head = _head(parse, group)
        token = parse[head]
        if len(group) > 1:
            last = parse[group[-1]]
            text = _spelt([parse[i].text for i in group])
            lemma = text.lower().removesuffix(last.text.lower()) + last.lemma
            token = replace(token, text=text, lemma=lemma)
        # a word that is its own head, or whose head is within its group, stays what it was
        tokens.append(replace(token, head=new if token.head in group else new_of[token.head]))
    return tuple(tokens)


def _spelt(texts: Sequence[str]) -> str:
    """ "hula-hooping" of "hula" and "hooping", and of "hula", "-" and "hooping"."""
    return "".join(texts[:1]) + "".join(
        text if "-" in (before, text) else f"-{text}" for before, text in pairwise(texts)
    )


def _head(parse: Parse, group: Sequence[int]) -> int:
    """The word of a group that hangs on what is outside it; the last one where several do."""
    outside = [i for i in group if parse[i].head not in group or parse[i].head == i]
    words = [i for i in outside if parse[i].tag != "HYPH"]
    return (words or outside or list(group))[-1]
