"""Photos that the page sent: opened as all photos are, and kept for a while."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

from captioning.vision.photos import load_rgb
from curation.review.page_server import Refused, as_jpeg

MAX_BYTES = 64_000_000
NUM_KEPT = 16
MAX_SIDE = 1600  # of the picture that the page shows, in pixels


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """A photo.

    Attributes:
        path: the file as it came.
        size: width and height, upright.
        picture: JPEG for the page.
    """

    path: Path
    size: tuple[int, int]
    picture: bytes


class Uploads:
    """The photos of one program; the latest are kept.

    Args:
        folder: an empty one.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._kept: dict[int, Upload] = {}
        self._number = 0

    def add(self, content: bytes) -> int:
        """Keep a photo; its number.

        Raises:
            ValueError: no photo, or a broken, animated or huge one; says which, and the remedy.
        """
        with self._lock:  # a photo of the largest size takes 300 MB while it is opened
            self._number += 1
            path = self._folder / str(self._number)
            path.write_bytes(content)
            try:
                photo = load_rgb(path)
            except ValueError as error:
                path.unlink()
                raise ValueError(str(error).removeprefix(f"{path}: ")) from error
            picture = as_jpeg(photo, max_side=MAX_SIDE)
            self._kept[self._number] = Upload(path=path, size=photo.size, picture=picture)
            while len(self._kept) > NUM_KEPT:
                self._kept.pop(next(iter(self._kept))).path.unlink()
            return self._number

    def photo(self, number: int) -> Upload:
        """A photo that is still kept.

        Raises:
            Refused: it is not.
        """
        upload = self._kept.get(number)
        if upload is None:
            raise Refused(404, "this photo is no longer kept; choose it again")
        return upload
