"""A source of pictures that draws coloured squares, in no time."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

from PIL import Image

from augmentation.base import AbstractImageSource, Picture


class ToySource(AbstractImageSource):
    """One picture for each sample, caption and number of pictures that the sample had.

    Attributes:
        refuses: captions that get no picture.
        expected: lists of sample ids that were expected.
        num_released: times that it left the accelerator.
        num_closed: times that it was closed.
    """

    @property
    def works_ahead(self):
        return True

    def __init__(self, *, folder=None, refuses=()):
        self._folder = folder
        self.refuses, self.expected = refuses, []
        self.num_released = self.num_closed = 0

    @property
    def folder(self) -> Path:
        return Path(self._folder or Path(tempfile.gettempdir()) / "toy-pictures")

    def images(self, requests, *, seed):
        return [self._picture(request, seed) for request in requests]

    def _picture(self, request, seed):
        sample = request.sample
        if sample.caption in self.refuses:
            return Picture(path=None, problem="refused")
        text = f"{seed} {sample.sample_id} {sample.caption} {len(request.photos)}"
        digest = hashlib.sha256(text.encode())
        path = self.folder / f"{digest.hexdigest()[:12]}.png"
        self.folder.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), tuple(digest.digest()[:3])).save(path)
        return Picture(path=path, origin=f"toy:{text}", notes=("drawn",))

    def expect(self, requests, *, seed):
        self.expected.append([request.sample.sample_id for request in requests])

    def release(self):
        self.num_released += 1

    def close(self):
        self.num_closed += 1
