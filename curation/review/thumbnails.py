"""Small JPEG copies of photos, for pages that carry their pictures with them."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable
from pathlib import Path

from PIL import Image

from captioning.vision.photos import load_rgb

SIDE = 220  # longest side in pixels
QUALITY = 72


def thumbnail(path: str | Path) -> bytes | None:
    """A JPEG of at most `SIDE` pixels a side, or None where the photo cannot be opened."""
    try:
        photo = load_rgb(path)
    except (OSError, ValueError):
        return None
    photo.thumbnail((SIDE, SIDE), Image.Resampling.BILINEAR, reducing_gap=2.0)
    file = io.BytesIO()
    photo.save(file, "JPEG", quality=QUALITY, optimize=True)
    return file.getvalue()


def thumbnails(paths: Iterable[Path], *, max_pictures: int, max_bytes: int) -> dict[Path, str]:
    """Thumbnails in base64 of the first ``max_pictures`` photos that can be opened.

    Args:
        paths: photos, the important ones first; repeats are taken once.
        max_pictures: how many.
        max_bytes: size of all texts together.
    """
    texts: dict[Path, str] = {}
    remaining = max_bytes
    for path in dict.fromkeys(paths):
        if len(texts) == max_pictures:
            break
        picture = thumbnail(path)
        if picture is None:
            continue
        text = base64.b64encode(picture).decode("ascii")
        if len(text) > remaining:
            break
        remaining -= len(text)
        texts[path] = text
    return texts
