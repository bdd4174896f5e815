"""Who embeds photos has the next ones opened by threads, and gives the results in order."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from augmentation.image_replacement import retrieval
from captioning.metrics import extra
from captioning.types import Sample
from curation.score.duplicate import Duplicate
from curation.score.similarity import Similarity

NUMBER = 70  # more than a batch of any of them


class Reds:
    """The red of each photo as a vector; it waits until a photo of the next batch was opened."""

    space, identity, dim = "reds", "reds", 1

    def __init__(self, opened: Opened) -> None:
        self._opened, self.sizes = opened, []

    def embed_photos(self, photos: Any) -> torch.Tensor:
        self.sizes.append(len(photos))
        self._opened.wait(min(sum(self.sizes) + 1, NUMBER))
        return torch.tensor([[float(photo.getpixel((0, 0))[0])] for photo in photos])


class Opened:
    """Opens photos whose red is their number, and counts them."""

    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []
        self._changed = threading.Condition()

    def __call__(self, path: Path, **_: Any) -> Image.Image:
        with self._changed:
            self.threads.append(threading.current_thread())
            self._changed.notify_all()
        return Image.new("RGB", (20, 20), (int(path.stem), 0, 0))

    def wait(self, number: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.threads) >= number, timeout=20)


@pytest.fixture
def opened() -> Opened:
    return Opened()


@pytest.fixture
def paths() -> list[Path]:
    return [Path(f"{number}.png") for number in range(NUMBER)]


def by_threads(opened: Opened) -> bool:
    return len(opened.threads) == NUMBER and threading.main_thread() not in opened.threads


def test_similarity(opened: Opened, paths: list[Path]) -> None:
    encoder: Any = Reds(opened)
    score = Similarity(encoder=encoder, load=opened)
    score._embed(paths)
    assert [float(score._photos[path]) for path in paths] == list(range(NUMBER))
    assert encoder.sizes == [64, 64]  # the last one is filled up
    assert by_threads(opened)


def test_duplicate(opened: Opened, paths: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "curation.score.duplicate.difference_hash", lambda photo: photo.getpixel((0, 0))[0]
    )
    score = Duplicate(load=opened, max_bits=0)
    samples: Any = [sample_of(path) for path in paths]
    assert len(list(score._groups(samples))) == NUMBER
    assert [score._hashes[path] for path in paths] == list(range(NUMBER))
    assert by_threads(opened)


def sample_of(path: Path) -> Any:
    return Sample(row=0, sample_id=path.stem, image_id=path.stem, image_path=path, caption="a")


def test_the_metric(opened: Opened, paths: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extra, "load_rgb", opened)
    encoder: Any = Reds(opened)
    metric = extra.Similarity(encoder=encoder, batch_size=32)
    vectors = metric._embed({f"image {path.stem}": path for path in paths})
    assert [*vectors] == [f"image {number}" for number in range(NUMBER)]
    assert [float(vector) for vector in vectors.values()] == list(range(NUMBER))
    assert encoder.sizes == [32, 32, 6]
    assert by_threads(opened)


def test_the_pool(opened: Opened, paths: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    def load(path: Path) -> Image.Image:
        photo = opened(path)
        if path.stem == "20":
            raise ValueError("20.png cannot be opened")
        return photo

    monkeypatch.setattr(retrieval, "load_rgb", load)
    encoder: Any = Reds(opened)
    embedded = retrieval.PhotoIndex(encoder=encoder).embed(paths)
    numbers = [number for number in range(NUMBER) if number != 20]
    assert [int(path.stem) for path in embedded.paths] == numbers
    assert embedded.vectors.flatten().tolist() == numbers
    assert embedded.thumbnails[:, 0, 0, 0].tolist() == numbers
    assert encoder.sizes == [16, 15, 16, 16, 6]
    assert by_threads(opened)
