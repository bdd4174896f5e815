"""Rank the most probable tokens of each hypothesis in an order that is equal on all machines."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from captioning.decoding.state import DEAD

BLOCK = 64
LARGE_VOCABULARY = 2048
# If more than one in this many tokens is needed, all tokens are sorted.
FULL_SORT = 8


def best_tokens(log_probs: Tensor, *, count: int, forbidden: Tensor) -> tuple[Tensor, Tensor]:
    """Return each row's ``count`` best allowed tokens by falling log-probability, then rising id.

    ``torch.topk`` is fast but does not define which of several equal values it selects, and equal
    values are common in half precision. The function selects one value more than needed: only
    rows whose last two values are equal may miss a lower id, and only they are sorted in full.

    Args:
        log_probs: ``(G, V) float32`` in nats; not modified.
        count: tokens per row; above V, rows are padded with ``-inf``.
        forbidden: ``(F,) int64`` distinct ids that get ``-inf``.

    Returns:
        ``(G, count) float32`` log-probabilities and ``(G, count) int64`` ids.

    Raises:
        ValueError: a row has NaN.
    """
    vocabulary = log_probs.shape[1]
    width = min(count + forbidden.numel(), vocabulary)
    if width * FULL_SORT > vocabulary:
        check_nan(bool(log_probs.amax(1).isnan().any()))
        banned = torch.isin(torch.arange(vocabulary, device=log_probs.device), forbidden)
        allowed = log_probs.masked_fill(banned, DEAD)
        values, tokens = allowed.sort(dim=1, descending=True, stable=True)
        return _filled(values[:, :count], tokens[:, :count], count)
    values, tokens = _top(log_probs, min(width + 1, vocabulary))
    tied = (values[:, -1] == values[:, width - 1]) & (values[:, -1] > DEAD)
    any_nan, any_tied = torch.stack([values[:, 0].isnan().any(), tied.any()]).tolist()
    check_nan(any_nan)
    if any_tied:
        full = log_probs[tied].sort(dim=1, descending=True, stable=True)
        values[tied] = full.values[:, : values.shape[1]]
        tokens[tied] = full.indices[:, : values.shape[1]]
    return _ordered(values[:, :width], tokens[:, :width], count, forbidden)


def check_nan(has_nan: bool) -> None:
    """Raise an error if log-probabilities contain NaN.

    Raises:
        ValueError: ``has_nan`` is true.
    """
    if has_nan:
        raise ValueError(
            "log-probabilities must be numbers: the decoder returned NaN; "
            "were the weights damaged by a loss that was not finite?"
        )


def _top(log_probs: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Compute ``topk`` along rows; on CPUs with large vocabularies about 2.5 times as fast.

    The ``count`` blocks with the highest maxima contain ``count`` highest values, and finding
    maxima is much faster than ranking.
    """
    rows, vocabulary = log_probs.shape
    num_blocks = vocabulary // BLOCK
    if vocabulary < LARGE_VOCABULARY or count > num_blocks // 4 or log_probs.device.type != "cpu":
        return log_probs.topk(count, dim=1)
    blocks = log_probs[:, : num_blocks * BLOCK].reshape(rows, num_blocks, BLOCK)
    best = blocks.amax(dim=2).topk(count, dim=1).indices
    inside = blocks.gather(1, best[:, :, None].expand(rows, count, BLOCK))
    rest = log_probs[:, num_blocks * BLOCK :]
    values, places = torch.cat([inside.view(rows, count * BLOCK), rest], dim=1).topk(count, dim=1)
    # Positions after the blocks belong to the last, incomplete block.
    block = best.gather(1, (places // BLOCK).clamp(max=count - 1))
    block = torch.where(places < count * BLOCK, block, num_blocks + places // BLOCK - count)
    return values, block * BLOCK + places % BLOCK


def _ordered(
    values: Tensor, tokens: Tensor, count: int, forbidden: Tensor
) -> tuple[Tensor, Tensor]:
    if forbidden.numel():
        values = values.masked_fill(torch.isin(tokens, forbidden), DEAD)
    tokens, by_id = tokens.sort(dim=1)
    values, by_value = values.gather(1, by_id).sort(dim=1, descending=True, stable=True)
    return _filled(values[:, :count], tokens.gather(1, by_value)[:, :count], count)


def _filled(values: Tensor, tokens: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Pad values and tokens to ``(G, count)`` columns."""
    missing = count - values.shape[1]
    if missing > 0:
        values = torch.nn.functional.pad(values, (0, missing), value=DEAD)
        tokens = torch.nn.functional.pad(tokens, (0, missing))
    return values, tokens


def banned_ids(special: Sequence[int], eos_id: int, forbidden_ids: Sequence[int]) -> list[int]:
    """Return ids that no hypothesis may hold: some special tokens and ``forbidden_ids``.

    Raises:
        ValueError: the end token is forbidden.
    """
    if eos_id in forbidden_ids:
        raise ValueError(f"forbidden_ids must not hold eos_id {eos_id}: no hypothesis could end")
    return sorted({*special, *forbidden_ids} - {eos_id})
