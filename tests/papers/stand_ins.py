"""Small data sets in the layouts of the papers' own."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from tests.captioning.data.features.layouts import Photo

SPLITS = ("train",) * 8 + ("val",) * 2 + ("test",) * 2
SIDES = (40, 32)
CAPTIONS = ("a {} on a table", "the {} near a person", "a person with a {}", "one {}", "a small {}")


def write_karpathy(
    folder: Path,
    name: str,
    words: Sequence[str],
    *,
    forms: Sequence[str] = (),
    photos: str = "flickr30k-images",
) -> None:
    """Twelve photos with five captions each in Karpathy's layout.

    Args:
        folder: gets the file and the photos.
        name: of the file.
        words: that captions are drawn from.
        forms: of a photo's captions, each with a place for a word; none: words in any order.
        photos: folder of the photos; COCO's file names it with each.
    """
    draw, images = random.Random(0), []
    (folder / photos).mkdir(parents=True)
    is_coco = not photos.startswith("flickr30k")
    for number, split in enumerate(SPLITS):
        file = f"{number}.jpg"
        colour = tuple(draw.randrange(256) for _ in range(3))
        Image.new("RGB", SIDES, colour).save(folder / photos / file)
        if forms:
            captions = [form.format(draw.choice(words)) for form in forms]
        else:
            captions = [" ".join(draw.sample(words, draw.randint(3, 6))) for _ in range(5)]
        sentences = [{"raw": text, "sentid": 5 * number + k} for k, text in enumerate(captions)]
        image = {"filename": file, "split": split, "imgid": number, "sentences": sentences}
        images.append(image | ({"filepath": photos, "cocoid": number} if is_coco else {}))
    (folder / name).write_text(json.dumps({"images": images}), encoding="utf-8")


def write_coco(folder: Path, split: str, labels: Mapping[str, str], ids: Iterable[int]) -> None:
    """A split of COCO: a photo with five captions and two boxes for each word.

    Args:
        folder: gets ``annotations`` and a folder of photos.
        split: such as train2014.
        labels: of a photo's object, by the word that its captions call it by.
        ids: of the photos.
    """
    photos, known = folder / split, sorted({*labels.values(), "person"})
    (folder / "annotations").mkdir(parents=True, exist_ok=True)
    photos.mkdir()
    images, captions, boxes = [], [], []
    prefix = f"COCO_{split}_" if split.endswith("2014") else ""
    for image, (word, label) in zip(ids, labels.items(), strict=True):
        file, colour = f"{prefix}{image:012d}.jpg", (image % 256, 5 * image % 256, 90)
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
        file = folder / "annotations" / f"{kind}_{split}.json"
        file.write_text(json.dumps(content), encoding="utf-8")


def random_regions(seed: int, size: int) -> Photo:
    """Features of two regions of a photo."""
    draw = np.random.default_rng(seed)
    boxes = np.array([[4, 5, 22, 20], [24, 2, 36, 30]], dtype=np.float32)
    return Photo(draw.normal(size=(2, size)).astype(np.float32), boxes, *SIDES)


def write_nocaps(folder: Path, ids: Iterable[int], words: Sequence[str]) -> None:
    """Photos of nocaps, of each domain in turn, with captions.

    Args:
        folder: gets the file of captions and ``images``.
        ids: of the photos.
        words: that photos are of, in turn.
    """
    images, captions = [], []
    (folder / "images").mkdir(parents=True)
    for image in ids:
        file = f"{image}.jpg"
        Image.new("RGB", SIDES, (40 * image % 256, 90, 200)).save(folder / "images" / file)
        domain = ("in-domain", "near-domain", "out-domain")[image % 3]
        sides = {"width": SIDES[0], "height": SIDES[1]}
        images.append({"id": image, "file_name": file, "domain": domain, **sides})
        for form in CAPTIONS:
            text = form.format(words[image % len(words)])
            captions.append({"id": len(captions), "image_id": image, "caption": text})
    content = json.dumps({"images": images, "annotations": captions})
    (folder / "nocaps_val_4500_captions.json").write_text(content, encoding="utf-8")
