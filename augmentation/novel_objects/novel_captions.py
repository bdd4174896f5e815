"""Rewrite a caption for another object (Bujimalla et al., synthetic caption processing).

All colour words are removed, and so are adjectives within two words of the object and nouns within
one word of it. Then the object's word is replaced, in its number, and "a" and "an" are corrected.
The paper keeps captions that this breaks; here a caption that would lose more than a describing
word ("the bus is red") is refused with a reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from augmentation.regions.closed_classes import COLOURS, PLAIN_COLOURS, THING_COLOURS
from captioning.config.ranges import NonNegativeInt
from captioning.text.inflection import indefinite_article
from captioning.text.phrases import NOUNS, children_of
from captioning.text.word_forms import NUMBER_WORDS
from captioning.types import Parse, Token

NO_OBJECT = "caption without the object"
OTHER_NAME = "object's word is part of another name"
PREDICATE = "a word to be removed is more than a description"
NOVEL_ALREADY = "caption names the new object already"

# Relations of words that can be removed without harm to the sentence, and of their dependents.
DESCRIBING_RELATIONS = ("amod", "compound", "nmod", "conj", "advmod", "npadvmod", "nummod")
DEPENDENT_RELATIONS = ("advmod", "cc", "punct", "conj", "npadvmod", "amod", "compound")
PLURAL_TAGS = ("NNS", "NNPS")


@dataclass(frozen=True, slots=True, kw_only=True)
class Name:
    """Singular and plural names of an object.

    Attributes:
        singular, plural: forms in new captions.
        forms: further words for it in existing captions, such as ``("mug", "mugs")``.
    """

    singular: str
    plural: str
    forms: tuple[str, ...] = ()

    @property
    def spellings(self) -> tuple[tuple[str, ...], ...]:
        """All names as lower-case word sequences, longest first."""
        return tuple(sorted((tuple(n.lower().split()) for n in self.names), key=len, reverse=True))

    @property
    def names(self) -> tuple[str, ...]:
        """All singular and plural names of the object without repeats."""
        return tuple(dict.fromkeys((self.singular, self.plural, *self.forms)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Radius:
    """Distances from the object within which words are removed: the paper's values."""

    adjectives: NonNegativeInt = 2
    nouns: NonNegativeInt = 1


def mentions(words: Sequence[str], name: Name) -> Iterator[tuple[int, int]]:
    """Start and end of each mention of an object; case is ignored."""
    lowered, position = [word.lower() for word in words], 0
    while position < len(lowered):
        length = next(
            (len(s) for s in name.spellings if tuple(lowered[position : position + len(s)]) == s), 0
        )
        if length:
            yield position, position + length
        position += length or 1


def num_named(parse: Parse, name: Name) -> int:
    """Least number of objects of a kind that a caption mentions.

    Mentions add up, but later mentions with "the" do not count. A plural without a number is two.
    """
    count, children = 0, children_of(parse)
    for _, end in mentions([token.text for token in parse], name):
        noun = parse[end - 1]
        before = _before(parse, children, end - 1)
        if count and any(token.text.lower() == "the" for token in before):
            continue
        count += max(2 if _is_plural(noun, before, name) else 1, _stated_number(before))
    return count


def _is_plural(noun: Token, before: Sequence[Token], name: Name) -> bool:
    """Return whether a noun is plural by tag or by spelling; taggers miss some plurals.

    Where singular and plural are the same ("sheep"), the tag or a number before the noun decides,
    unless the word looks like a plural ("scissors").
    """
    word, tagged = noun.text.lower(), noun.tag in PLURAL_TAGS
    if name.plural == name.singular:
        return (tagged or _stated_number(before) > 1) and not word.endswith("s")
    return tagged or word == name.plural.split()[-1].lower()


def _before(parse: Parse, children: Sequence[Sequence[int]], noun: int) -> list[Token]:
    """Words before a noun that depend on the noun."""
    return [parse[child] for child in children[noun] if child < noun]


def _stated_number(before: Sequence[Token]) -> int:
    """Number stated in words before a noun; 0 without a number."""
    return max((_number(token) for token in before if token.dep == "nummod"), default=0)


def _number(token: Token) -> int:
    """Convert a number word or digits to an integer; 0 for other words."""
    word = token.text.lower()
    return int(word) if word.isdecimal() else NUMBER_WORDS.get(word, 0)


def rename_object(
    caption: str, parse: Parse, *, old: Name, new: Name, radius: Radius
) -> tuple[str, str]:
    """Rewrite a caption so that it mentions ``new`` in place of ``old``.

    Args:
        caption: the caption that the parser read, with single spaces.
        parse: its parse.
        old, new: the objects.
        radius: distance within which descriptions are removed.

    Returns:
        The new caption and an empty text, or an empty text and why there is none.
    """
    words = [token.text for token in parse]
    spans = list(mentions(words, old))
    if not spans:
        return "", NO_OBJECT
    if any(mentions(words, new)):
        return "", NOVEL_ALREADY
    if any(_names_another(parse, start, end) for start, end in spans):
        return "", OTHER_NAME
    removed = _removed(parse, spans, radius)
    if removed is None:
        return "", PREDICATE
    texts: dict[int, str] = {n: word for n, word in enumerate(words) if n not in removed}
    children = children_of(parse)
    for start, end in spans:
        for n in range(start, end):
            texts.pop(n, None)
        plural = _is_plural(parse[end - 1], _before(parse, children, end - 1), old)
        texts[start] = new.plural if plural else new.singular
    return _joined(caption, words, texts), ""


def _names_another(parse: Parse, start: int, end: int) -> bool:
    """Return whether the mention is part of another noun's name, such as "bus stop"."""
    last = parse[end - 1]
    return last.dep in ("compound", "nmod") and last.head >= end


def _removed(
    parse: Parse, spans: Sequence[tuple[int, int]], radius: Radius
) -> frozenset[int] | None:
    """Positions of words to remove; None if the removal would break the sentence."""
    objects = {n for start, end in spans for n in range(start, end)}
    removed: set[int] = set()
    children = children_of(parse)
    for n in range(len(parse)):
        if n in objects or not _unwanted(parse, n, spans, radius):
            continue
        group = _group(parse, children, n)
        if group is None or group & objects:
            return None
        removed |= group
    removed |= _dangling(parse, children, removed)
    removed |= _commas_before(parse, spans, removed)
    return frozenset(removed)


def _unwanted(parse: Parse, n: int, spans: Sequence[tuple[int, int]], radius: Radius) -> bool:
    token = parse[n]
    if _is_colour(token):
        return True
    gaps = [parse[n + 1 : start] if n < start else parse[end:n] for start, end in spans]
    if token.pos == "ADJ":  # commas are no words
        words = [[t for t in gap if t.pos != "PUNCT"] for gap in gaps]
        return min(map(len, words)) < radius.adjectives
    return token.pos in NOUNS and min(map(len, gaps)) < radius.nouns


def _is_colour(token: Token) -> bool:
    word = token.text.lower()
    if word in THING_COLOURS:
        return token.pos == "ADJ" and token.dep != "compound"
    return word in PLAIN_COLOURS and token.pos in ("ADJ", *NOUNS, "X", "VERB")


def _group(parse: Parse, children: Sequence[Sequence[int]], n: int) -> set[int] | None:
    """A descriptive word with its own modifiers; None if it has other dependents."""
    top = n
    if parse[n].dep == "pobj" and len(children[parse[n].head]) == 1:
        top = parse[n].head  # "a woman in black": the preposition goes too
        if parse[top].dep != "prep":
            return None
    elif parse[n].dep not in DESCRIBING_RELATIONS or parse[parse[n].head].pos in ("VERB", "AUX"):
        return None
    group, pending = {top, n}, list(children[n])
    while pending:
        word = pending.pop()
        if parse[word].dep not in DEPENDENT_RELATIONS:
            return None
        if parse[word].dep == "conj" and parse[word].text.lower() not in COLOURS:
            continue
        group.add(word)
        pending += children[word]
    return group


def _dangling(parse: Parse, children: Sequence[Sequence[int]], removed: set[int]) -> set[int]:
    """Conjunctions and commas that have lost one of their sides."""
    dangling = set()
    for n, token in enumerate(parse):
        if token.dep not in ("cc", "punct") or n in removed:
            continue
        conjuncts = [c for c in children[token.head] if parse[c].dep == "conj" and c > n]
        side_removed = token.head in removed or (conjuncts and all(c in removed for c in conjuncts))
        adjacent = n - 1 in removed or n + 1 in removed
        if side_removed and adjacent and token.text != ".":
            dangling.add(n)
    return dangling


def _commas_before(parse: Parse, spans: Sequence[tuple[int, int]], removed: set[int]) -> set[int]:
    """Commas before removed descriptions, as in "a small, dog"."""
    commas = set()
    for start, _ in spans:
        before = start - 1
        while before in removed:
            before -= 1
        if 0 <= before < start - 1 and parse[before].text == ",":
            commas.add(before)
    return commas


def _joined(caption: str, words: Sequence[str], texts: dict[int, str]) -> str:
    """Join the remaining words with the caption's spacing, and correct "a" and "an"."""
    gaps, position = [], 0
    for word in words:
        start = caption.index(word, position)
        gaps.append(start > position)
        position = start + len(word)
    remaining = sorted(texts)
    for n, after in pairwise(remaining):
        changed = after != n + 1 or texts[after] != words[after]
        if texts[n].lower() in ("a", "an") and changed:
            texts[n] = indefinite_article(texts[after])
    parts, last = [], -1
    for n in remaining:
        parts.append(" " if parts and any(gaps[last + 1 : n + 1]) else "")
        parts.append(texts[n])
        last = n
    joined = "".join(parts)
    return joined[0].upper() + joined[1:] if caption[0].isupper() else joined
