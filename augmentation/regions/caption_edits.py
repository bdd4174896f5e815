"""Edit captions: replace the words of an object and of its attributes.

Pure functions of a caption, its parse and its mentions. The new noun has the old one's number, so
verbs still agree; articles and possessives are corrected; capitals, punctuation and hyphens stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from augmentation.regions.closed_classes import CONNECTORS
from augmentation.regions.mentions import Mention, clean, offsets
from captioning.text.inflection import indefinite_article, possessive_mark
from captioning.types import Parse

SpanKind = Literal["object", "attribute", "article", "possessive"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedSpan:
    """A span of a new caption that differs from the old caption.

    Attributes:
        start: first character in the new caption.
        text: the new text; ``""`` where words were removed.
        old_start: first character in the old caption, white space collapsed.
        old_text: the replaced text; ``""`` where words were inserted.
        kind: kind of word that was changed.
    """

    start: int
    text: str
    old_start: int
    old_text: str
    kind: SpanKind


@dataclass(frozen=True, slots=True, kw_only=True)
class EditedCaption:
    """A caption after an edit, with the changed spans.

    Attributes:
        caption: the new text, single blanks.
        spans: changed spans in order; empty: no change.
    """

    caption: str
    spans: tuple[ChangedSpan, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    start: int
    end: int
    text: str
    kind: SpanKind


def replace_object(
    caption: str,
    parse: Parse,
    mention: Mention,
    *,
    noun: str,
    attribute: str = "",
    correct_articles: bool = True,
) -> EditedCaption:
    """Replace the object and the attribute in a caption.

    All attributes of the old object give way to the one new attribute, with the words that join
    them; without a new attribute they are taken out. An attribute for an object that had none is
    put before it.

    Args:
        caption: text of the parse.
        parse: the caption's parse.
        mention: the object, from `augmentation.regions.mentions.find_mentions` on both.
        noun: the new object, in the number of the old one: ``"trucks"`` for ``"cars"``.
        attribute: the new attribute, ``""`` for none.
        correct_articles: *a* and *an* before the change go by sound; False: they stay.

    Raises:
        ValueError: ``noun`` is empty, or the parse belongs to another caption.
    """
    if not noun.strip():
        raise ValueError("noun must be the word of the new object: got an empty text")
    text, spans = clean(caption), offsets(caption, parse)
    changes = _word_changes(spans, parse, mention, noun=noun, attribute=attribute)
    changes = [_match_case(text, change) for change in changes]
    changes += _possessive_change(text, spans, parse, mention, noun)
    article = _article_change(text, spans, parse, changes) if correct_articles else []
    return _apply_changes(text, [*article, *changes])


def _word_changes(
    spans: Sequence[tuple[int, int]], parse: Parse, mention: Mention, *, noun: str, attribute: str
) -> list[_Change]:
    start, end = spans[mention.start][0], spans[mention.head][1]
    if mention.block is None:
        added = _Change(start=start, end=start, text=f"{attribute} ", kind="attribute")
        noun_change = _Change(start=start, end=end, text=noun, kind="object")
        return [added, noun_change] if attribute else [noun_change]
    first, after = mention.block
    place = spans[first][0]
    if attribute:
        return [
            _Change(start=place, end=spans[after - 1][1], text=attribute, kind="attribute"),
            _Change(start=start, end=end, text=noun, kind="object"),
        ]
    # A connecting word goes with the removed attribute: "a big, barking dog".
    while after < mention.start and parse[after].text.lower() in CONNECTORS:
        after += 1
    if after == mention.start:
        return [_Change(start=place, end=end, text=noun, kind="object")]
    # The next letter is part of the change: it may become a sentence's first.
    end = spans[after][0] + 1
    return [
        _Change(start=place, end=end, text=parse[after].text[0], kind="attribute"),
        _Change(start=start, end=end, text=noun, kind="object"),
    ]


def _match_case(text: str, change: _Change) -> _Change:
    """Copy the capitals of the replaced text: all letters, or only the first."""
    new = change.text
    if text.isupper():
        new = new.upper()
    elif _begins_sentence(text, change.start) and text[change.start].isupper():
        new = new[:1].upper() + new[1:]
    return replace(change, text=new)


def _begins_sentence(text: str, place: int) -> bool:
    before = text[:place].rstrip(" \"'(`")
    return not any(map(str.isalnum, before)) or before.endswith((".", "!", "?"))


def _possessive_change(
    text: str,
    spans: Sequence[tuple[int, int]],
    parse: Parse,
    mention: Mention,
    noun: str,
) -> list[_Change]:
    after = mention.head + 1
    if after >= len(parse) or parse[after].tag != "POS":
        return []
    start, end = spans[after]
    mark = possessive_mark(noun, plural=mention.plural)
    return [_Change(start=start, end=end, text=mark, kind="possessive")]


def _article_change(
    text: str, spans: Sequence[tuple[int, int]], parse: Parse, changes: Sequence[_Change]
) -> list[_Change]:
    """Change ``a`` or ``an`` before the first change, if the new word needs the other form."""
    first = changes[0]
    before = [i for i, (_, end) in enumerate(spans) if end <= first.start]
    if not before or parse[before[-1]].text.lower() not in ("a", "an"):
        return []
    start, end = spans[before[-1]]
    following = _apply_changes(text, changes).caption[first.start :].split()
    if not following:
        return []
    article = indefinite_article(following[0])
    if text.isupper():
        article = article.upper()
    elif text[start].isupper():
        article = article.capitalize()
    return [_Change(start=start, end=end, text=article, kind="article")]


def _apply_changes(text: str, changes: Iterable[_Change]) -> EditedCaption:
    parts: list[str] = []
    spans, position, length = [], 0, 0
    for change in sorted(changes, key=lambda change: (change.start, change.end)):
        old = text[change.start : change.end]
        unchanged = text[position : change.start]
        parts += [unchanged, change.text]
        length += len(unchanged)
        if old != change.text:
            spans.append(
                ChangedSpan(
                    start=length,
                    text=change.text,
                    old_start=change.start,
                    old_text=old,
                    kind=change.kind,
                )
            )
        length += len(change.text)
        position = change.end
    caption = "".join([*parts, text[position:]])
    return EditedCaption(caption=caption, spans=tuple(spans))
