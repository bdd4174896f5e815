"""Icons of objects: masks from an icon font, computed once and cached.

The font is Font Awesome 6 Free Solid (CC BY 4.0, SIL OFL 1.1), read from the installed package
``fontawesomefree``; a name that ends in ``*`` is a shape drawn by this module.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageChops, ImageDraw, ImageFilter, ImageFont

from captioning.runtime.extras import extra_version, package_folder

PACKAGE = "fontawesomefree"
PURPOSE = "the icon font that MiniWorld draws with"
REFERENCE = 72
"""Height in pixels at which an icon's gaps and head are detected."""


@dataclass(frozen=True, slots=True)
class Masks:
    """Masks of one icon, all of the same size, mode ``L``, 0 to 255.

    Attributes:
        outline: the icon with its outline, which contains all other masks.
        fill: the icon itself.
        gaps: the enclosed gaps; None if the class leaves them open.
        head: the head; None if the icon has none.
        light: region lit from above.
        shade: shaded region of the icon's lower part.
    """

    outline: Image.Image
    fill: Image.Image
    gaps: Image.Image | None
    head: Image.Image | None
    light: Image.Image
    shade: Image.Image


def _package() -> Path:
    folder = package_folder(PACKAGE, extra="offline", purpose=PURPOSE)
    return folder / "static" / "fontawesomefree"


def font_version() -> str:
    """Version of the icon font; icons of two versions may differ."""
    return extra_version(PACKAGE, extra="offline", purpose=PURPOSE)


@cache
def _glyphs() -> dict[str, str]:
    path = _package() / "metadata" / "icons.json"
    table = json.loads(path.read_text(encoding="utf-8"))
    return {name: chr(int(entry["unicode"], 16)) for name, entry in table.items()}


@lru_cache(maxsize=128)
def _font(size: int) -> ImageFont.FreeTypeFont:
    path = _package() / "otfs" / "Font Awesome 6 Free-Solid-900.otf"
    return ImageFont.truetype(str(path), size, layout_engine=ImageFont.Layout.BASIC)


def _glyph(icon: str) -> str:
    try:
        return _glyphs()[icon]
    except KeyError:
        raise ValueError(
            f"no icon {icon!r} in fontawesomefree {font_version()}; MiniWorld was made with 6.6"
        ) from None


def _table(height: int, stroke: int) -> Image.Image:
    scale = 4
    tall, wide = (height - 2 * stroke) * scale, round((height - 2 * stroke) * 1.5) * scale
    mask = Image.new("L", (wide, tall), 0)
    pen = ImageDraw.Draw(mask)
    top, leg = round(tall * 0.16), round(wide * 0.08)
    pen.rounded_rectangle((0, 0, wide - 1, top), radius=top // 3, fill=255)
    for x in (round(wide * 0.07), round(wide * 0.93) - leg):
        pen.rectangle((x, top, x + leg, tall - 1), fill=255)
    mask = mask.resize((wide // scale, tall // scale), Image.Resampling.BOX)
    framed = Image.new("L", (mask.width + 2 * stroke, mask.height + 2 * stroke), 0)
    framed.paste(mask, (stroke, stroke))
    return framed


def _ink(icon: str, font_size: int, stroke: int) -> tuple[Image.Image, Image.Image]:
    """Outline and fill of an icon, both cropped to the outline."""
    font, glyph = _font(font_size), _glyph(icon)
    left, top, right, bottom = font.getbbox(glyph, stroke_width=stroke, anchor="ls")
    size = (int(right - left) + 2, int(bottom - top) + 2)
    layers = []
    for width in (stroke, 0):
        layer = Image.new("L", size, 0)
        pen = ImageDraw.Draw(layer)
        pen.text((1 - left, 1 - top), glyph, fill=255, font=font, anchor="ls", stroke_width=width)
        layers.append(layer)
    box = layers[0].getbbox()
    return layers[0].crop(box), layers[1].crop(box)


@cache
def aspect(icon: str) -> float:
    """Width of an icon divided by its height."""
    outline, _ = _shape(icon, 128, 1)
    return outline.width / outline.height


@cache
def _share(icon: str) -> float:
    """Height of an icon divided by the font size."""
    _, fill = _ink(icon, 256, 0)
    return fill.height / 256


def _shape(icon: str, height: int, stroke: int) -> tuple[Image.Image, Image.Image]:
    if icon.endswith("*"):
        fill = _table(height, stroke)
        return fill.filter(ImageFilter.MaxFilter(2 * stroke + 1)), fill
    return _ink(icon, max(6, round((height - 2 * stroke) / _share(icon))), stroke)


@cache
def _ink_at_reference(icon: str) -> np.ndarray:
    """Pixels that an icon covers, ``(H, W) bool`` with an empty border of one pixel."""
    _, fill = _shape(icon, REFERENCE, 1)
    return np.pad(np.asarray(fill) > 127, 1)


def _flood(free: np.ndarray, row: int, column: int) -> np.ndarray:
    """Part of ``free (H, W) bool`` that is connected to the pixel ``(row, column)``."""
    region = np.zeros_like(free)
    region[row, column] = True
    while True:
        grown = region.copy()
        grown[1:] |= region[:-1]
        grown[:-1] |= region[1:]
        grown[:, 1:] |= grown[:, :-1].copy()
        grown[:, :-1] |= grown[:, 1:].copy()
        grown &= free
        if np.array_equal(grown, region):
            return region
        region = grown


@cache
def _gaps(icon: str) -> Image.Image | None:
    """Gaps enclosed by an icon, slightly widened to reach under the icon's edge."""
    ink = _ink_at_reference(icon)
    gaps = ~ink & ~_flood(~ink, 0, 0)
    if not gaps.any():
        return None
    picture = Image.fromarray((gaps[1:-1, 1:-1] * 255).astype(np.uint8))
    return picture.filter(ImageFilter.MaxFilter(5))


@cache
def _head_box(icon: str) -> tuple[float, float, float, float] | None:
    """Box of the first separate round part from the top, as shares of the icon."""
    remaining = _ink_at_reference(icon).copy()
    height, width = remaining.shape[0] - 2, remaining.shape[1] - 2
    while remaining.any():
        row = int(remaining.any(axis=1).argmax())
        part = _flood(remaining, row, int(remaining[row].argmax()))
        remaining &= ~part
        rows, columns = np.flatnonzero(part.any(axis=1)), np.flatnonzero(part.any(axis=0))
        tall, wide = rows[-1] - rows[0] + 1, columns[-1] - columns[0] + 1
        share = part.sum() / (tall * wide)
        if tall > 8 and 0.8 < wide / tall < 1.25 and 0.7 < share < 0.9:
            return ((columns[0] - 2) / width, (rows[0] - 2) / height,
                    (columns[-1] + 1) / width, (rows[-1] + 1) / height)  # fmt: skip
    return None


@lru_cache(maxsize=8192)
def masks(icon: str, height: int, stroke: int, head: bool = False) -> Masks:
    """Masks of an icon whose outlined version is about ``height`` pixels high.

    Args:
        icon: name of the icon.
        height: height of the outlined picture, in pixels.
        stroke: width of the outline, in pixels.
        head: whether to look for a head.

    Raises:
        ValueError: the installed font has no such icon.
    """
    outline, fill = _shape(icon, height, stroke)
    size = outline.size
    gaps = _gaps(icon)
    ramp = _ramp(size)
    return Masks(
        outline=outline, fill=fill, head=_head(icon, fill) if head else None,
        gaps=None if gaps is None else gaps.resize(size, Image.Resampling.BILINEAR),
        light=ImageChops.multiply(fill, ramp.point([max(0, 110 - value) for value in range(256)])),
        shade=ImageChops.multiply(fill, ramp.point([max(0, value - 150) for value in range(256)])),
    )  # fmt: skip


def _head(icon: str, fill: Image.Image) -> Image.Image | None:
    box = _head_box(icon)
    if box is None:
        return None
    disc = Image.new("L", fill.size, 0)
    corners = [round(float(share) * fill.size[index % 2]) for index, share in enumerate(box)]
    ImageDraw.Draw(disc).ellipse(corners, fill=255)
    return ImageChops.multiply(disc, fill)


def _ramp(size: tuple[int, int]) -> Image.Image:
    return Image.linear_gradient("L").resize(size, Image.Resampling.BILINEAR)


@lru_cache(maxsize=8192)
def mirrored(icon: str, height: int, stroke: int, head: bool = False) -> Masks:
    """Mirrored masks of an icon, see `masks`."""
    upright = masks(icon, height, stroke, head)

    def flip(mask: Any) -> Any:
        return None if mask is None else mask.transpose(Image.Transpose.FLIP_LEFT_RIGHT)

    return Masks(*(flip(getattr(upright, name)) for name in Masks.__dataclass_fields__))
