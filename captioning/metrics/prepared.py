"""References prepared once, tokenized, counted and weighed, for every evaluation against them."""

from __future__ import annotations

import functools
import hashlib
import json
import logging
from collections import OrderedDict
from collections.abc import Sequence
from functools import cached_property

from captioning.metrics.bleu import BleuReferences, prepare_bleu
from captioning.metrics.cider import CiderReferences, CiderStatistics
from captioning.metrics.java import JavaError
from captioning.metrics.rouge import RougeReference, prepare_rouge
from captioning.metrics.tokenizer import tokenize_ptb, tokenize_python

_LOGGER = logging.getLogger(__name__)
# Enough for validation and test of a run; the least recently used goes first.
MAX_CACHED = 2
_cached: OrderedDict[tuple[str, str], PreparedReferences] = OrderedDict()


class PreparedReferences:
    """Tokenized references of some images; each metric's form of them is made at its first use.

    Args:
        tokens: tokenized captions of each image, in the order of the images.
        statistics: document frequencies for CIDEr; None: those of these references.
    """

    def __init__(
        self, tokens: Sequence[list[str]], *, statistics: CiderStatistics | None = None
    ) -> None:
        self.tokens = tokens
        self._statistics = statistics

    @cached_property
    def bleu(self) -> list[BleuReferences]:
        """Counted n-grams."""
        return prepare_bleu(self.tokens)

    @cached_property
    def rouge(self) -> list[list[RougeReference]]:
        """Indexed words."""
        return prepare_rouge(self.tokens)

    @cached_property
    def cider(self) -> CiderReferences:
        """Weighed n-grams.

        Raises:
            ValueError: every reference is empty.
        """
        return CiderReferences.prepare(self.tokens, self._statistics)

    def with_statistics(self, statistics: CiderStatistics) -> PreparedReferences:
        """The same references under other document frequencies."""
        return PreparedReferences(self.tokens, statistics=statistics)


def prepare(
    candidates: Sequence[str],
    references: Sequence[list[str]],
    *,
    tokenizer: str,
    timeout: float | None,
) -> tuple[list[str], PreparedReferences, dict[str, str]]:
    """Tokenize captions, and the references too unless they were those of a recent call.

    Args:
        candidates: one raw caption an image.
        references: raw captions of the same images in the same order.
        tokenizer: ``"ptb"`` or ``"python"``; without Java ``"ptb"`` falls back on ``"python"``.
        timeout: seconds before Java is killed.

    Returns:
        Tokenized candidates, prepared references, and ``tokenizer`` as it was used (with
        ``tokenizer_reason`` if it is not the one asked for).
    """
    used = {"tokenizer": tokenizer}
    try:
        return *_tokenized(candidates, references, tokenizer, timeout), used
    except JavaError as error:
        used = {"tokenizer": "python", "tokenizer_reason": str(error)}
        warn_once(f"captions are tokenized in Python instead of Java: {error}")
    return *_tokenized(candidates, references, "python", timeout), used


def _tokenized(
    candidates: Sequence[str],
    references: Sequence[list[str]],
    tokenizer: str,
    timeout: float | None,
) -> tuple[list[str], PreparedReferences]:
    key = (tokenizer, hashlib.sha256(json.dumps(list(references)).encode()).hexdigest())
    texts = list(candidates)
    if key not in _cached:
        texts += [text for captions in references for text in captions]
    tokens = (
        tokenize_python(texts) if tokenizer == "python" else tokenize_ptb(texts, timeout=timeout)
    )
    if key not in _cached:
        rest = iter(tokens[len(candidates) :])
        _cached[key] = PreparedReferences(
            [[next(rest) for _ in captions] for captions in references]
        )
        if len(_cached) > MAX_CACHED:
            _cached.popitem(last=False)
    _cached.move_to_end(key)
    return tokens[: len(candidates)], _cached[key]


@functools.cache
def warn_once(message: str) -> None:
    """Log a warning the first time that it comes up."""
    _LOGGER.warning(message)
