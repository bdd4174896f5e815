"""Photos: of every kind that is common, damaged, of huge claims, under wrong names."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st
from PIL import Image

from captioning.vision.photos import load_rgb, photo_problem, photo_sizes
from tests.fuzz.harness import Subject, Target, rewrite
from tests.fuzz.mutations import Draw, damaged

# Suffix, mode, options of Pillow.
KINDS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("jpg", "RGB", {}),
    ("jpg", "L", {"progressive": True}),
    ("jpg", "CMYK", {}),
    ("png", "RGB", {}),
    ("png", "P", {}),
    ("png", "1", {}),
    ("png", "LA", {}),
    ("png", "RGBA", {}),
    ("png", "I;16", {}),
    ("tif", "RGB", {"compression": "tiff_lzw"}),
    ("tif", "CMYK", {}),
    ("tif", "I;16", {}),
    ("tif", "F", {}),
    ("tif", "I", {"compression": "tiff_deflate"}),
    ("webp", "RGB", {"quality": 20}),
    ("webp", "RGBA", {"lossless": True}),
    ("gif", "P", {}),
    ("bmp", "RGB", {}),
    ("ppm", "RGB", {}),
    ("ico", "RGBA", {}),
    ("jp2", "RGB", {}),
    ("tga", "RGB", {}),
)
NAMES = ("photo.jpg", "photo.png", "photo.webp", "photo", "photo.txt", "photo.gif", "photo.tif")


def _picture(mode: str, size: int = 24) -> Image.Image:
    noise = np.random.default_rng(0).integers(0, 256, (size, size, 3), dtype=np.uint8)
    image = Image.fromarray(noise)
    if mode == "I;16":
        return Image.fromarray(noise[..., 0].astype(np.uint16) * 257)
    return image.convert(mode) if mode != "LA" else image.convert("L").convert("LA")


def _encoded(suffix: str, mode: str, options: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112], exif[0x010E] = 6, "a photo"
    further = {"exif": exif} if suffix in ("jpg", "png", "webp") else {}
    name = {"jpg": "JPEG", "tif": "TIFF", "jp2": "JPEG2000"}.get(suffix, suffix.upper())
    _picture(mode).save(file, name, **options, **further)
    return file.getvalue()


def _animated(kind: str) -> bytes:
    file = io.BytesIO()
    frames = [_picture("RGB", 8 + n).resize((9, 9)) for n in range(3)]
    frames[0].save(file, kind, save_all=True, append_images=frames[1:])
    return file.getvalue()


def _claims_to_be_huge(width: int, height: int) -> bytes:
    """A PNG of a few bytes with any size in its header, and a right checksum."""

    def chunk(name: bytes, data: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(name + data))
        return struct.pack(">I", len(data)) + name + data + check

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"\0" * 10_000_000)
    chunks = (chunk(b"IHDR", header), chunk(b"IDAT", pixels), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def _photos() -> list[bytes]:
    encoded = [_encoded(*kind) for kind in KINDS]
    return [*encoded, *(_animated(kind) for kind in ("GIF", "PNG", "WEBP", "TIFF"))]


def photos(folder: Path) -> Subject:
    path = folder / "photo.jpg"
    path.write_bytes(_encoded("jpg", "RGB", {}))
    return Subject(call=lambda: _open(path), files=[path], names=("photo",))


def _open(path: Path) -> None:
    problem = photo_problem(path)
    try:
        image = load_rgb(path)
        assert not problem, f"{problem}, and yet it is opened"
        assert image.mode == "RGB"
    except ValueError:
        if not problem:
            raise RuntimeError(f"{path}: opened at first, and then no more") from None
        photo_sizes(path)
        raise
    load_rgb(path, smallest_side=4)
    assert photo_sizes(path)[1] == image.size


PHOTOS = _photos()


def damaged_photo(subject: Subject, draw: Draw) -> Callable[[], object]:
    """A photo of any kind, damaged or whole, under any name."""
    path = subject.files[0].with_name(draw(st.sampled_from(NAMES)))
    content = draw(st.sampled_from(PHOTOS))
    if draw(st.integers(0, 9)):
        content = damaged(draw, content, "")
    rewrite(path, content)
    return lambda: _open(path)


def bomb(subject: Subject, draw: Draw) -> Callable[[], object]:
    """A photo of any size by its header."""
    sides = st.sampled_from((0, 1, 9_000, 10_001, 65_535, 2**31 - 1)) | st.integers(0, 2**32 - 1)
    rewrite(subject.files[0], _claims_to_be_huge(draw(sides), draw(sides)))
    return lambda: _open(subject.files[0])


TARGETS = [
    Target(name="photos of all kinds", make=photos, pick=damaged_photo, share=4),
    Target(name="photos that claim any size", make=photos, pick=bomb, share=0.2),
]
