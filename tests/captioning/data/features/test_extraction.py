"""On a GPU the threads decode photos one by one, and the network has them in whole batches."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from PIL import Image

from captioning.data.features.extraction import BATCHES_DECODED_AHEAD, Extraction, Photo
from captioning.vision.backbones import build_backbone

THREADS, SIZE = 4, 8


class Loading:
    """Opens photos; the first ones only once all threads are at one each."""

    def __init__(self) -> None:
        self.number, self.together = 0, threading.Barrier(THREADS, timeout=20)
        self._lock = threading.Lock()

    def __call__(self, path: Path) -> Image.Image:
        with self._lock:
            self.number += 1
            number = self.number
        if number <= THREADS:
            self.together.wait()
        return Image.new("RGB", (8, 8), (int(path.stem), 0, 0))


def batches(number: int, load: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """What a network on a GPU would have: the photos' reds, batch by batch."""
    backbone = build_backbone(name="test_efficientnet", weights="random", image_size=64)
    extraction = Extraction(backbone, "grid", load, torch.device("cpu"), "float32")
    extraction.device = SimpleNamespace(type="cuda")  # pyright: ignore
    reds: Any = lambda decoded: [int(photo.pixels[0, 0, 0]) for photo in decoded]  # noqa: E731
    monkeypatch.setattr(extraction, "_records", reds)
    photos = [Photo(path=Path(f"{n}.png"), key=str(n), boxes=()) for n in range(number)]
    return extraction.in_batches(photos, SIZE, THREADS)  # pyright: ignore


def flat(groups: Sequence[Sequence[int]]) -> list[int]:
    return [value for group in groups for value in group]


def test_all_threads_decode_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    # fewer photos than a batch: by batches one thread would have them all, and the others wait
    found = list(batches(SIZE - 1, Loading(), monkeypatch))
    assert found == [list(range(SIZE - 1))]


def test_batches_are_whole_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    found = list(batches(3 * SIZE + 3, Loading(), monkeypatch))
    assert [len(batch) for batch in found] == [SIZE, SIZE, SIZE, 3]
    assert flat(found) == list(range(3 * SIZE + 3))


def test_a_bounded_number_of_photos_is_decoded_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    load = Loading()
    found = batches(20 * SIZE, load, monkeypatch)
    next(found)
    assert load.number <= (BATCHES_DECODED_AHEAD + 1) * SIZE + 1
    found.close()  # pyright: ignore
    assert load.number <= (BATCHES_DECODED_AHEAD + 1) * SIZE + 1


def test_a_photo_that_cannot_be_opened_ends_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(path: Path) -> Image.Image:
        if path.stem == "11":
            raise ValueError("11.png: cannot be opened")
        return Image.new("RGB", (8, 8))

    found = batches(3 * SIZE, load, monkeypatch)
    assert len(next(found)) == SIZE
    with pytest.raises(ValueError, match=r"11\.png"):
        next(found)
