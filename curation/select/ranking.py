"""The worst of a set by score, with ties that break the same way everywhere."""

from __future__ import annotations

import numpy as np

from curation.base import Context


def worst_rows(context: Context, scores: np.ndarray, count: int) -> list[int]:
    """Rows of the ``count`` live samples with the highest score, worst first.

    Args:
        context: says which samples are live.
        scores: ``(N,)`` suspicion by roster row; NaN (unknown) is never chosen.
        count: how many at most.

    Returns:
        Roster rows; equal scores are ordered by ``sample_id``, also at the cut.
    """
    known = context.live_rows[~np.isnan(scores[context.live_rows])]
    if count <= 0 or not len(known):
        return []
    if count < len(known):
        values = scores[known]
        cut = np.partition(values, len(values) - count)[len(values) - count]
        # everything tied with the cut competes for the last places, by id, in the sort below
        known = known[values >= cut]
    return ordered_rows(context, scores, known)[:count]


def ordered_rows(context: Context, scores: np.ndarray, rows: np.ndarray) -> list[int]:
    """``rows`` by falling score, equal scores by ``sample_id``."""
    live = context.live
    values = scores[rows].tolist()
    keyed = sorted(
        (-value, live[row].sample_id, row) for value, row in zip(values, rows.tolist(), strict=True)
    )
    return [row for _, _, row in keyed]


def num_of_fraction(ratio: float, total: int) -> int:
    """How many of ``total`` a fraction is, rounded down; products like 0.29 x 100 are not cut."""
    return int(ratio * total + 1e-6)
