"""Evaluate how well scores detect injected faults: area under the ROC curve and precision at k.

Ties are handled exactly: a tied pair counts half in the area (midranks). If a tie crosses the
border of the k highest scores, its members count in proportion. Both equal the mean over all
orders of tied samples, so results do not depend on the order of samples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Scores = Sequence[float] | NDArray[np.floating]
Truth = Sequence[bool] | NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class KindDetection:
    """Detection of faults of one kind; NaN without such faults.

    Attributes:
        num_faults: number of scored samples with this kind of fault.
        auc: probability that such a fault scores higher than a clean sample, in [0, 1]; other
            kinds of faults are ignored.
        precision_at_noise_rate: among clean samples and this kind of fault, the share of faults
            in the ``num_faults`` highest scores, in [0, 1].
        recall_at_noise_rate: share of these faults among the highest scores of all samples, with
            as many highest scores as there are faults of all kinds, in [0, 1].
    """

    num_faults: int
    auc: float
    precision_at_noise_rate: float
    recall_at_noise_rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Detection:
    """Detection of faults, overall and by kind.

    Attributes:
        num_samples: number of samples with a score.
        num_unseen: number of samples without a score (NaN), which are ignored.
        num_faults: number of scored samples with a fault.
        auc: see `area_under_roc`.
        precision_at_noise_rate: see `precision_at_noise_rate`.
        by_kind: results of each kind of fault, in alphabetical order.
    """

    num_samples: int
    num_unseen: int
    num_faults: int
    auc: float
    precision_at_noise_rate: float
    by_kind: dict[str, KindDetection]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; None where undefined."""
        return _without_nan(asdict(self))


def area_under_roc(scores: Scores, is_fault: Truth) -> float:
    """Return the probability that a fault scores higher than a clean sample; ties count half.

    Computed from midranks in O(n log n) (Mann and Whitney's U).

    Args:
        scores: ``(N,)`` finite; a higher score means more suspect.
        is_fault: ``(N,) bool``, whether a fault was injected.

    Returns:
        The area in [0, 1]; NaN if all samples or no samples are faults.

    Raises:
        ValueError: wrong shapes, or scores that are not finite.
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


def average_precision(scores: Scores, is_fault: Truth) -> float:
    """Return average precision: over faults, the mean precision among scores at least as high.

    Tied samples form one step of the ranking, so input order does not matter. Scores without
    information give the share of faults.

    Args:
        scores: ``(N,)`` finite; a higher score means more suspect.
        is_fault: ``(N,) bool``, whether a fault was injected.

    Returns:
        Average precision in [0, 1]; NaN without faults.

    Raises:
        ValueError: wrong shapes, or scores that are not finite.
    """
    values, faults = _checked(scores, is_fault)
    if not faults.any():
        return float("nan")
    _, places, counts = np.unique(-values, return_inverse=True, return_counts=True)
    hits = np.bincount(places, weights=faults, minlength=len(counts))
    return float(hits @ (hits.cumsum() / counts.cumsum()) / hits.sum())


def precision_at(scores: Scores, is_fault: Truth, k: int) -> float:
    """Return the share of faults among the ``k`` highest scores.

    If a tie crosses the border, its members count in proportion: the expectation over
    all orders of tied samples, so input order does not matter.

    Args:
        scores: ``(N,)`` finite; a higher score means more suspect.
        is_fault: ``(N,) bool``, whether a fault was injected.
        k: number of highest scores, in [1, N].

    Returns:
        Precision in [0, 1].

    Raises:
        ValueError: wrong shapes, scores that are not finite, or ``k`` outside [1, N].
    """
    values, faults = _checked(scores, is_fault)
    if not 1 <= k <= len(values):
        raise ValueError(f"k must be in [1, {len(values)}]: got {k}")
    return _hits(values, faults, k) / k


def precision_at_noise_rate(scores: Scores, is_fault: Truth) -> float:
    """Return `precision_at` k with k the number of faults; NaN without faults."""
    num_faults = int(np.asarray(is_fault).sum())
    return precision_at(scores, is_fault, num_faults) if num_faults else float("nan")


def detect_kinds(scores: Scores, kinds: Mapping[int, str]) -> Detection:
    """Evaluate how well scores detect injected faults of several kinds.

    Args:
        scores: ``(N,)``, higher means more suspect; NaN for samples that were never scored.
        kinds: kind of fault by row in [0, N); other rows are clean.

    Returns:
        Areas and precisions; NaN without faults or without clean samples.

    Raises:
        ValueError: ``scores`` is not ``(N,)``, all NaN, or infinite somewhere; or
            ``kinds`` names a row outside the scores.
    """
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 1 or np.isnan(values).all():
        raise ValueError(
            f"scores must be (N,) with at least one that is not NaN: got {values.shape}, "
            f"{int(np.isnan(values).sum())} of them NaN"
        )
    labels = _labels(kinds, len(values))
    seen = ~np.isnan(values)
    values, labels = values[seen], labels[seen]
    faults = labels != ""
    return Detection(
        num_samples=int(seen.sum()),
        num_unseen=int((~seen).sum()),
        num_faults=int(faults.sum()),
        auc=area_under_roc(values, faults),
        precision_at_noise_rate=precision_at_noise_rate(values, faults),
        by_kind={kind: _kind(values, labels, kind) for kind in sorted(set(kinds.values()))},
    )


def _labels(kinds: Mapping[int, str], num_rows: int) -> NDArray[np.object_]:
    """Return the kind of each row ``(N,)``, ``""`` for clean rows."""
    labels = np.full(num_rows, "", dtype=object)
    for row, kind in kinds.items():
        if isinstance(row, bool) or not isinstance(row, int | np.integer):
            raise ValueError(f"kinds must have row numbers as keys: got {row!r}")
        if not 0 <= row < num_rows:
            raise ValueError(f"kinds must belong to rows in [0, {num_rows}): got row {row}")
        if not isinstance(kind, str) or not kind:
            raise ValueError(f"kind of row {row} must be a name: got {kind!r}")
        labels[row] = kind
    return labels


def _kind(values: NDArray[np.float64], labels: NDArray[np.object_], kind: str) -> KindDetection:
    of_kind, faults = labels == kind, labels != ""
    num_faults = int(of_kind.sum())
    if num_faults == 0:
        nan = float("nan")
        return KindDetection(
            num_faults=0, auc=nan, precision_at_noise_rate=nan, recall_at_noise_rate=nan
        )
    of_kind_or_sound = of_kind | ~faults
    return KindDetection(
        num_faults=num_faults,
        auc=area_under_roc(values[of_kind_or_sound], of_kind[of_kind_or_sound]),
        precision_at_noise_rate=precision_at_noise_rate(
            values[of_kind_or_sound], of_kind[of_kind_or_sound]
        ),
        recall_at_noise_rate=_hits(values, of_kind, int(faults.sum())) / num_faults,
    )


def _hits(values: NDArray[np.float64], is_hit: NDArray[np.bool_], k: int) -> float:
    """Count the ``is_hit`` among the ``k`` highest values, averaged over orders of ties."""
    border = np.partition(values, len(values) - k)[len(values) - k]
    above, tied = values > border, values == border
    share = (k - above.sum()) / tied.sum()
    return float(is_hit[above].sum() + share * is_hit[tied].sum())


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    return None if isinstance(value, float) and math.isnan(value) else value


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
            "leave out samples that were never scored"
        )
    return values, faults
