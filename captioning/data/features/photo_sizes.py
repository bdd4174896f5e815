"""Sizes of photos from annotations, for boxes in pixels whose file does not give them."""

from __future__ import annotations

from pathlib import Path

from captioning.data.json_files import load_json


def read_photo_sizes(path: str | Path) -> dict[str, tuple[float, float]]:
    """Width and height in pixels by image id, from ``images`` with ``id``, ``width``, ``height``.

    So COCO's annotations have them, and ruotianluo's ``cocotalk.json``.

    Raises:
        FileNotFoundError, ValueError: no such file, or another form.
    """
    return {
        record.identifier("id"): (
            float(record.integer("width", 1)),
            float(record.integer("height", 1)),
        )
        for record in load_json(path).records("images")
    }
