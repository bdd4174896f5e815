"""A contact sheet of scenes with their captions: ``captioning miniworld sheet``."""

from __future__ import annotations

import textwrap

from PIL import Image, ImageDraw, ImageFont

from captioning.miniworld.build import Settings, make_settings, render

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
