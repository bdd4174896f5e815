"""Pairs of a photo before and after, with captions, on one page."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from PIL import Image, ImageDraw, ImageFont

from augmentation.regions.boxes import Box

LINE, LINES = 12, 5


def pair_sheet(
    pairs: Sequence[tuple[Image.Image, Image.Image, Sequence[Box], str]],
    *,
    size: int = 224,
    columns: int = 3,
) -> Image.Image:
    """Pairs in rows, each above its text.

    Args:
        pairs: the photo before, the photo after, the boxes that were replaced, and a text; photos
            are shrunk or enlarged to fit.
        size: of the longer side of a photo on the page, in pixels.
        columns: pairs in a row.
    """
    cell = (2 * size + 12, size + 8 + LINE * LINES)
    rows = -(-len(pairs) // columns)
    sheet = Image.new("RGB", (columns * cell[0], max(rows, 1) * cell[1]), "white")
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(10)
    for number, (before, after, boxes, text) in enumerate(pairs):
        x, y = number % columns * cell[0] + 4, number // columns * cell[1] + 4
        scale = size / max(before.size)
        fitted = (max(1, round(before.width * scale)), max(1, round(before.height * scale)))
        sheet.paste(before.resize(fitted), (x, y))
        sheet.paste(after.resize(fitted), (x + size + 2, y))
        for box in boxes:
            x1, y1, x2, y2 = (round(value * scale) for value in box)
            pen.rectangle((x + x1, y + y1, x + x2 - 1, y + y2 - 1), outline="red")
        lines = _lines(text, width=cell[0] // 6)
        pen.multiline_text((x, y + size + 2), "\n".join(lines), fill="black", font=font, spacing=1)
    return sheet


def _lines(text: str, *, width: int) -> list[str]:
    lines = [line for part in text.splitlines() for line in textwrap.wrap(part, width=width)]
    return lines[:LINES]
