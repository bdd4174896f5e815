"""A cache of generated images, keyed by prompt, seed and generator settings."""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError
from PIL.PngImagePlugin import PngInfo

from captioning.runtime.files import write_atomically

log = logging.getLogger(__name__)

RECIPE, PIXELS = "recipe", "pixels"


class PictureCache:
    """Folder of PNG files, each named by the hash of its recipe, which the file also stores.

    A recipe is plain values: prompt, seed, model and all settings. Files are written atomically,
    and checked whenever they are used: a truncated file, or one whose pixels differ from those
    that were written, is made again. Any number of processes may share a folder.

    Args:
        folder: usually ``cache/pictures``; made when it is first needed.
    """

    def __init__(self, *, folder: str | Path) -> None:
        self.folder = Path(folder)

    def path(self, recipe: Mapping[str, Any]) -> Path:
        """Path of a recipe's image, whether or not it exists."""
        key = hashlib.sha256(_text(recipe).encode()).hexdigest()[:32]
        return self.folder / key[:2] / f"{key}.png"

    def find(self, recipe: Mapping[str, Any]) -> Path | None:
        """Return the path of a recipe's image, or None if it is missing or damaged."""
        path = self.path(recipe)
        if not path.is_file():
            return None
        damage = _damage(path, recipe)
        if damage:
            log.warning(f"{path}: {damage}; the image is generated again")
            return None
        return path

    def store(self, recipe: Mapping[str, Any], pixels: np.ndarray) -> Path:
        """Store an image ``(H, W, 3) uint8``.

        Raises:
            OSError: the folder cannot be written or the disk is full. Earlier pictures are kept:
                with space or another folder the run resumes.
        """
        notes = PngInfo()
        notes.add_itxt(RECIPE, _text(recipe))
        notes.add_text(PIXELS, _digest(pixels))
        path, image = self.path(recipe), Image.fromarray(pixels)
        options: dict[str, Any] = {"format": "PNG", "pnginfo": notes}
        # a quarter of the time of zlib's default for a tenth more bytes; the pixels are the same
        write_atomically(path, lambda part: image.save(part, **options, compress_level=1))
        return path

    def start(self) -> None:
        """Raise OSError if the folder cannot be written to.

        Raises:
            OSError: the folder cannot be written.
        """
        trial = self.folder / f".{secrets.token_hex(6)}.trial"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            trial.write_bytes(b"x")
            trial.unlink()
        except OSError as error:
            raise type(error)(
                error.errno,
                f"the cache of generated images cannot be written ({error.strerror}); set "
                "CAPTIONING_CACHE or paths.cache= to another folder",
                str(self.folder),
            ) from error


def _text(recipe: Mapping[str, Any]) -> str:
    return json.dumps(recipe, sort_keys=True, ensure_ascii=False, allow_nan=False)


def _digest(pixels: np.ndarray) -> str:
    shape = f"{pixels.shape}".encode()
    return hashlib.sha256(shape + np.ascontiguousarray(pixels).tobytes()).hexdigest()


def _damage(path: Path, recipe: Mapping[str, Any]) -> str:
    """Damage of a cached image; empty if intact."""
    try:
        with Image.open(path) as image:
            image.load()
            notes, pixels = dict(image.info), np.asarray(image)
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
        return f"cut short or damaged ({error})"
    if notes.get(RECIPE) != _text(recipe):
        return "was made by another recipe"
    return "" if notes.get(PIXELS) == _digest(pixels) else "its pixels have changed"
