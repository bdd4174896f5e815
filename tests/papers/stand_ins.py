"""Small data sets in the layouts of the papers' own."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from tests.captioning.data.features.layouts import Photo

SPLITS = ("train",) * 8 + ("val",) * 2 + ("test",) * 2
SIDES = (40, 32)
CAPTIONS = ("a {} on a table", "the {} near a person", "a person with a {}", "one {}", "a small {}")


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


def write_coco(folder: Path, split: str, labels: Mapping[str, str], first: int) -> None:
    """A split of COCO 2014: a photo with five captions and two boxes for each word.

    Args:
        folder: gets ``annotations`` and ``{split}2014``.
        split: train or val.
        labels: of a photo's object, by the word that its captions call it by.
        first: the first photo's id.
    """
    photos, known = folder / f"{split}2014", sorted({*labels.values(), "person"})
    (folder / "annotations").mkdir(parents=True, exist_ok=True)
    photos.mkdir()
    images, captions, boxes = [], [], []
    for image, (word, label) in enumerate(labels.items(), start=first):
        file, colour = f"COCO_{split}2014_{image:012d}.jpg", (image % 256, 5 * image % 256, 90)
        Image.new("RGB", SIDES, colour).save(photos / file)
        images.append({"id": image, "file_name": file, "width": SIDES[0], "height": SIDES[1]})
        texts = [form.format(word) for form in CAPTIONS]
        captions += [
            {"id": 9 * image + k, "image_id": image, "caption": c} for k, c in enumerate(texts)
        ]
        for k, (name, box) in enumerate([(label, [4, 5, 18, 15]), ("person", [24, 2, 12, 28])]):
            category = {"category_id": known.index(name), "bbox": box, "iscrowd": 0}
            boxes.append({"id": 9 * image + k, "image_id": image, **category})
    categories = [{"id": number, "name": name} for number, name in enumerate(known)]
    for kind, rows in (("captions", captions), ("instances", boxes)):
        content = {"images": images, "annotations": rows, "categories": categories}
        file = folder / "annotations" / f"{kind}_{split}2014.json"
        file.write_text(json.dumps(content), encoding="utf-8")


def random_regions(seed: int, size: int) -> Photo:
    """Features of two regions of a photo."""
    draw = np.random.default_rng(seed)
    boxes = np.array([[4, 5, 22, 20], [24, 2, 36, 30]], dtype=np.float32)
    return Photo(draw.normal(size=(2, size)).astype(np.float32), boxes, *SIDES)
