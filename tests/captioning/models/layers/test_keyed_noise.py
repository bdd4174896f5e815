"""Noise depends on its key alone."""

from __future__ import annotations

import torch

from captioning.models.layers.gaussian import key_of, keyed_noise


def test_neither_order_nor_length_nor_company_changes_it() -> None:
    one = keyed_noise([(0, 7), (0, 8)], [5, 3], 4)
    other = keyed_noise([(0, 8), (0, 9), (0, 7)], [3, 6, 2], 4)
    assert one.shape == (2, 5, 4)
    assert torch.equal(one[1, :3], other[0, :3])
    assert torch.equal(one[0, :2], other[2, :2])
    assert not one[1, 3:].any()
    assert not torch.equal(one[0, :2], one[1, :2])


def test_it_is_standard_normal() -> None:
    noise = keyed_noise([(0, row) for row in range(50)], [40] * 50, 10)
    assert abs(noise.mean()) < 0.03
    assert abs(noise.std() - 1) < 0.03


def test_names_are_numbers_of_their_own() -> None:
    assert key_of("12") != key_of("21")
    assert key_of(12) == 12
