"""Losses of captions from logits."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from curation.adapters import losses
from curation.adapters.losses import per_sample_losses

LABELS = torch.tensor([[1, 2, 3, -100], [4, 0, -100, -100], [2, 2, 2, 2]])


@pytest.fixture
def logits() -> torch.Tensor:
    return torch.randn(3, 4, 6, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("shift", [True, False])
def test_a_caption_counts_with_the_mean_over_its_learnt_tokens(logits, shift):
    actual = per_sample_losses(logits, LABELS, shift=shift)
    for row in range(3):
        scores, labels = logits[row], LABELS[row]
        if shift:
            scores, labels = scores[:-1], labels[1:]
        expected = functional.cross_entropy(scores, labels, ignore_index=-100)
        assert actual[row] == pytest.approx(float(expected), rel=1e-6)


def test_logits_of_image_tokens_are_left_out(logits):
    longer = torch.cat([torch.randn(3, 5, 6), logits], 1)
    assert torch.equal(per_sample_losses(longer, LABELS), per_sample_losses(logits, LABELS))


def test_large_batches_in_parts_give_the_same(logits, monkeypatch):
    expected = per_sample_losses(logits, LABELS)
    monkeypatch.setattr(losses, "_MAX_ELEMENTS", 1)
    assert torch.equal(per_sample_losses(logits, LABELS), expected)


def test_gradients_are_those_of_the_mean(logits):
    logits.requires_grad_()
    per_sample_losses(logits, LABELS).mean().backward()
    assert logits.grad is not None
    assert logits.grad[:, -1].abs().sum() == 0
    assert logits.grad[:, 0].abs().sum() > 0


def test_half_precision_is_summed_in_full(logits):
    half = per_sample_losses(logits.bfloat16(), LABELS)
    assert half.dtype == torch.float32
    assert torch.equal(half, per_sample_losses(logits.bfloat16().float(), LABELS))


def test_a_caption_without_a_label_is_unknown(logits):
    labels = LABELS.clone()
    labels[1] = -100
    assert per_sample_losses(logits, labels).isnan().tolist() == [False, True, False]


@pytest.mark.parametrize("shape", [(3, 3, 6), (2, 4, 6), (3, 4)])
def test_shapes_that_do_not_fit_are_refused(shape):
    with pytest.raises(ValueError, match=r"logits must be \(B, S, V\) and labels \(B, T\)"):
        per_sample_losses(torch.zeros(shape), LABELS)
