"""The packed recurrence against a plain one that autograd differentiates."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from captioning.models.layers.updown_cell import CellWeights, recurrence

SIZES = (5, 5, 4, 2, 1)
IMAGES, REGIONS, DIM, ATTENTION, HIDDEN, SPOKEN = 3, 4, 6, 5, 7, 3


def plain(gates_x, keys, values, mask, index, sizes, weights) -> Tensor:
    """The equations of the module's docstring, step by step."""

    def lstm(gates: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        i, f, o, g = gates.chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c

    outputs, start = [], 0
    h1 = c1 = gates_x.new_zeros(sizes[0], gates_x.shape[1] // 4)
    h2 = c2 = gates_x.new_zeros(sizes[0], weights.bias.shape[0] // 4)
    for size in sizes:
        h1, h2, c1, c2 = h1[:size], h2[:size], c1[:size], c2[:size]
        gates = gates_x[start : start + size] + torch.cat([h2, h1], 1) @ weights.hidden.t()
        h1, c1 = lstm(gates, c1)
        sums = keys[index[:size]] + (h1 @ weights.query.t()).unsqueeze(1)
        scores = torch.tanh(sums) @ weights.score
        if mask is not None:
            scores = scores.masked_fill(~mask[index[:size]], -torch.inf)
        context = (scores.softmax(1).unsqueeze(1) @ values[index[:size]]).squeeze(1)
        gates = torch.cat([context, h1, h2], 1) @ weights.language.t() + weights.bias
        h2, c2 = lstm(gates, c2)
        outputs.append(h2)
        start += size
    return torch.cat(outputs)


def make(dtype: torch.dtype, spoken: int = HIDDEN) -> tuple[list[Tensor], Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = [
        (sum(SIZES), 4 * HIDDEN), (IMAGES, REGIONS, ATTENTION), (IMAGES, REGIONS, DIM),
        (4 * HIDDEN, spoken + HIDDEN), (ATTENTION, HIDDEN), (ATTENTION,),
        (4 * spoken, DIM + HIDDEN + spoken), (4 * spoken,),
    ]  # fmt: skip
    tensors = [torch.randn(*s, generator=generator, dtype=dtype) * 0.5 for s in shapes]
    mask = torch.ones(IMAGES, REGIONS, dtype=torch.bool)
    mask[0, -1] = mask[1, 1:] = False
    return [t.requires_grad_() for t in tensors], mask, torch.tensor([2, 0, 1, 0, 2])


def call(function, tensors, mask, index) -> Tensor:
    names = ("hidden", "query", "score", "language", "bias")
    weights = CellWeights(**dict(zip(names, tensors[3:], strict=True)))
    return function(*tensors[:3], mask, index, SIZES, weights)


@pytest.mark.parametrize("spoken", [HIDDEN, SPOKEN])
@pytest.mark.parametrize("masked", [True, False])
def test_outputs_and_every_gradient_equal_the_plain_recurrence(masked: bool, spoken: int) -> None:
    tensors, mask, index = make(torch.float64, spoken)
    mask = mask if masked else None
    ours, theirs = call(recurrence, tensors, mask, index), call(plain, tensors, mask, index)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    upstream = torch.linspace(-1, 1, ours.numel(), dtype=torch.float64).view_as(ours)
    gradients = torch.autograd.grad(ours, tensors, upstream)
    for one, other in zip(gradients, torch.autograd.grad(theirs, tensors, upstream), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("spoken", [HIDDEN, SPOKEN])
def test_gradients_agree_with_finite_differences(spoken: int) -> None:
    tensors, mask, index = make(torch.float64, spoken)

    def function(*inputs: torch.Tensor) -> torch.Tensor:
        return call(recurrence, inputs, mask, index)

    # along random directions: each entry by itself takes twenty seconds
    assert torch.autograd.gradcheck(function, tensors, fast_mode=True)


def test_bfloat16_autocast_stays_near_full_precision() -> None:
    tensors, mask, index = make(torch.float32)
    exact = call(recurrence, tensors, mask, index)
    with torch.autocast("cpu", torch.bfloat16):
        rough = call(recurrence, tensors, mask, index)
    assert rough.dtype == torch.float32
    assert 0 < (exact - rough).abs().max() < 0.05


def test_features_that_need_no_gradient_get_none() -> None:
    tensors, mask, index = make(torch.float32)
    tensors[2].requires_grad_(False)
    call(recurrence, tensors, mask, index).sum().backward()
    assert tensors[2].grad is None
    assert tensors[1].grad is not None
