"""How well scores find planted faults: area under the ROC curve and precision at k."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Scores = Sequence[float] | NDArray[np.floating]
Truth = Sequence[bool] | NDArray[np.bool_]


def area_under_roc(scores: Scores, is_fault: Truth) -> float:
    """Probability that a fault scores higher than a sound sample; a tie counts half.

    Computed from midranks in O(n log n) (Mann and Whitney's U).

    Args:
        scores: ``(N,)`` finite; higher means more suspect.
        is_fault: ``(N,) bool``, the planted truth.

    Returns:
        The area in [0, 1]; NaN when all samples are faults or none is.

    Raises:
        ValueError: other shapes, or scores that are not finite.
    """
    values, faults = _checked(scores, is_fault)
    num_faults = int(faults.sum())
    num_sound = len(faults) - num_faults
    if num_faults == 0 or num_sound == 0:
        return float("nan")
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    midranks = np.cumsum(counts) - (counts - 1) / 2  # ranks from 1, ties share their mean
    rank_sum = midranks[inverse][faults].sum()
    return float((rank_sum - num_faults * (num_faults + 1) / 2) / (num_faults * num_sound))


def precision_at(scores: Scores, is_fault: Truth, k: int) -> float:
    """Share of faults among the ``k`` highest scores.

    Where a tie crosses the border, its members count by the share that fits: the expectation over
    all orders of the tied, so that no order of the input is favoured.

    Args:
        scores: ``(N,)`` finite; higher means more suspect.
        is_fault: ``(N,) bool``, the planted truth.
        k: number of samples selected, in [1, N].

    Returns:
        Precision in [0, 1].

    Raises:
        ValueError: other shapes, scores that are not finite, or ``k`` outside [1, N].
    """
    values, faults = _checked(scores, is_fault)
    if not 1 <= k <= len(values):
        raise ValueError(f"k must be in [1, {len(values)}]: got {k}")
    border = np.partition(values, len(values) - k)[len(values) - k]
    above, tied = values > border, values == border
    taken = (k - above.sum()) / tied.sum()
    return float((faults[above].sum() + taken * faults[tied].sum()) / k)


def precision_at_noise_rate(scores: Scores, is_fault: Truth) -> float:
    """`precision_at` with as many samples as there are faults; NaN without faults."""
    num_faults = int(np.asarray(is_fault).sum())
    return precision_at(scores, is_fault, num_faults) if num_faults else float("nan")


def _checked(scores: Scores, is_fault: Truth) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    values = np.asarray(scores, dtype=np.float64)
    faults = np.asarray(is_fault)
    if values.ndim != 1 or values.shape != faults.shape or not len(values):
        raise ValueError(
            f"scores and is_fault must be (N,) with N > 0: got {values.shape} and {faults.shape}"
        )
    if faults.dtype != np.bool_:
        raise ValueError(f"is_fault must be bool: got {faults.dtype}")
    if not np.isfinite(values).all():
        raise ValueError(
            f"scores must be finite: {int((~np.isfinite(values)).sum())} are not; "
            "leave out samples that were never seen"
        )
    return values, faults
