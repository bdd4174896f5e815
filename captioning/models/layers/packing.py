"""Padded captions to packed tokens and back."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """Time-major packed order of a batch: the first token of every caption, then the second, ...

    Attributes:
        order: ``(B,) int64``, captions by falling length.
        lengths: ``(B,) int64`` tokens of each caption, in the batch's own order.
        sizes: captions still running at each step; sums to N.
        captions: ``(N,) int64`` position in ``order`` of each packed token.
        steps: ``(N,) int64`` time step of each packed token.
    """

    order: Tensor
    lengths: Tensor
    sizes: tuple[int, ...]
    captions: Tensor
    steps: Tensor

    @classmethod
    def of(cls, lengths: Tensor) -> Packing:
        """Pack captions of ``lengths (B,)``, each at least 1 (one transfer to the host)."""
        order = torch.argsort(lengths, descending=True, stable=True)
        steps = torch.arange(int(lengths.max()), device=lengths.device)
        running = (lengths[order].unsqueeze(0) > steps.unsqueeze(1)).nonzero()
        sizes = torch.bincount(running[:, 0], minlength=len(steps))
        return cls(
            order=order,
            lengths=lengths,
            sizes=tuple(sizes.tolist()),
            captions=running[:, 1],
            steps=running[:, 0],
        )

    def pack(self, values: Tensor) -> Tensor:
        """``(B, T)`` in ``order`` to ``(N,)``."""
        return values[self.captions, self.steps]

    def pack_rows(self, values: Tensor) -> Tensor:
        """``(B,)`` in ``order``, repeated for each token, ``(N,)``."""
        return values[self.captions]

    def sum_by_caption(self, values: Tensor) -> Tensor:
        """Packed ``(N,)`` to sums ``(B,)`` in the batch's own order."""
        target = self.order[self.captions]
        return values.new_zeros(len(self.order)).index_add_(0, target, values)
