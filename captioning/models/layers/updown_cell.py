"""UpDown's two-LSTM recurrence, with a hand-written backward pass.

Anderson et al., "Bottom-Up and Top-Down Attention", equations 1-7:

    h1_t = LSTM([h2_{t-1}, mean(v), x_t], h1_{t-1})        attention LSTM
    a_t  = softmax(w . tanh(W_k v_i + W_q h1_t))           attention over regions
    h2_t = LSTM([sum_i a_ti v_i, h1_t], h2_{t-1})          language LSTM

Products that autograd would repeat at every time step are computed once per batch: those with
``x_t`` and ``mean(v)``, the keys ``W_k v``, and every weight gradient (one matrix product over all
tokens instead of one per step). Captions are packed and sorted by length, so that step ``t``
only computes unfinished captions. ``tanh(u)`` is computed as ``2 sigmoid(2u) - 1``, faster on CPUs;
the constant cancels in the softmax.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional


@dataclass(frozen=True, slots=True, kw_only=True)
class CellWeights:
    """Parameters of the recurrence; gates are ordered input, forget, output, candidate.

    H is the size of the attention LSTM, L the size of the language LSTM.

    Attributes:
        hidden: ``(4H, L + H)`` attention LSTM's product with ``[h2, h1]``.
        query: ``(A, H)``; score: ``(A,)``; the attention's ``W_q`` and ``w``.
        language: ``(4L, D + H + L)`` language LSTM's product with ``[context, h1, h2]``.
        bias: ``(4L,)`` of the language LSTM.
    """

    hidden: Tensor
    query: Tensor
    score: Tensor
    language: Tensor
    bias: Tensor


def lstm_gates(gates: Tensor, c_prev: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Compute an LSTM's elementwise operations; ``gates (G, 4H)`` become activations in place.

    Returns:
        ``h``, ``c`` and ``tanh(c)``, each ``(G, H)``.
    """
    hidden = gates.shape[1] // 4
    candidate = gates[:, 3 * hidden :]
    candidate.mul_(2)
    gates.sigmoid_()
    candidate.mul_(2).sub_(1)
    i, f, o = gates[:, :hidden], gates[:, hidden : 2 * hidden], gates[:, 2 * hidden : 3 * hidden]
    c = i * candidate
    if c_prev is not None:
        c.addcmul_(f, c_prev)
    tanh_c = torch.sigmoid(2 * c).mul_(2).sub_(1)
    return o * tanh_c, c, tanh_c


def _lstm_gates_backward(
    gates: Tensor, tanh_c: Tensor, c_prev: Tensor | None, dh: Tensor, dc: Tensor
) -> tuple[Tensor, Tensor]:
    """Return gradients of `lstm_gates`: ``(G, 4H)`` before activation, and of the previous cell."""
    hidden = tanh_c.shape[1]
    i, f, o, g = gates.split(hidden, dim=1)
    dc = dc.addcmul(dh * o, 1 - tanh_c * tanh_c)
    out = torch.empty_like(gates)
    torch.mul(dc, g, out=out[:, :hidden])
    if c_prev is None:
        out[:, hidden : 2 * hidden].zero_()
    else:
        torch.mul(dc, c_prev, out=out[:, hidden : 2 * hidden])
    torch.mul(dh, tanh_c, out=out[:, 2 * hidden : 3 * hidden])
    squashed = gates[:, : 3 * hidden]
    out[:, : 3 * hidden].mul_(squashed - squashed * squashed)
    torch.mul(dc * i, 1 - g * g, out=out[:, 3 * hidden :])
    return out, dc.mul_(f)


@dataclass(slots=True)
class _Tape:
    """Values that the backward pass needs, in packed order (N tokens)."""

    keys: Tensor  # (B, R, A) doubled keys, one copy per caption
    values: Tensor  # (B, R, D)
    hidden_regions: Tensor | None  # (B, R) True where no region exists
    act1: Tensor  # (N, 4H) activations of the attention LSTM
    act2: Tensor  # (N, 4L) of the language LSTM
    cells1: Tensor  # (2, N, H): c1, tanh(c1)
    cells2: Tensor  # (2, N, L): c2, tanh(c2)
    in1: Tensor  # (N, L + H): h2 and h1 of the step before
    in2: Tensor  # (N, D + H + L): context, h1, and h2 of the step before
    alphas: Tensor  # (N, R)

    @property
    def dim(self) -> int:
        return self.values.shape[2]

    @property
    def hidden(self) -> int:
        return self.cells1.shape[2]

    @property
    def language_size(self) -> int:
        return self.cells2.shape[2]

    def queries(self, now: slice, weights: _Cast) -> Tensor:
        return functional.linear(self.in2[now, self.dim : self.dim + self.hidden], weights.query)


class _Steps:
    """Packed slices: ``now(t)``: tokens of step t; ``last(t)``: their rows one step before."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self.sizes = sizes
        self.starts = [0]
        for size in sizes:
            self.starts.append(self.starts[-1] + size)

    def __len__(self) -> int:
        return len(self.sizes)

    def now(self, step: int) -> slice:
        return slice(self.starts[step], self.starts[step + 1])

    def last(self, step: int) -> slice | None:
        if step == 0:
            return None
        return slice(self.starts[step - 1], self.starts[step - 1] + self.sizes[step])


def _rows(tensor: Tensor | None, where: slice | None) -> Tensor | None:
    return None if tensor is None or where is None else tensor[where]


def _forward_step(tape: _Tape, w: _Cast, steps: _Steps, step: int) -> Tensor:
    """Make one time step; return ``h2`` of the unfinished captions."""
    now, last, size = steps.now(step), steps.last(step), steps.sizes[step]
    dim, hidden = tape.dim, tape.hidden
    if step:
        tape.act1[now] += functional.linear(tape.in1[now], w.hidden)
    h1, tape.cells1[0, now], tape.cells1[1, now] = lstm_gates(
        tape.act1[now], _rows(tape.cells1[0], last)
    )
    tape.in2[now, dim : dim + hidden] = h1
    squash = squashed(tape.keys[:size], tape.queries(now, w))
    alpha = attend(squash, w.score, _rows(tape.hidden_regions, slice(size)))
    tape.alphas[now] = alpha
    context = torch.bmm(alpha.to(tape.values.dtype).unsqueeze(1), tape.values[:size])
    tape.in2[now, :dim] = context.squeeze(1)
    tape.act2[now] = functional.linear(tape.in2[now], w.language)
    tape.act2[now] += w.bias
    h2, tape.cells2[0, now], tape.cells2[1, now] = lstm_gates(
        tape.act2[now], _rows(tape.cells2[0], last)
    )
    if step + 1 < len(steps):
        following, next_size = steps.now(step + 1), steps.sizes[step + 1]
        tape.in1[following, : tape.language_size] = h2[:next_size]
        tape.in1[following, tape.language_size :] = h1[:next_size]
        tape.in2[following, dim + hidden :] = h2[:next_size]
    return h2


class _Gradients:
    """Gradients accumulated in the backward pass, and packed ones for the weight gradients."""

    def __init__(self, tape: _Tape, weights: _Cast) -> None:
        num, batch = tape.act1.shape[0], tape.keys.shape[0]
        dtype = tape.in1.dtype
        self.act1 = torch.empty_like(tape.act1)
        self.act2 = torch.empty_like(tape.act2, dtype=dtype)
        self.query = tape.in1.new_empty((num, weights.query.shape[0]))
        self.context = tape.in1.new_empty((num, tape.dim))
        self.keys = torch.zeros_like(tape.keys)
        self.score = torch.zeros_like(weights.score)
        self.h1, self.c1 = tape.cells1.new_zeros((2, batch, tape.hidden)).unbind(0)
        self.h2, self.c2 = tape.cells2.new_zeros((2, batch, tape.language_size)).unbind(0)


def _backward_step(tape: _Tape, w: _Cast, d: _Gradients, steps: _Steps, step: int) -> None:
    now, last, size = steps.now(step), steps.last(step), steps.sizes[step]
    dim, hidden, dtype = tape.dim, tape.hidden, tape.in1.dtype
    gates, d.c2[:size] = _lstm_gates_backward(
        tape.act2[now], tape.cells2[1, now], _rows(tape.cells2[0], last), d.h2[:size], d.c2[:size]
    )
    d.act2[now] = gates
    back = d.act2[now] @ w.language
    d.context[now] = back[:, :dim]
    d.h1[:size] += back[:, dim : dim + hidden]
    d.h2[:size] = back[:, dim + hidden :]
    d.h1[:size] += _attend_backward(tape, w, d, now, size) @ w.query
    gates, d.c1[:size] = _lstm_gates_backward(
        tape.act1[now], tape.cells1[1, now], _rows(tape.cells1[0], last), d.h1[:size], d.c1[:size]
    )
    d.act1[now] = gates
    if step:
        back = gates.to(dtype) @ w.hidden
        d.h2[:size] += back[:, : tape.language_size]
        d.h1[:size] = back[:, tape.language_size :]


def _attend_backward(tape: _Tape, w: _Cast, d: _Gradients, now: slice, size: int) -> Tensor:
    """Return the gradient ``(size, A)`` of the queries; add to those of keys and score."""
    alpha = tape.alphas[now]
    # The squashed sums are recomputed, because reading them from memory takes as long.
    squash = squashed(tape.keys[:size], tape.queries(now, w))
    dalpha = torch.bmm(tape.values[:size], d.context[now].unsqueeze(2)).squeeze(2).to(alpha.dtype)
    dscore = alpha * (dalpha - (alpha * dalpha).sum(1, keepdim=True))
    d.score += squash.flatten(0, 1).t() @ dscore.flatten()
    slope = squash.addcmul_(squash, squash, value=-1)
    d.keys[:size].addcmul_(slope, dscore.unsqueeze(2))
    d.query[now] = torch.bmm(dscore.unsqueeze(1), slope).squeeze(1) * (4 * w.score)
    return d.query[now]


class _Recurrence(torch.autograd.Function):
    """Autograd function of the packed UpDown recurrence; see `recurrence` for shapes."""

    @staticmethod
    def forward(
        ctx: Any,
        gates_x: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Tensor | None,
        index: Tensor,
        sizes: tuple[int, ...],
        dtype: torch.dtype,
        *weights: Tensor,
    ) -> Tensor:
        w, steps = _Cast(weights, dtype), _Steps(sizes)
        num, hidden, dim = gates_x.shape[0], gates_x.shape[1] // 4, values.shape[2]
        language_size = w.bias.shape[0] // 4
        wide = torch.promote_types(dtype, torch.float32)
        options = {"device": gates_x.device, "dtype": wide}
        tape = _Tape(
            keys=keys.to(wide).index_select(0, index).mul_(2),
            values=values.to(dtype).index_select(0, index),
            hidden_regions=None if mask is None else ~mask.index_select(0, index),
            act1=gates_x.to(wide, copy=True),
            act2=torch.empty((num, 4 * language_size), **options),
            cells1=torch.empty((2, num, hidden), **options),
            cells2=torch.empty((2, num, language_size), **options),
            in1=torch.zeros((num, language_size + hidden), device=gates_x.device, dtype=dtype),
            in2=torch.zeros(
                (num, dim + hidden + language_size), device=gates_x.device, dtype=dtype
            ),
            alphas=torch.empty((num, keys.shape[1]), **options),
        )
        outputs = torch.empty((num, language_size), **options)
        for step in range(len(steps)):
            outputs[steps.now(step)] = _forward_step(tape, w, steps, step)
        tensors = [getattr(tape, slot) for slot in _Tape.__slots__]
        ctx.save_for_backward(index, *weights, *tensors)
        ctx.sizes, ctx.dtype, ctx.num_images = sizes, dtype, keys.shape[0]
        ctx.dtypes = (gates_x.dtype, keys.dtype, values.dtype)
        return outputs

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *grads: Any
    ) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        index, *saved = ctx.saved_tensors
        tape, w, steps = _Tape(*saved[5:]), _Cast(saved[:5], ctx.dtype), _Steps(ctx.sizes)
        d = _Gradients(tape, w)
        for step in range(len(steps) - 1, -1, -1):
            d.h2[: steps.sizes[step]] += grad[steps.now(step)]
            _backward_step(tape, w, d, steps, step)
        dkeys = d.keys.mul_(4 * w.score)
        dkeys = dkeys.new_zeros((ctx.num_images, *dkeys.shape[1:])).index_add_(0, index, dkeys)
        dvalues = None
        if ctx.needs_input_grad[2]:
            dvalues = _values_gradient(tape.alphas, d.context, index, ctx.sizes, ctx.num_images)
            dvalues = dvalues.to(ctx.dtypes[2])
        wide = tape.cells1.dtype
        h1 = tape.in2[:, tape.dim : tape.dim + tape.hidden]
        return (
            d.act1.to(ctx.dtypes[0]), dkeys.to(ctx.dtypes[1]), dvalues, None, None, None, None,
            (d.act1.to(ctx.dtype).t() @ tape.in1).to(wide),
            (d.query.t() @ h1).to(wide),
            2 * d.score,
            (d.act2.t() @ tape.in2).to(wide),
            d.act2.sum(0, dtype=wide),
        )  # fmt: skip


class _Cast:
    """Weights in the data type of the matrix products; score and bias keep full precision."""

    def __init__(self, weights: tuple[Tensor, ...] | list[Tensor], dtype: torch.dtype) -> None:
        hidden, query, score, language, bias = weights
        self.hidden, self.query, self.language = (w.to(dtype) for w in (hidden, query, language))
        self.score, self.bias = score, bias


def squashed(keys2: Tensor, query: Tensor) -> Tensor:
    """Return ``sigmoid(2 (k + q))``, from doubled keys ``(..., R, A)`` and queries ``(..., A)``."""
    return (keys2 + query.to(keys2.dtype).mul(2).unsqueeze(-2)).sigmoid_()


def attend(squash: Tensor, score: Tensor, hidden_regions: Tensor | None) -> Tensor:
    """Return attention weights ``(..., R)``, zero where ``hidden_regions`` is True."""
    scores = squash @ (2 * score)
    if hidden_regions is not None:
        scores = scores.masked_fill_(hidden_regions, float("-inf"))
    return scores.softmax(-1)


def _values_gradient(
    alphas: Tensor, dcontext: Tensor, index: Tensor, sizes: tuple[int, ...], num_images: int
) -> Tensor:
    """Return the sum over time of ``alpha_t dcontext_t^T`` for each image, ``(I, R, D)``."""
    batch, steps = sizes[0], len(sizes)
    weights = dcontext.new_zeros((batch, steps, alphas.shape[1]))
    context = dcontext.new_zeros((batch, steps, dcontext.shape[1]))
    start = 0
    for step, size in enumerate(sizes):
        weights[:size, step] = alphas[start : start + size].to(dcontext.dtype)
        context[:size, step] = dcontext[start : start + size]
        start += size
    wide = torch.promote_types(context.dtype, torch.float32)
    gradients = torch.bmm(weights.transpose(1, 2), context).to(wide)
    return gradients.new_zeros((num_images, *gradients.shape[1:])).index_add_(0, index, gradients)


def recurrence(
    gates_x: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None,
    index: Tensor,
    sizes: tuple[int, ...],
    weights: CellWeights,
) -> Tensor:
    """Run UpDown's recurrence over a packed batch.

    Matrix products use the autocast data type if autocast is on, otherwise float32;
    cell states and the softmax are always float32.

    Args:
        gates_x: ``(N, 4H)`` attention LSTM's products with words and mean feature plus bias; N
            tokens in time-major packed order: all first tokens, then all second tokens, ...
        keys: ``(I, R, A)`` projected regions ``W_k v``.
        values: ``(I, R, D)`` regions.
        mask: ``(I, R) bool``, True where a region exists, or None.
        index: ``(B,) int64`` image of each caption, captions sorted by falling length.
        sizes: number of unfinished captions at each step; sums to N.
        weights: the parameters.

    Returns:
        ``(N, L) float32`` outputs of the language LSTM in the same packed order.
    """
    device = gates_x.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else torch.float32
    if gates_x.dtype == torch.float64:
        dtype = torch.float64
    w = weights
    with torch.autocast(device, enabled=False):
        return _Recurrence.apply(
            gates_x, keys, values, mask, index, sizes, dtype,
            w.hidden, w.query, w.score, w.language, w.bias,
        )  # fmt: skip
