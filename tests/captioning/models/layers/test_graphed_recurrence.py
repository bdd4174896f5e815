"""Padding that lets a GPU run every batch by one graph changes no result."""

from __future__ import annotations

import copy

import pytest
import torch

from captioning.models.layers.cuda_graphs import Graphed, Room
from captioning.models.layers.graphed_recurrence import GraphedRecurrence
from captioning.models.layers.updown_cell import CellWeights, recurrence
from tests.captioning.models.layers.test_updown_cell import HIDDEN, call, make


def grown() -> GraphedRecurrence:
    """Has seen a batch of more captions, steps, images and regions than `make`'s."""
    graphed = GraphedRecurrence()
    tensors, _, _ = make(torch.float64)
    gates = torch.randn(9 + 8 * 6, 4 * HIDDEN, dtype=torch.float64)
    keys = torch.randn(5, 7, tensors[1].shape[2], dtype=torch.float64)
    values = torch.randn(5, 7, tensors[2].shape[2], dtype=torch.float64)
    names = ("hidden", "query", "score", "language", "bias")
    weights = CellWeights(**dict(zip(names, tensors[3:], strict=True)))
    sizes = (9, *[8] * 6)
    graphed.padded(gates, keys, values, None, torch.arange(9) % 5, sizes, weights)
    return graphed


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("graphed", [GraphedRecurrence, grown])
def test_outputs_and_every_gradient_are_those_without_padding(graphed, masked: bool) -> None:
    tensors, mask, index = make(torch.float64)
    mask = mask if masked else None
    ours = call(graphed().padded, tensors, mask, index)
    theirs = call(recurrence, tensors, mask, index)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    upstream = torch.linspace(-1, 1, ours.numel(), dtype=torch.float64).view_as(ours)
    gradients = torch.autograd.grad(ours, tensors, upstream)
    for one, other in zip(gradients, torch.autograd.grad(theirs, tensors, upstream), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def test_without_a_gpu_nothing_is_padded() -> None:
    tensors, mask, index = make(torch.float32)
    ours = call(grown(), tensors, mask, index)
    assert torch.equal(ours, call(recurrence, tensors, mask, index))


def test_room_grows_alone() -> None:
    room = Room()
    assert room.for_sizes(5, 3) == (8, 4)
    assert room.for_sizes(2, 9) == (8, 12)
    assert room.for_sizes(8, 12) == (8, 12)


def test_copies_record_for_themselves() -> None:
    graphed = Graphed(torch.sin)
    copied = copy.deepcopy(graphed)
    assert copied is not graphed
    assert torch.equal(copied(torch.ones(2)), torch.ones(2).sin())
