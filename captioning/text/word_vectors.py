"""Pretrained word vectors in GloVe's text format."""

from __future__ import annotations

import bz2
import gzip
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from captioning.config.loadable import loadable
from captioning.config.ranges import NonNegativeFloat, PositiveInt, Seed

OPENERS = {".bz2": bz2.open, ".gz": gzip.open}


@loadable
def load_word_vectors(
    *,
    path: str | Path,
    words: Sequence[str],
    size: PositiveInt,
    missing_mean: float | None = None,
    missing_spread: NonNegativeFloat | None = None,
    seed: Seed = 0,
) -> Tensor:
    """Vectors of a vocabulary.

    Words that the file lacks get random vectors, by default with the mean and spread of the others,
    so that tied output weights differ between them.

    Args:
        path: lines of ``word v1 ... v_size``; plain text, ``.bz2`` or ``.gz``.
        words: the vocabulary in id order.
        size: E, values a word.
        missing_mean: of the drawn values; None: that of the file's.
        missing_spread: their standard deviation; None: that of the file's.
        seed: of the drawn vectors.

    Returns:
        ``(V, E) float32``.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a line of another size or with something other than numbers, or no word found.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(
            f"word vectors not found: {path}; download GloVe (nlp.stanford.edu/projects/glove) and "
            "set model.word_vectors.path"
        )
    vectors_by_id = _read(path, {word: index for index, word in enumerate(words)}, size)
    if not vectors_by_id:
        raise ValueError(f"{path}: holds none of the {len(words)} words of the vocabulary")
    file_vectors = np.stack(list(vectors_by_id.values()))
    rng = np.random.default_rng(seed)
    mean = file_vectors.mean() if missing_mean is None else missing_mean
    spread = file_vectors.std() if missing_spread is None else missing_spread
    vectors = rng.normal(mean, spread, (len(words), size)).astype(np.float32)
    vectors[list(vectors_by_id)] = file_vectors
    return torch.from_numpy(vectors)


def _read(path: Path, ids: dict[str, int], size: int) -> dict[int, np.ndarray]:
    vectors_by_id: dict[int, np.ndarray] = {}
    try:
        for number, line in enumerate(_lines(path), start=1):
            word, _, values = line.rstrip("\n").partition(" ")
            index = ids.get(word)
            if index is None or index in vectors_by_id:
                continue
            vectors_by_id[index] = to_vector(
                values.split(" "),
                size=size,
                place=f"{path}, line {number}",
                word=word,
                remedy="set model.module.embedding_size to the file's size",
            )
    except (UnicodeDecodeError, EOFError, zlib.error) as error:
        raise ValueError(f"{path}: damaged ({error}); get the file anew") from error
    return vectors_by_id


def _lines(path: Path) -> Iterator[str]:
    with OPENERS.get(path.suffix, open)(path, "rt", encoding="utf-8") as lines:
        yield from lines


def to_vector(
    values: Sequence[str], *, size: int, place: str, word: str, remedy: str
) -> np.ndarray:
    """``(size,) float32`` of the values of a word.

    Raises:
        ValueError: something else than ``size`` finite numbers; ``place``, ``word`` and ``remedy``
            are for the message.
    """
    try:
        vector = np.array(values, dtype=np.float32)
    except ValueError as error:
        raise ValueError(f"{place}: not numbers after {word!r}") from error
    if len(vector) != size or not np.isfinite(vector).all():
        raise ValueError(
            f"{place}: wanted {size} finite values for {word!r}, got {len(vector)}; {remedy}"
        )
    return vector
