"""What captioners and objectives give as their losses is looked at before it is used."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from captioning.decoding.given import shown
from captioning.types import CaptionLosses


def check_losses(losses: Any, number: int, *, by: object) -> None:
    """Refuse what is no loss of a batch and of each of its captions. Shapes alone are looked at.

    Args:
        losses: of a batch.
        number: B, of its captions.
        by: the captioner or objective that gave them.

    Raises:
        ValueError: no `CaptionLosses`, or a part of another shape.
    """
    name = type(by).__qualname__
    if not isinstance(losses, CaptionLosses):
        raise ValueError(
            f"{name} must give captioning.types.CaptionLosses, which has a loss of each caption: "
            f"got {shown(losses)}"
        )
    shapes = {"total": (), "per_sample": (number,), "nll": (number,), "smoothed": (number,)}
    for part, shape in shapes.items():
        value = getattr(losses, part)
        is_left_out = value is None and part in ("nll", "smoothed")
        if not is_left_out and (not isinstance(value, Tensor) or tuple(value.shape) != shape):
            wanted = "a single value" if part == "total" else f"one value a caption, {shape}"
            raise ValueError(f"{name}: {part} of its losses must be {wanted}: got {shown(value)}")
