"""Padded captions to packed tokens and back."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from captioning.models.layers.on_device import on_device


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """Time-major packed order of a batch: the first token of every caption, then the second, ...

    Attributes:
        order: ``(B,) int64``, captions by falling length.
        lengths: ``(B,) int64`` tokens of each caption, in the batch's own order.
        host_lengths: the same on the host.
        sizes: captions still running at each step; sums to N.
        captions: ``(N,) int64`` position in ``order`` of each packed token.
        steps: ``(N,) int64`` time step of each packed token.
    """

    order: Tensor
    lengths: Tensor
    host_lengths: Tensor
    sizes: tuple[int, ...]
    captions: Tensor
    steps: Tensor

    @classmethod
    def of(cls, lengths: Tensor, device: torch.device) -> Packing:
        """Pack captions of ``lengths (B,)``, each at least 1.

        Args:
            lengths: on the host, where the order is decided.
            device: of the values to pack.
        """
        order = torch.argsort(lengths, descending=True, stable=True)
        steps = torch.arange(int(lengths.max()))
        running = (lengths[order].unsqueeze(0) > steps.unsqueeze(1)).nonzero()
        sizes = torch.bincount(running[:, 0], minlength=len(steps))
        return cls(
            order=on_device(order, device),
            lengths=on_device(lengths, device),
            host_lengths=lengths,
            sizes=tuple(sizes.tolist()),
            captions=on_device(running[:, 1].contiguous(), device),
            steps=on_device(running[:, 0].contiguous(), device),
        )

    @property
    def sequences(self) -> Tensor:
        """``(N,) int64`` position in the batch of each packed token's caption."""
        return self.order[self.captions]

    def pack(self, values: Tensor) -> Tensor:
        """``(B, T)`` in ``order`` to ``(N,)``."""
        return values[self.captions, self.steps]

    def pack_rows(self, values: Tensor) -> Tensor:
        """``(B,)`` in ``order``, repeated for each token, ``(N,)``."""
        return values[self.captions]

    def sum_by_caption(self, values: Tensor) -> Tensor:
        """Packed ``(N,)`` to sums ``(B,)`` in the batch's own order."""
        return values.new_zeros(len(self.order)).index_add_(0, self.sequences, values)
