"""Open photos upright, in RGB and with limited size; the whole project opens photos here."""

from __future__ import annotations

import io
import os
import struct
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import ExifTags, Image, UnidentifiedImageError

from captioning.vision.photo_places import open_photo, place_in_shard

_lock = threading.Lock()
_inside: list[warnings.catch_warnings] = []  # once for each thread inside; all are the first one's


@contextmanager
def pillow_warnings_ignored() -> Iterator[None]:
    """Suppress warnings within the context; the last thread to leave restores the filters.

    Python's own context keeps filters per process: if two threads overlap, the last to leave
    would restore the other's setting.
    """
    with _lock:
        if not _inside:
            context = warnings.catch_warnings()
            context.__enter__()
            warnings.simplefilter("ignore")
            _inside.append(context)
        else:
            _inside.append(_inside[0])
    try:
        yield
    finally:
        with _lock:
            context = _inside.pop()
            if not _inside:
                context.__exit__(None, None, None)


MAX_PIXELS = 100_000_000  # 100 megapixels are 300 MB once decoded

MISSING = "photo missing"
EMPTY = "photo is an empty file"
TRUNCATED = "photo is truncated or damaged"
NO_IMAGE = "photo is not an image"
HUGE = "photo is too large"
ANIMATED = "photo is animated"
OUT_OF_RANGE = "photo has 32-bit pixels of an unknown range"

_REMEDIES = {
    EMPTY: "replace or remove it",
    TRUNCATED: "replace or remove it",
    NO_IMAGE: "replace or remove it",
    HUGE: "save it smaller",
    ANIMATED: "save one frame of it",
    OUT_OF_RANGE: "save it with 8 or 16 bits",
}
_DAMAGE = (OSError, SyntaxError, ValueError, EOFError, IndexError, KeyError, TypeError)
_NO_EXIF = (OSError, SyntaxError, ValueError, KeyError, TypeError, struct.error)
_SIXTEEN_BITS = ("I;16", "I;16B", "I;16L")
_WHITE = {"I": 65535, "F": 1}  # the value of white in 32-bit integers and in floats
_MPO = "MPO"  # of a JPEG with a small picture of itself behind it, as cameras write it
# By EXIF orientation. Pillow's own exif_transpose rewrites all of EXIF, and fails at a
# damaged entry.
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_QUARTER_TURNS = (5, 6, 7, 8)
# Metadata fields that hold the orientation.
_SAY_TURNS = ("exif", "Raw profile type exif", "xmp", "XML:com.adobe.xmp")


def load_rgb(
    path: str | Path,
    *,
    max_pixels: int = MAX_PIXELS,
    smallest_side: int | None = None,
    content: bytes | None = None,
) -> Image.Image:
    """Open a photo in RGB, rotated by its EXIF orientation.

    Grey, CMYK, palette and 16-bit photos are converted; transparent pixels become white. In 32-bit
    photos white is undefined: integers are read as 16-bit values, floats as values
    in [0, 1], and photos with other values raise an error.

    Args:
        path: path of the photo.
        max_pixels: photos with more pixels raise an error without being decoded.
        smallest_side: a larger JPEG may be decoded at 1/2, 1/4 or 1/8 of its size, which
            is faster, while no side falls below this; None: full size.
        content: content of the file, if already read.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the photo breaks a rule, see `photo_problem`.
    """
    opened = _open(path, max_pixels, smallest_side, content)
    if isinstance(opened, Image.Image):
        return opened
    if opened == MISSING:
        raise FileNotFoundError(f"{path}: no such photo")
    remedy = next(remedy for rule, remedy in _REMEDIES.items() if opened.startswith(rule))
    raise ValueError(f"{path}: {opened}; {remedy}")


def upright_rgb(picture: Image.Image) -> Image.Image:
    """Convert a picture in memory as `load_rgb` converts a photo.

    Raises:
        ValueError: 32-bit pixels of an unknown range.
    """
    upright = _as_rgb(_turned(picture))
    if isinstance(upright, str):
        raise ValueError(f"{upright.replace('photo', 'picture')}; {_REMEDIES[OUT_OF_RANGE]}")
    return upright


def photo_problem(path: str | Path, *, max_pixels: int = MAX_PIXELS) -> str:
    """Decode a photo fully; return the rule that it breaks, or an empty text for a good photo."""
    opened = _open(path, max_pixels)
    return opened if isinstance(opened, str) else ""


def photo_sizes(
    path: str | Path, *, content: bytes | None = None
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return width and height as stored, and as `load_rgb` shows them; reads only the header.

    Args:
        path: path of the photo.
        content: content of the file, if already read.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is not a photo.
    """
    try:
        with pillow_warnings_ignored(), _opened(path, content) as image:
            width, height = image.size
            orientation = _orientation(image)
    except FileNotFoundError:
        raise
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError, MemoryError) as error:
        # Pillow decodes a PNG to find EXIF data after its pixels.
        raise ValueError(f"{path}: cannot be opened as a photo") from error
    turned = orientation in _QUARTER_TURNS
    return (width, height), ((height, width) if turned else (width, height))


class RefusedPhoto(ValueError):
    """A photo that opens but that a model's processor rejects.

    Args:
        reason: reason of the rejection.
        photo: name of the photo.
    """

    def __init__(self, reason: str, photo: Image.Image) -> None:
        super().__init__(reason)
        self.photo = photo


@contextmanager
def refusals_named(paths: Sequence[Path], photos: Sequence[Image.Image]) -> Iterator[None]:
    """Add the photo's file name to errors about one of the photos.

    Args:
        paths: paths of the photos.
        photos: the opened photos.

    Raises:
        ValueError: replaces `RefusedPhoto`.
    """
    try:
        yield
    except RefusedPhoto as error:
        pairs = zip(paths, photos, strict=True)
        path = next((path for path, photo in pairs if photo is error.photo), None)
        if path is None:
            raise
        raise ValueError(f"{path}: {error}; crop or remove this photo") from error


class _EmptyPhoto(ValueError):
    """A photo file with zero bytes."""


def _opened(path: str | Path, content: bytes | None = None) -> Image.Image:
    """Open a photo and read only its header, from a file or a shard."""
    if content is None and place_in_shard(path) is None:
        if os.path.getsize(path) == 0:
            raise _EmptyPhoto(f"{path}: {EMPTY}")
        return Image.open(path)
    stream = open_photo(path) if content is None else io.BytesIO(content)
    if not stream.seek(0, os.SEEK_END):
        raise _EmptyPhoto(f"{path}: {EMPTY}")
    return Image.open(stream)


def _open(
    path: str | Path,
    max_pixels: int,
    smallest_side: int | None = None,
    content: bytes | None = None,
) -> Image.Image | str:
    """Return the opened photo, or the rule that it breaks."""
    try:
        # warnings about damaged EXIF and palettes: only the pixels matter
        with pillow_warnings_ignored(), _opened(path, content) as image:
            if image.width * image.height > max_pixels:
                return f"{HUGE} ({image.width}x{image.height}, at most {max_pixels} pixels)"
            if image.format != _MPO and getattr(image, "n_frames", 1) > 1:
                return ANIMATED
            if smallest_side is not None:
                image.draft(None, (smallest_side, smallest_side))
            image.load()
            return _as_rgb(_turned(image))
    except FileNotFoundError:
        return MISSING
    except _EmptyPhoto:
        return EMPTY
    except UnidentifiedImageError:
        return NO_IMAGE
    except (Image.DecompressionBombError, MemoryError):
        return HUGE
    except _DAMAGE as error:
        reason = str(error).removeprefix(f"{path}: ")
        return f"{TRUNCATED} ({reason[:80]})"


def _turned(image: Image.Image) -> Image.Image:
    turn = _TURNS.get(_orientation(image))
    if turn is None:
        return image
    upright = image.transpose(turn)
    for key in _SAY_TURNS:  # or whoever gets it would turn it again
        upright.info.pop(key, None)
    return upright


def _orientation(image: Image.Image) -> int:
    """Return the EXIF orientation, or XMP's if EXIF has none; 1 if damaged."""
    if image.format == "PNG" and "exif" not in image.info:
        image.load()  # EXIF may stand behind the pixels, and damage of these is no damage of EXIF
    try:
        value = image.getexif().get(ExifTags.Base.Orientation, 1)
    except _NO_EXIF:
        return 1
    return value if isinstance(value, int) else 1


def _as_rgb(image: Image.Image) -> Image.Image | str:
    # a PNG without an alpha channel may name one colour that is transparent
    if image.mode == "RGB" and not image.has_transparency_data:
        return image
    if image.mode in _WHITE:
        return _scaled(image, _WHITE[image.mode])
    if image.mode in _SIXTEEN_BITS:
        # convert() would clip 16 bits to 8 instead of scaling them
        return image.point(lambda value: value / 257, "F").convert("L").convert("RGB")
    if image.has_transparency_data:
        opaque = image.convert("RGBA")
        ground = Image.new("RGBA", opaque.size, "white")
        return Image.alpha_composite(ground, opaque).convert("RGB")
    return image.convert("RGB")


def _scaled(image: Image.Image, white: int) -> Image.Image | str:
    """Scale 32-bit pixels from 0 to ``white`` to 8 bits, or return the rule that they break."""
    values = np.asarray(image)
    if not ((values >= 0) & (values <= white)).all():  # NaN is in no range
        return f"{OUT_OF_RANGE} ({values.min():g} to {values.max():g}, not within 0 to {white})"
    share = white / 255
    return image.point(lambda value: value / share, "F").convert("L").convert("RGB")
