"""Noise on embeddings against its formula."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import normalize

from captioning.models.layers.gaussian import keyed_noise
from captioning.models.viecap import with_noise


def test_it_is_the_formula() -> None:
    embeddings = torch.randn(5, 7) * 3
    keys = [(4, row) for row in range(5)]
    noisy = with_noise(embeddings, 0.016, keys)
    drawn = keyed_noise(keys, [1] * 5, 7)[:, 0]
    expected = normalize(normalize(embeddings, dim=-1) + drawn * 0.016**0.5, dim=-1)
    torch.testing.assert_close(noisy, expected)


def test_the_noise_has_the_variance_of_each_value() -> None:
    embeddings = normalize(torch.randn(1, 512), dim=-1).expand(400, -1)
    noisy = with_noise(embeddings, 0.016, [(0, row) for row in range(400)])
    # of unit length after noise: its length before was sqrt(1 + 512 * .016)
    cosine = (noisy * embeddings).sum(-1).mean().item()
    assert cosine == pytest.approx(1 / (1 + 512 * 0.016) ** 0.5, rel=0.02)
    torch.testing.assert_close(noisy.norm(dim=-1), torch.ones(400))


def test_no_variance_is_no_noise() -> None:
    embeddings = torch.randn(3, 4)
    assert torch.equal(with_noise(embeddings, 0.0, ()), normalize(embeddings, dim=-1))
