"""Small data sets in the layouts of the papers' own."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

SPLITS = ("train",) * 8 + ("val",) * 2 + ("test",) * 2


def write_karpathy(folder: Path, name: str, words: Sequence[str]) -> None:
    """Twelve photos with five captions each in Karpathy's layout.

    Args:
        folder: gets the file and ``flickr30k-images``.
        name: of the file.
        words: that captions are drawn from.
    """
    draw, images = random.Random(0), []
    (folder / "flickr30k-images").mkdir(parents=True)
    for number, split in enumerate(SPLITS):
        file = f"{number}.jpg"
        colour = tuple(draw.randrange(256) for _ in range(3))
        Image.new("RGB", (40, 32), colour).save(folder / "flickr30k-images" / file)
        captions = [" ".join(draw.sample(words, draw.randint(3, 6))) for _ in range(5)]
        sentences = [{"raw": text, "sentid": 5 * number + k} for k, text in enumerate(captions)]
        images.append({"filename": file, "split": split, "imgid": number, "sentences": sentences})
    (folder / name).write_text(json.dumps({"images": images}), encoding="utf-8")
