"""Rank samples by score and return the worst, with reproducible order of ties."""

from __future__ import annotations

import numpy as np

from curation.base import Context


def worst_rows(context: Context, scores: np.ndarray, count: int) -> list[int]:
    """Rows of the ``count`` live samples with the highest scores, worst first.

    Args:
        context: names the live samples.
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
        # all rows tied with the cut compete for the last places by id in the sort below
        known = known[values >= cut]
    return ordered_rows(context, scores, known)[:count]


def ordered_rows(context: Context, scores: np.ndarray, rows: np.ndarray) -> list[int]:
    """Sort ``rows`` by decreasing score, and ties by ``sample_id``."""
    live, values = context.live, scores[rows]
    order = np.argsort(-values, kind="stable")
    rows, values = rows[order], values[order]
    ordered = rows.tolist()
    # ties are few, and only they need their ids
    tied = np.flatnonzero(np.diff(values) == 0)
    for group in np.split(tied, np.flatnonzero(np.diff(tied) > 1) + 1) if len(tied) else ():
        span = slice(group[0], group[-1] + 2)
        ordered[span] = sorted(ordered[span], key=lambda row: live[row].sample_id)
    return ordered


def num_of_fraction(ratio: float, total: int) -> int:
    """Number of items in a fraction of ``total``, rounded down without floating-point errors."""
    return int(ratio * total + 1e-6)
