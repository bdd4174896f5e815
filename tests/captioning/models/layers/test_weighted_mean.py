"""Weighted means of losses."""

from __future__ import annotations

import torch

from captioning.models.layers.weighted_mean import weighted_mean


def test_weights_share_out_what_others_lose():
    losses = torch.tensor([1.0, 2, 6])
    assert weighted_mean(losses, None) == 3
    assert weighted_mean(losses, torch.ones(3)) == 3
    assert weighted_mean(losses, torch.tensor([1.0, 0.5, 0])) == 2 / 1.5
    assert weighted_mean(losses, torch.zeros(3)) == 0
