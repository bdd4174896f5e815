from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from curation.detection import precision_at_noise_rate, rank_auc

CASES = st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=20)


@given(CASES)
def test_auc_is_the_share_of_pairs_in_the_right_order(cases):
    scores = np.array([float(score) for score, _ in cases])
    faulty = np.array([bad for _, bad in cases])
    pairs = [
        (high > low) + 0.5 * (high == low) for high in scores[faulty] for low in scores[~faulty]
    ]
    found = rank_auc(scores, faulty)
    assert np.isnan(found) if not pairs else abs(found - np.mean(pairs)) < 1e-12


@given(CASES, st.integers(0, 100))
def test_precision_is_the_expected_one_over_orders_of_equals(cases, seed):
    scores = np.array([float(score) for score, _ in cases])
    faulty = np.array([bad for _, bad in cases])
    found = precision_at_noise_rate(scores, faulty)
    if not faulty.any():
        assert np.isnan(found)
        return
    num, rng = faulty.sum(), np.random.default_rng(seed)
    possible = []
    for _ in range(20):
        order = np.lexsort((rng.random(len(scores)), -scores))
        possible.append(faulty[order[:num]].mean())
    assert min(possible) - 1e-9 <= found <= 1
    exact = np.unique(scores, return_counts=True)[1].max() == 1
    assert not exact or abs(found - possible[0]) < 1e-12


def test_known_values():
    scores, faulty = np.array([0.1, 0.4, 0.35, 0.8]), np.array([False, False, True, True])
    assert rank_auc(scores, faulty) == 0.75
    assert precision_at_noise_rate(scores, faulty) == 0.5
