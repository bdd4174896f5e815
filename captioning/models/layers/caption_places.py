"""Which places of padded captions hold tokens to predict."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from captioning.models.layers.on_device import on_device
from captioning.types import Batch


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptionPlaces:
    """The M tokens that are predicted, caption by caption: all but begin tokens and padding.

    They are counted on the host, so that the device need not be asked how many there are.

    Attributes:
        index: ``(M,) int64`` positions in ``B * (T - 1)``, begin tokens left out.
        captions: ``(M,) int64`` the caption of each.
        lengths: ``(B,) int64`` tokens of each caption.
    """

    index: Tensor
    captions: Tensor
    lengths: Tensor

    @classmethod
    def of(cls, batch: Batch) -> CaptionPlaces:
        """Of the batch's captions, on its device."""
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
        """``(B, T - 1, ...)`` at these places: ``(M, ...)``."""
        return padded.flatten(0, 1).index_select(0, self.index)
