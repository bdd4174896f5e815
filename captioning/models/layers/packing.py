"""Convert padded captions to packed tokens and back."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from captioning.models.layers.on_device import on_device
from captioning.types import Batch


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptionPlaces:
    """The M predicted tokens, caption by caption: all except begin tokens and padding.

    Tokens are counted on the CPU, to avoid waiting for the device.

    Attributes:
        index: ``(M,) int64`` positions in ``B * (T - 1)``, begin tokens left out.
        captions: ``(M,) int64`` caption of each token.
        lengths: ``(B,) int64`` tokens of each caption.
    """

    index: Tensor
    captions: Tensor
    lengths: Tensor

    @classmethod
    def of(cls, batch: Batch) -> CaptionPlaces:
        """Return the packing of a batch's captions, on its device."""
        _, exist = batch.host.caption_tokens()
        mask, device = exist[:, 1:], batch.rows.device
        lengths = mask.sum(1)
        captions = torch.arange(len(batch)).repeat_interleave(lengths)
        return cls(
            index=on_device(mask.flatten().nonzero().squeeze(1), device),
            captions=on_device(captions, device),
            lengths=on_device(lengths, device),
        )

    def pack(self, padded: Tensor) -> Tensor:
        """Select the M tokens from ``(B, T - 1, ...)``: ``(M, ...)``."""
        return padded.flatten(0, 1).index_select(0, self.index)

    def unpack(self, packed: Tensor, like: Tensor) -> Tensor:
        """Scatter ``(M,)`` to the shape of ``like (B, T - 1)``; 0 elsewhere."""
        padded = packed.new_zeros(like.numel())
        return padded.index_copy(0, self.index, packed).view(like.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """Time-major packed order of a batch: first token of every caption, then second, ...

    Attributes:
        order: ``(B,) int64``, captions by falling length.
        lengths: ``(B,) int64`` tokens of each caption, in the batch's own order.
        host_lengths: ``lengths`` on the CPU.
        sizes: number of unfinished captions at each step; sums to N.
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
            lengths: lengths on the CPU, where the order is computed.
            device: device of the values to pack.
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
        """Pack ``(B, T)``, given in ``order``, to ``(N,)``."""
        return values[self.captions, self.steps]

    def unpack(self, packed: Tensor, like: Tensor) -> Tensor:
        """Unpack ``(N,)`` to ``(B, T)`` as ``like``, in the batch's own order; 0 in padding."""
        padded = packed.new_zeros(like.shape)
        padded[self.sequences, self.steps] = packed
        return padded

    def pack_rows(self, values: Tensor) -> Tensor:
        """Repeat ``(B,)``, given in ``order``, for each token: ``(N,)``."""
        return values[self.captions]

    def sum_by_caption(self, values: Tensor) -> Tensor:
        """Sum packed ``(N,)`` by caption: ``(B,)`` in the batch's own order."""
        return values.new_zeros(len(self.order)).index_add_(0, self.sequences, values)
