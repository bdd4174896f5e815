"""Character spans of tokens in a caption."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Span = tuple[int, int]
NOWHERE: Span = (0, 0)


def word_spans(words: Iterable[str], caption: str) -> list[Span]:
    """Return the spans ``(start, stop)`` of words that occur in this order in a caption.

    A word that the caption does not hold in this form has an empty span.

    Args:
        words: words in lower case.
        caption: caption as written.
    """
    letters, places = _lowered(caption)
    spans, cursor = [], 0
    for word in words:
        start = letters.find(word, cursor)
        if start < 0:
            spans.append(NOWHERE)
            continue
        cursor = start + len(word)
        spans.append((places[start], places[cursor - 1] + 1))
    return spans


def text_spans(offsets: Iterable[Span], text: str, caption: str) -> list[Span]:
    """Map spans of a normalised text to spans of the original caption, without outer spaces.

    Args:
        offsets: spans ``(start, stop)`` in ``text``.
        text: the caption with changed letter case, and without some of its characters.
        caption: caption as written.

    Returns:
        The same number of spans; a span of spaces alone is empty.
    """
    where = _origins(text, caption)
    spans = []
    for start, stop in offsets:
        places = [place for place in where[start:stop] if place is not None]
        spans.append((places[0], places[-1] + 1) if places else NOWHERE)
    return spans


def _origins(text: str, caption: str) -> list[int | None]:
    """Return the caption position of each character of the text; None for spaces."""
    letters, places = _lowered(caption)
    origins: list[int | None] = []
    cursor = 0
    for letter in text:
        found = -1 if letter.isspace() else letters.find(letter.lower()[0], cursor)
        origins.append(None if found < 0 else places[found])
        cursor = cursor if found < 0 else found + 1
    return origins


def _lowered(caption: str) -> tuple[str, Sequence[int]]:
    """Lower-case a caption (a capital may become two letters), with each letter's origin."""
    small = caption.lower()
    if len(small) == len(caption):
        return small, range(len(caption))
    pairs = [(part, place) for place, letter in enumerate(caption) for part in letter.lower()]
    return "".join(part for part, _ in pairs), [place for _, place in pairs]
