"""Region features: a backbone's grid features pooled over the boxes of a photo."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from captioning.types import Box


def scale_boxes(boxes: Sequence[Box], width: float, height: float, name: str) -> Tensor:
    """Scale boxes to fractions of the photo, ``(n, 4)`` in [0, 1].

    Args:
        boxes: ``(x1, y1, x2, y2)`` in pixels of the photo.
        width: width of the photo, in pixels.
        height: height of the photo, in pixels.
        name: name of the photo, for messages.

    Raises:
        ValueError: a box without area, outside the photo by more than a pixel, or not finite.
    """
    scaled = torch.tensor(boxes, dtype=torch.float32).reshape(-1, 4)
    for box in boxes:
        x1, y1, x2, y2 = box
        if not (-1 <= x1 < x2 <= width + 1 and -1 <= y1 < y2 <= height + 1):
            raise ValueError(
                f"{name}: box {tuple(box)} must be (x1, y1, x2, y2) with x1 < x2 <= {width} and "
                f"y1 < y2 <= {height}; correct or drop it"
            )
    return (scaled / torch.tensor([width, height, width, height])).clamp(0, 1)


def pool_regions(grid: Tensor, grid_size: tuple[int, int], boxes: Sequence[Tensor]) -> list[Tensor]:
    """Average grid features over the full photo and over each of its boxes.

    Args:
        grid: ``(B, h*w, D)`` grid features.
        grid_size: ``(h, w)``.
        boxes: B tensors ``(n, 4)`` in fractions of the photo (see `scale_boxes`).

    Returns:
        B tensors ``(1 + n, D)``, the full photo first. A box is the mean of bilinear samples, about
        one per cell that it covers (`torchvision.ops.roi_align`, aligned).
    """
    from torchvision.ops import roi_align  # 0.3 s, and registers the operation below

    height, width = grid_size
    maps = grid.transpose(1, 2).unflatten(2, grid_size).float()
    cells = torch.tensor([width, height, width, height], device=grid.device)
    counts = [len(photo_boxes) for photo_boxes in boxes]
    photos = torch.repeat_interleave(torch.tensor(counts)).to(cells)
    rois = torch.cat([photos[:, None], torch.cat(list(boxes)).to(grid.device) * cells], dim=1)
    if maps.requires_grad:
        pooled = roi_align(maps, rois, output_size=1, sampling_ratio=-1, aligned=True)
    else:
        # Only its gradient depends on the order of additions. In deterministic mode
        # torchvision would compile it on a GPU, which takes a minute and a compiler.
        pooled = torch.ops.torchvision.roi_align(maps, rois, 1.0, 1, 1, -1, True)
    parts = pooled[:, :, 0, 0].split(counts)
    full = grid.float().mean(1)
    return [
        torch.cat([full_photo[None], part]) for full_photo, part in zip(full, parts, strict=True)
    ]


def coverage(boxes: Sequence[Box], width: float, height: float) -> float:
    """Return the share of a photo covered by the union of its boxes, in [0, 1].

    Args:
        boxes: ``(x1, y1, x2, y2)`` in pixels of the photo; ``()`` covers nothing.
        width: width of the photo, in pixels.
        height: height of the photo, in pixels.
    """
    columns = sorted({x for box in boxes for x in (box[0], box[2])})
    total = 0.0
    for left, right in pairwise(columns):
        rows = sorted((b[1], b[3]) for b in boxes if b[0] <= left and b[2] >= right)
        reached = float("-inf")
        for top, bottom in rows:
            total += max(0.0, bottom - max(top, reached)) * (right - left)
            reached = max(reached, bottom)
    return min(total / (width * height), 1.0)
