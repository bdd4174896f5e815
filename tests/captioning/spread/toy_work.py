"""Workers of tests, which other processes import."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from captioning.spread.base import Form, Job, Shard
from captioning.spread.ray_data import Order, Outcome, RayData, ShardWorker
from captioning.vision.backbones import Backbone, build_backbone


class Draws:
    """Gives each number a draw of its own, and its neighbours of the unit.

    Args:
        trouble: numbers by what becomes of them: ``bad`` fails, ``kills`` ends the process once,
            ``deadly`` always.
        folder: for what was done.
        form: of the records.
        wait: seconds for a number.
    """

    def __init__(
        self, trouble: dict[str, int], folder: Path, form: Form = "lines", wait: float = 0.0
    ) -> None:
        if "build" in trouble:
            raise FileNotFoundError("no weights here")
        self._trouble, self._folder, self._form, self._wait = trouble, folder, form, wait
        self.identity = {"weights": trouble.get("weights", 0)}

    def __call__(self, items: Sequence[int]) -> list[Any]:
        self._meet_trouble(items)
        time.sleep(self._wait * len(items))
        draws = [float(np.random.default_rng(number).random()) for number in items]
        if self._form == "arrays":
            return [np.full((number % 3 + 1, 2), number, np.float16) for number in items]
        return [
            {"number": number, "draw": draw, "unit": list(items)}
            for number, draw in zip(items, draws, strict=True)
        ]

    def _meet_trouble(self, items: Sequence[int]) -> None:
        if self._trouble.get("bad") in items:
            raise ValueError(f"{self._trouble['bad']}.jpg: cannot be opened")
        mark = self._folder / "killed"
        deadly = self._trouble.get("deadly") in items
        if deadly or (self._trouble.get("kills") in items and not mark.exists()):
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)


class Backwards(RayData):
    """The same without Ray: shards are computed in this process, the last one first."""

    computed: ClassVar[list[int]] = []

    @contextmanager
    def _cluster(self, needed: bool) -> Iterator[Any]:
        self.computed.clear()
        yield None

    def _outcomes(
        self, ray: Any, order: Order, shards: Sequence[Shard]
    ) -> Iterator[tuple[int, Outcome]]:
        workers = [ShardWorker(order), ShardWorker(order)]
        for shard in reversed(shards):
            self.computed.append(shard.number)
            yield shard.number, workers[shard.number % 2].compute(shard)


def toy_job(
    folder: Path, number: int = 20, *, form: Form = "lines", wait: float = 0.0, **trouble: int
) -> Job:
    """A job of some numbers, two at a time, of which six are saved at once."""
    return Job(
        name="draws",
        build=partial(Draws, trouble, folder, form, wait),
        items=range(number),
        unit=2,
        save_every=6,
        settings={"seed": 0},
        folder=folder / "parts",
        form=form,
    )


def seeded_backbone() -> Backbone:
    """A small network, the same in every process."""
    torch.manual_seed(0)
    return build_backbone(name="test_efficientnet", weights="random", image_size=64)


class BrightWords:
    """Scores pairs by the photo's brightness and the caption's length."""

    name, identity, is_probability = "bright words", "bright words 1", False

    def score_pairs(
        self, photos: Sequence[Image.Image], captions: Sequence[str], photo_of: Sequence[int]
    ) -> Tensor:
        means = [float(np.asarray(photo).mean()) for photo in photos]
        values = [means[n] + len(text) for n, text in zip(photo_of, captions, strict=True)]
        return torch.tensor(values)

    def release(self) -> None: ...


def main() -> None:
    """Work as a command does: a line of records a shard, on standard output."""
    import sys

    folder, address = sys.argv[1:]
    for records in RayData(address=address).results(toy_job(Path(folder), wait=0.15)):
        print(len(records), flush=True)
        time.sleep(60)


if __name__ == "__main__":
    main()
