"""The nearest of many texts by their embeddings, each of another image."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

# Stands for a missing neighbour.
NOTHING = -1
_BLOCK = 256


def find_nearest(
    contexts: Sequence[str | None],
    images: Sequence[str],
    embed: Callable[[Sequence[str]], Tensor],
    num_nearest: int,
    *,
    lend: Sequence[bool] | None = None,
) -> Tensor:
    """Rows of the nearest contexts.

    Nearest by cosine, the earliest among equals. They are of other images, and differ from the
    text's own context and from each other.

    Args:
        contexts: N texts; None for those without an object, which have no neighbours and are
            neighbours of none.
        images: the image of each.
        embed: gives unit vectors ``(U, D)`` of U texts.
        num_nearest: M.
        lend: which of the N texts may be neighbours; None: all.

    Returns:
        ``(N, M) int64``.
    """
    rows_of = _rows_by_text(contexts)
    lenders = rows_of if lend is None else _rows_by_text(contexts, lend)
    neighbours = torch.full((len(contexts), num_nearest), NOTHING, dtype=torch.long)
    if not lenders:
        return neighbours
    # Lenders come first, so that a text has one place among all texts and among lenders.
    texts = [*lenders, *(text for text in rows_of if text not in lenders)]
    # A row of the first image and a row of another image are enough for every image.
    sources = [_two_images(rows, images) for rows in lenders.values()]
    max_captions = max(Counter(images).values())
    vectors = embed(texts)
    number = len(lenders)
    count = min(number, 1 + num_nearest + max_captions)
    for start in range(0, len(texts), _BLOCK):
        likeness = vectors[start : start + _BLOCK] @ vectors[:number].t()
        # Integers, so that rounding errors decide no order; equals are ordered by place.
        likeness = (likeness.double() * 1e6).round().long() * number
        likeness -= torch.arange(number)
        nearest = likeness.topk(count, dim=1).indices.tolist()
        for place, candidates in enumerate(nearest, start):
            for row in rows_of[texts[place]]:
                rows = _other_rows(place, candidates, sources, images, images[row])[:num_nearest]
                neighbours[row, : len(rows)] = torch.tensor(rows, dtype=torch.long)
    return neighbours


def _rows_by_text(
    contexts: Sequence[str | None], lend: Sequence[bool] | None = None
) -> dict[str, list[int]]:
    """Rows of each text, in order: all, or those that lend."""
    rows_of: dict[str, list[int]] = {}
    for row, context in enumerate(contexts):
        if context is not None and (lend is None or lend[row]):
            rows_of.setdefault(context, []).append(row)
    return rows_of


def _two_images(rows: Sequence[int], images: Sequence[str]) -> list[int]:
    other_row = next((row for row in rows if images[row] != images[rows[0]]), None)
    return [rows[0]] if other_row is None else [rows[0], other_row]


def _other_rows(
    own_text: int, texts: list[int], sources: list[list[int]], images: Sequence[str], image: str
) -> list[int]:
    """A row of another image for each of the texts that has one, without the own text."""
    rows = []
    for text in texts:
        row = next((row for row in sources[text] if images[row] != image), None)
        if text != own_text and row is not None:
            rows.append(row)
    return rows
