"""A generator without a network: a square in the colour that the prompt names, on a seeded ground.

Words in a prompt make it fail: ``raise``, ``nan``, ``small``, ``blank``, ``unsafe``; ``die`` ends
the process if that is not the test's own.
"""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import numpy as np

from augmentation.base import ImageRequest
from augmentation.image_replacement.generator import AbstractGenerator
from captioning.types import Sample

SIZE = 16
COLOURS = {"red": (0.9, 0.1, 0.1), "green": (0.1, 0.8, 0.2), "blue": (0.1, 0.2, 0.9)}


class Squares(AbstractGenerator):
    """Counts its batches; ``room`` is the largest batch that memory holds."""

    def __init__(self, *, batch_size=4, room=100, version=1, max_tokens=None):
        self.batch_size, self.room, self.version = batch_size, room, version
        self.limit = max_tokens
        self.batches: list[list[str]] = []
        self.num_loads = self.num_releases = 0

    @property
    def name(self):
        return f"squares@{self.version}"

    def recipe(self):
        return {"model": "squares", "version": self.version}

    def size(self):
        return SIZE, SIZE

    @property
    def max_tokens(self):
        return self.limit

    def load(self):
        self.num_loads += 1

    def release(self):
        self.num_releases += 1

    def generate(self, jobs):
        self.batches.append([job.prompt for job in jobs])
        if len(jobs) > self.room:
            raise RuntimeError("CUDA out of memory. Tried to allocate 9 GiB")
        return [self._draw(job) for job in jobs]

    def _draw(self, job):
        words = job.prompt.split()
        if "die" in words and multiprocessing.parent_process() is not None:
            os._exit(7)
        if "raise" in words:
            raise ValueError("no such picture")
        if "unsafe" in words:
            return None
        rng = np.random.default_rng(job.seed)
        picture = np.repeat(rng.uniform(0, 0.5, (1, 1, 3)), SIZE, 0).repeat(SIZE, 1)
        picture[4:12, 4:12] = next((COLOURS[w] for w in words if w in COLOURS), (1, 1, 1))
        if "nan" in words:
            picture[0, 0] = np.nan
        if "blank" in words:
            picture[:] = 0.5
        return picture[: SIZE // 2] if "small" in words else picture


def request(
    caption: str, *other_captions: str, sample_id: str = "a#0", had: int = 1
) -> ImageRequest:
    """A request of a sample that had so many pictures."""
    photos = tuple(Path(f"{number}.jpg") for number in range(had))
    sample = Sample(
        row=0, sample_id=sample_id, image_id="a", image_path=photos[-1], caption=caption or "x"
    )
    return ImageRequest(sample=sample, captions=(caption, *other_captions), photos=photos)
