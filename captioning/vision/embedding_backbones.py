"""Backbones of one cell per photo, so that photo embeddings are cached like grid features."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from captioning.config.loadable import loadable
from captioning.vision.clip import ClipEncoder
from captioning.vision.joint_space import JointSpaceEncoder


@loadable
class JointSpaceBackbone(nn.Module):
    """Photo encoder of the small joint space as a backbone: one embedding per photo.

    It has the attributes of `captioning.vision.backbones.Backbone`.
    """

    def __init__(self, *, encoder: JointSpaceEncoder) -> None:
        super().__init__()
        self.backbone, self.heads = encoder.backbone, encoder.heads
        self.identity = encoder.identity
        self.image_size, self.dim = self.backbone.image_size, encoder.dim
        self.grid_size, self.num_cells = (1, 1), 1

    def normalise(self, pixels: Tensor) -> Tensor:
        """Convert pixels for the network; see `Backbone.normalise`."""
        return self.backbone.normalise(pixels)

    def fitted(self, image: Image.Image) -> Image.Image:
        """Resize a photo; see `Backbone.fitted`."""
        return self.backbone.fitted(image)

    def grid(self, images: Tensor) -> Tensor:
        """Return unit vectors ``(B, 1, dim)`` of normalised pixels."""
        cells = self.backbone.grid(images)
        return self.heads.embed_pooled(self.heads.pool(cells)).unsqueeze(1)

    def for_inference(self, device: torch.device | str) -> JointSpaceBackbone:
        """Return a frozen copy on ``device``."""
        return _frozen_copy(self, device)


@loadable
class ClipBackbone(nn.Module):
    """Photo encoder of a CLIP as a backbone: one embedding per photo, cropped as in CLIP.

    It has the attributes of `captioning.vision.backbones.Backbone`.

    Raises:
        ValueError: the model's input is not square, or its preprocessing is not supported.
    """

    _mean: Tensor
    _std: Tensor

    def __init__(self, *, encoder: ClipEncoder) -> None:
        super().__init__()
        self.model: Any = encoder.model
        sides = set(np.atleast_1d(self.model.visual.image_size).tolist())
        steps = list(getattr(encoder.preprocess, "transforms", ()))
        kinds = [type(step).__name__ for step in steps]
        # open_clip has its own ToTensor besides torchvision's
        last_kinds = [kind.removeprefix("Maybe") for kind in kinds[-2:]]
        if len(sides) != 1 or last_kinds != ["ToTensor", "Normalize"]:
            raise ValueError(
                f"{encoder.space}: photos must be square, scaled and normalised: got "
                f"sides {sorted(sides)}, prepared by {kinds}; choose another CLIP"
            )
        (self.image_size,) = sides
        self._shape, normalise = steps[:-2], steps[-1]
        self.identity, self.dim = encoder.identity, encoder.dim
        self.grid_size, self.num_cells = (1, 1), 1
        for name, values in {"_mean": normalise.mean, "_std": normalise.std}.items():
            scaled = torch.as_tensor(values, dtype=torch.float32).view(3, 1, 1) * 255
            self.register_buffer(name, scaled, persistent=False)

    def normalise(self, pixels: Tensor) -> Tensor:
        """Convert pixels ``(B, 3, H, W) uint8`` to the ``float32`` input of `grid`."""
        return (pixels.to(torch.float32) - self._mean) / self._std

    def fitted(self, image: Image.Image) -> Image.Image:
        """Resize a photo to ``image_size`` squared."""
        for step in self._shape:
            image = step(image)
        return image

    def grid(self, images: Tensor) -> Tensor:
        """Return unit vectors ``(B, 1, dim)`` of pixels, normalised or ``uint8``."""
        if images.dtype == torch.uint8:
            images = self.normalise(images)
        return nn.functional.normalize(self.model.encode_image(images), dim=-1).unsqueeze(1)

    def for_inference(self, device: torch.device | str) -> ClipBackbone:
        """Return a frozen copy on ``device``."""
        return _frozen_copy(self, device)


def _frozen_copy(module: Any, device: torch.device | str) -> Any:
    return copy.deepcopy(module).to(device).eval().requires_grad_(False)
