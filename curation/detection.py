"""How well suspicion finds faults whose truth is known, because they were planted."""

from __future__ import annotations

import numpy as np


def rank_auc(scores: np.ndarray, faulty: np.ndarray) -> float:
    """Chance that a faulty sample scores higher than a sound one; equal scores count half.

    Args:
        scores: ``(L,)`` suspicion, no NaN.
        faulty: ``(L,) bool`` truth.

    Returns:
        A value in [0, 1], 0.5 for guessing; NaN unless both kinds are present.
    """
    num_faulty = int(faulty.sum())
    num_sound = len(faulty) - num_faulty
    if not num_faulty or not num_sound:
        return float("nan")
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    # ties share the mean of the ranks that they take up (ranks from 1)
    mean_rank = np.cumsum(counts) - (counts - 1) / 2
    rank_sum = mean_rank[inverse][faulty].sum()
    return float((rank_sum - num_faulty * (num_faulty + 1) / 2) / (num_faulty * num_sound))


def precision_at_noise_rate(scores: np.ndarray, faulty: np.ndarray) -> float:
    """Share of faulty samples among as many of the highest scores as there are faulty samples.

    Samples tied at the cut count with their expected share, so the order of equals plays no part.
    NaN when nothing is faulty.
    """
    num_faulty = int(faulty.sum())
    if not num_faulty:
        return float("nan")
    cut = np.partition(scores, len(scores) - num_faulty)[len(scores) - num_faulty]
    above, tied = scores > cut, scores == cut
    open_places = num_faulty - int(above.sum())
    hits = faulty[above].sum() + open_places * faulty[tied].mean()
    return float(hits / num_faulty)
