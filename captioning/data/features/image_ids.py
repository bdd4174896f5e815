"""Names under which files of features know an image, against the ids of annotations."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from captioning.data.photo_folder import PHOTO_SUFFIXES

_SUFFIXES = PHOTO_SUFFIXES | {".npz", ".npy"}
_NUMBERED = re.compile(r"(?:(?:coco_)?(?:train|val|test)20\d\d_|flickr30k_)?0*(\d+)", re.IGNORECASE)


def plain_id(name: str) -> str:
    """The image id that a file name stands for.

    ``COCO_val2014_000000000042.jpg``, ``coco_val2014_000000000042.npz`` and ``000000000042`` are
    the image ``42``; of other names the folder and the suffix are left out.
    """
    path = PurePosixPath(name)
    stem = path.stem if path.suffix.lower() in _SUFFIXES else path.name
    match = _NUMBERED.fullmatch(stem)
    return match[1] if match else stem


def plain_ids(keys: Mapping[str, int]) -> dict[str, int]:
    """Positions by `plain_id`, without those that two keys would share."""
    positions: dict[str, int] = {}
    shared: set[str] = set()
    for key, position in keys.items():
        name = plain_id(key)
        if positions.setdefault(name, position) != position:
            shared.add(name)
    return {name: position for name, position in positions.items() if name not in shared}


def find_by_id(keys: Mapping[str, int], image_ids: Sequence[str]) -> list[int]:
    """Positions of images, -1 where there is none.

    Args:
        keys: positions by the names in the store.
        image_ids: of annotations; an id that is no key is looked up by `plain_id`.
    """
    positions = [keys.get(image_id, -1) for image_id in image_ids]
    if -1 not in positions:
        return positions
    plain = plain_ids(keys)
    return [
        plain.get(plain_id(image_id), -1) if position < 0 else position
        for image_id, position in zip(image_ids, positions, strict=True)
    ]
