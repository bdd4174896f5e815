"""A contact sheet of scenes with their captions: ``captioning miniworld sheet``."""

from __future__ import annotations

import textwrap
from collections import Counter
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from captioning.miniworld.actions import ACTIONS
from captioning.miniworld.build import Settings, make_captions, make_settings, render
from captioning.miniworld.captions import Caption
from captioning.miniworld.places import PLACES
from captioning.miniworld.sample import sample_scene
from captioning.miniworld.vocabulary import CLASSES, families, held_out
from captioning.text.word_forms import words_of


def describe(*, split: str, num_scenes: int, seed: int = 0) -> dict[str, Any]:
    """Figures of a split's captions and scenes; nothing is drawn.

    Args:
        split: one of ``sample.SPLITS``.
        num_scenes: how many of its first scenes to look at, at least 1.
        seed: of the data set.
    """
    if num_scenes < 1:
        raise ValueError(f"num_scenes must be at least 1: got {num_scenes}")
    scenes = [sample_scene(seed=seed, split=split, index=index) for index in range(num_scenes)]
    captions = [
        caption
        for index, scene in enumerate(scenes)
        for caption in make_captions(scene, seed=seed, split=split, index=index)
    ]
    return {
        "classes": len(CLASSES),
        "families": len(families()),
        "held_out_classes": len(held_out()),
        "places": len(PLACES),
        "actions": len(ACTIONS),
        "objects_per_scene": _shares(len(scene.objects) for scene in scenes),
        "relations": _shares(relation.name for scene in scenes for relation in scene.relations),
        **_wording(captions),
    }


def _shares(values: Any) -> dict[str, float]:
    counts = Counter(values)
    total = sum(counts.values())
    return {str(key): round(count / total, 3) for key, count in counts.most_common()}


def _wording(captions: list[Caption]) -> dict[str, Any]:
    words = [words_of(caption.text) for caption in captions]
    lengths = np.array([len(caption_words) for caption_words in words])
    counts = Counter(word for caption_words in words for word in caption_words)
    return {
        "captions": len(captions),
        "distinct_captions": round(len({caption.text for caption in captions}) / len(captions), 3),
        "vocabulary": len(counts),
        "vocabulary_at_least_5": sum(count >= 5 for count in counts.values()),
        "words_mean": round(float(lengths.mean()), 2),
        "words_quantiles_0_25_50_75_100": [
            int(value) for value in np.quantile(lengths, (0, 0.25, 0.5, 0.75, 1))
        ],
        "focus": _shares(caption.focus for caption in captions),
        "mentions_per_caption": round(float(np.mean([len(c.mentions) for c in captions])), 2),
    }


TEXT = 150
"""Pixels under each picture for its captions."""


def contact_sheet(
    *, split: str, num_scenes: int, start: int = 0, seed: int = 0, size: int = 224,
    columns: int = 5, boxes: bool = False,
) -> Image.Image:  # fmt: skip
    """Scenes ``start`` and on of a split, each above its five captions.

    Args:
        split: one of ``sample.SPLITS``.
        num_scenes: number of scenes.
        start: number of the first scene.
        seed: of the data set.
        size: side of a picture in pixels.
        columns: pictures in a row.
        boxes: whether to draw the regions' boxes.
    """
    settings = make_settings(split=split, num_scenes=num_scenes, seed=seed, size=size)
    rows = -(-num_scenes // columns)
    sheet = Image.new("RGB", (columns * (size + 10), rows * (size + TEXT)), "white")
    for number in range(num_scenes):
        corner = (number % columns * (size + 10) + 5, number // columns * (size + TEXT) + 5)
        _paste(sheet, settings, start + number, corner, boxes)
    return sheet


def _paste(
    sheet: Image.Image, settings: Settings, index: int, corner: tuple[int, int], boxes: bool
) -> None:
    _, captions, drawing = render(settings, index)
    if boxes:
        frame = ImageDraw.Draw(drawing.image)
        for box in (*(box for item_boxes in drawing.boxes for box in item_boxes), *drawing.decor):
            frame.rectangle((box[0], box[1], box[2] - 1, box[3] - 1), outline=(255, 0, 255))
    sheet.paste(drawing.image, corner)
    font = ImageFont.load_default(10)
    lines = []
    for caption in captions:
        lines += textwrap.wrap("- " + caption.text, width=max(20, settings.size // 5))
    text = "\n".join(lines[:11])
    spot = (corner[0], corner[1] + settings.size + 2)
    ImageDraw.Draw(sheet).multiline_text(spot, text, fill="black", font=font, spacing=1)
