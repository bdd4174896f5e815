"""A sheet of pictures with their captions."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from PIL import Image, ImageDraw, ImageFont

LINES = 6


def picture_sheet(
    pictures: Sequence[Image.Image], captions: Sequence[str], *, columns: int = 8
) -> Image.Image:
    """Pictures in rows, each above its caption.

    Args:
        pictures: of one size.
        captions: one a picture; longer ones are cut and end in dots.
        columns: pictures in a row.
    """
    size = max(picture.width for picture in pictures)
    cell = (size + 8, size + 8 + 11 * LINES)
    rows = -(-len(pictures) // columns)
    sheet = Image.new("RGB", (columns * cell[0], rows * cell[1]), "white")
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(9)
    for number, (picture, caption) in enumerate(zip(pictures, captions, strict=True)):
        x, y = number % columns * cell[0] + 4, number // columns * cell[1] + 4
        sheet.paste(picture, (x, y))
        lines = textwrap.wrap(caption, width=max(12, size // 5), max_lines=LINES)
        pen.multiline_text((x, y + size + 2), "\n".join(lines), fill="black", font=font, spacing=1)
    return sheet
