"""A small study on the disk."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from PIL import Image


def make_folder(folder: Path, num_images: int = 8, **further) -> Path:
    """Pictures ``0.png, 1.png, ...`` of growing loss with their manifest."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for number in range(num_images):
        pixels = np.full((8, 12, 3), 20 * number, dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
        line = {"image": f"{number}.png", "captions": [f"caption {number}", "<b>second</b>"]}
        lines.append(line | {"loss": 1.0 + number, "clip_score": 0.9 - number / 100} | further)
    (folder / "manifest.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder
