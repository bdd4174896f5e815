"""Draw pairs of photo and caption, before and after augmentation, on one page."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from PIL import Image, ImageDraw, ImageFont

from captioning.types import Box, Region

LINE, LINES = 12, 5


def pair_sheet(
    pairs: Sequence[tuple[Image.Image, Image.Image, Sequence[Box], str]],
    *,
    size: int = 224,
    columns: int = 3,
    num_lines: int = LINES,
) -> Image.Image:
    """Draw pairs in rows, each above its text.

    Args:
        pairs: the photo before, the photo after, the boxes that were replaced, and a text; photos
            are shrunk or enlarged to fit.
        size: size of the longer side of a photo on the page, in pixels.
        columns: pairs in a row.
        num_lines: number of lines of text, at most.
    """
    cell = (2 * size + 12, size + 8 + LINE * num_lines)
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
        lines = _lines(text, width=cell[0] // 6)[:num_lines]
        pen.multiline_text((x, y + size + 2), "\n".join(lines), fill="black", font=font, spacing=1)
    return sheet


def _lines(text: str, *, width: int) -> list[str]:
    return [line for part in text.splitlines() for line in textwrap.wrap(part, width=width)]


def with_regions(image: Image.Image, regions: Sequence[Region]) -> Image.Image:
    """Copy a photo and draw the boxes and labels of its regions."""
    drawn = image.convert("RGB")
    pen, font = ImageDraw.Draw(drawn), ImageFont.load_default(max(10, max(drawn.size) // 24))
    for region in regions:
        pen.rectangle(region.box, outline="yellow")
        pen.text((region.box[0] + 2, region.box[1] + 1), region.label, fill="yellow", font=font)
    return drawn
