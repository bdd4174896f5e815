"""Photos as tensors."""

from __future__ import annotations

from pathlib import Path

import torch
from PIL import Image

from augmentation.image_replacement.training.denoising import load_pictures


def test_the_middle_of_a_photo_is_scaled_to_a_square(tmp_path: Path) -> None:
    wide = Image.new("RGB", (30, 10), (255, 0, 0))
    wide.paste((0, 255, 0), (10, 0, 20, 10))
    wide.save(tmp_path / "wide.png")
    Image.new("L", (8, 8), 255).save(tmp_path / "white.png")
    pictures = load_pictures([tmp_path / "wide.png", tmp_path / "white.png"], size=4)
    assert pictures.shape == (2, 3, 4, 4)
    assert torch.equal(pictures[1], torch.ones(3, 4, 4))
    assert pictures[0, :, 1:3, 1:3].flatten(1).T.tolist() == [[-1, 1, -1]] * 4
