"""Find the sentences of a long caption by punctuation alone.

The result does not depend on a model, so journals, reports and pages split captions equally on
any machine. Spans refer to the caption as written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Literal

from captioning.interfaces import AbstractTokenizer
from captioning.text.tokenizers.token_spans import Span
from captioning.types import MaskedSpan

LongCaptions = Literal["cut", "sentence", "refuse"]

# A stop, closing quotes or brackets after it, then a space or the end. Stops of
# scripts without spaces always end a sentence; so do empty lines and list items.
_CLOSING = "\"'\u201d\u2019)\\]"
_FULL_WIDTH = "\u3002\uff01\uff1f\uff61"
_END = re.compile(
    rf"(?P<stop>[.!?\u2026]+)[{_CLOSING}]*(?=\s|$)"
    rf"|[{_FULL_WIDTH}]+[\u201d\u2019\u300d\u300f\uff09]*"
    r"|\n\s*(?=\n|[-*\u2022]\s|\d{1,2}[.)]\s)"
)
_WORD_BEFORE = re.compile(r"(?:[^\W\d_]\.)*[^\W\d_]+$")
_LIST_ITEM = re.compile(r"(?:^|\n)\s*\d{1,2}$")
# Abbreviations that often end a sentence: a lower-case letter after one continues the sentence.
_MAY_END = frozenset(re.findall(r"\S+", "etc a.m p.m u.s u.k inc ltd co jr sr st ave rd no ft"))
_NEVER_END = frozenset(
    re.findall(
        r"\S+",
        "mr mrs ms dr prof vs approx nos vol fig dept mt e.g i.e ca cf "
        "jan feb mar apr jun jul aug sept sep oct nov dec",
    )
)


@lru_cache(maxsize=65_536)
def sentence_spans(caption: str) -> tuple[Span, ...]:
    """Return the spans ``(start, stop)`` of a caption's sentences, without surrounding spaces.

    A stop ends a sentence, except after an abbreviation (``Dr.``), an initial (``J.``), a
    list number, or within a decimal number. A caption without a stop is one sentence; a text
    without letters or digits belongs to the previous sentence.
    """
    cuts = [0, *(m.end() for m in _END.finditer(caption) if _is_end(caption, m)), len(caption)]
    spans: list[Span] = []
    for start, stop in pairwise(cuts):
        text = caption[start:stop]
        start, stop = stop - len(text.lstrip()), start + len(text.rstrip())
        if start >= stop:
            continue
        if spans and not any(map(str.isalnum, caption[start:stop])):
            spans[-1] = (spans[-1][0], stop)
        else:
            spans.append((start, stop))
    return tuple(spans)


def _is_end(caption: str, match: re.Match[str]) -> bool:
    """Whether a match of `_END` ends a sentence."""
    if match["stop"] != ".":
        return True
    before, after = caption[: match.start()], caption[match.end() :].lstrip()
    if not after:
        return True
    if _LIST_ITEM.search(before):
        return False
    word = _WORD_BEFORE.search(before)
    if word is None:
        return True
    text = word[0].lower()
    if len(text) == 1 and word[0].isupper():  # an initial
        return False
    return text not in _NEVER_END and (text not in _MAY_END or after[0].isupper())


def sentence_numbers(spans: Sequence[Span], sentences: Sequence[Span]) -> list[int]:
    """Return the sentence index in which each span begins; -1 for empty spans.

    Args:
        spans: spans of tokens in the caption.
        sentences: sentences of the caption, in order.
    """
    numbers = []
    for start, stop in spans:
        inside = (n for n, (first, last) in enumerate(sentences) if first <= start < last)
        numbers.append(-1 if start >= stop else next(inside, -1))
    return numbers


def without(caption: str, spans: Iterable[MaskedSpan]) -> str:
    """Remove some sentences of a caption, and the spaces after them.

    Args:
        caption: caption as written.
        spans: spans of the sentences to remove, in order.

    Returns:
        The remaining text; empty if no sentence remains.
    """
    kept, cursor = [], 0
    for span in spans:
        kept.append(caption[cursor : span.start])
        rest = caption[span.stop :]
        cursor = span.stop + len(rest) - len(rest.lstrip())
    return "".join([*kept, caption[cursor:]]).strip()


def trained_text(caption: str, tokenizer: AbstractTokenizer, mode: LongCaptions) -> str:
    """Return the part of a caption used in training: all, or only whole sentences that fit.

    A caption whose first sentence does not fit is returned for the tokenizer to cut. Annotated
    ones were rejected before training (`captioning.data.long_captions`), so curation wrote it.
    """
    if mode == "cut" or not tokenizer.left_out(caption, tokenizer.encode(caption)):
        return caption
    return fitting_sentences(caption, tokenizer) or caption


def fitting_sentences(caption: str, tokenizer: AbstractTokenizer) -> str:
    """Return the longest prefix of whole sentences that fits; empty if no sentence fits."""
    texts = (caption[:stop] for _, stop in reversed(sentence_spans(caption)[:-1]))
    return next(
        (text for text in texts if not tokenizer.left_out(text, tokenizer.encode(text))), ""
    )
