"""The order of candidates, with and without equal values."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from captioning.decoding.candidates import best_tokens


@given(
    seed=st.integers(0, 10**6),
    levels=st.sampled_from([2, 5, 100_000]),
    vocabulary=st.integers(1, 60) | st.sampled_from([2047, 2048, 2100, 4160]),
    count=st.integers(1, 8),
    num_forbidden=st.integers(0, 4),
)
def test_equals_a_full_sort(seed, levels, vocabulary, count, num_forbidden):
    generator = np.random.default_rng(seed)
    values = -generator.integers(levels, size=(5, vocabulary)).astype(np.float32)
    values[generator.random(values.shape) < 0.1] = -np.inf
    forbidden = generator.choice(vocabulary, size=min(num_forbidden, vocabulary), replace=False)
    best_values, tokens = best_tokens(
        torch.tensor(values), count=count, forbidden=torch.tensor(forbidden, dtype=torch.long)
    )
    assert best_values.shape == tokens.shape == (5, count)
    allowed = values.copy()
    allowed[:, forbidden] = -np.inf
    for row in range(5):
        order = sorted(range(vocabulary), key=lambda token: (-allowed[row, token], token))
        best = [token for token in order if allowed[row, token] > -np.inf][:count]
        assert tokens[row, : len(best)].tolist() == best
        assert best_values[row, : len(best)].tolist() == allowed[row, best].tolist()
        assert best_values[row, len(best) :].isneginf().all()


def test_half_precision_ties_take_the_lowest_ids():
    log_probs = torch.zeros(3, 20_000).log_softmax(dim=1)
    _, tokens = best_tokens(log_probs, count=4, forbidden=torch.tensor([1]))
    assert tokens.tolist() == [[0, 2, 3, 4]] * 3


def test_nan_anywhere_is_seen():
    log_probs = torch.zeros(4, 50)
    log_probs[2, 49] = float("nan")
    with pytest.raises(ValueError, match="NaN"):
        best_tokens(log_probs, count=1, forbidden=torch.tensor([], dtype=torch.long))


@pytest.mark.parametrize("vocabulary", [2047, 2048, 2100, 10_000])
def test_large_vocabularies_are_ranked_like_small_ones(vocabulary):
    generator = torch.Generator().manual_seed(vocabulary)
    log_probs = torch.randn(200, vocabulary, generator=generator).log_softmax(dim=1)
    log_probs[::7, -5:] += 20  # the last, incomplete block holds the best
    values, tokens = best_tokens(log_probs, count=6, forbidden=torch.tensor([3]))
    log_probs[:, 3] = float("-inf")
    expected = log_probs.sort(dim=1, descending=True, stable=True)
    assert torch.equal(values, expected.values[:, :6])
    assert torch.equal(tokens, expected.indices[:, :6])
