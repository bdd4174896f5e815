"""Photos that tests write: good ones, one for each rule that a photo can break, a turned one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image


def picture(folder: Path, name: str, mode: str = "RGB", **options) -> Path:
    """A photo of one colour, 30 pixels wide and 20 high."""
    path = folder / name
    Image.new(mode, (30, 20), options.pop("color", 0)).save(path, **options)
    return path


def noisy(folder: Path, name: str) -> Path:
    """A photo of noise."""
    path = folder / name
    pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return path


def bad_photos(folder: Path) -> dict[str, Path]:
    """A photo for each rule that a photo can break, by its name."""
    (folder / "empty.jpg").touch()
    (folder / "text.jpg").write_text("<html>404</html>")
    for suffix in ("jpg", "png", "webp"):
        good = noisy(folder, f"cut.{suffix}")
        good.write_bytes(good.read_bytes()[: good.stat().st_size // 2])
    frames = [Image.new("L", (9, 9), shade) for shade in (0, 90, 200)]
    frames[0].save(folder / "moving.gif", save_all=True, append_images=frames[1:])
    picture(folder, "large.png")
    names = ("empty.jpg", "text.jpg", "cut.jpg", "cut.png", "cut.webp", "moving.gif", "large.png")
    return {name: folder / name for name in names}


RULES = {
    "empty.jpg": "photo is an empty file",
    "text.jpg": "photo is not an image",
    "cut.jpg": "photo is truncated or damaged",
    "cut.png": "photo is truncated or damaged",
    "cut.webp": "photo is ",  # Pillow's WebP reader calls a cut file no image
    "moving.gif": "photo is animated",
    "large.png": "photo is too large (30x20, at most 500 pixels)",
}


def turned(path: Path) -> Path:
    """A photo 30 wide and 20 high that EXIF turns upright: white above and black below."""
    exif = Image.Exif()
    exif[0x0112] = 6
    image = Image.new("RGB", (30, 20))
    image.paste((255, 255, 255), (0, 0, 15, 20))
    image.save(path, exif=exif, **({"quality": 100} if path.suffix == ".jpg" else {}))
    return path
