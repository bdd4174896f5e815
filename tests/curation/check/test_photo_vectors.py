"""Photos are read once, in an order that no layout changes, and their vectors are kept."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from captioning.data.roster import Roster, build_roster
from captioning.types import Sample
from captioning.vision import photos
from curation.check import photo_vectors
from curation.check.photo_vectors import KeptVectors, look_at


class Means:
    """Mean colours; as of a network, last digits depend on what else is in the batch."""

    space, identity, dim = "means", "means/of colours", 3

    def __init__(self) -> None:
        self.number = 0

    def embed_photos(self, photos: Sequence[Image.Image]) -> torch.Tensor:
        self.number += len(photos)
        means = torch.tensor(np.stack([np.asarray(p).mean((0, 1)) for p in photos])).float()
        order = torch.arange(1, len(means) + 1)[:, None]
        return means / 255 + 1e-4 * (means * order).mean(0)

    def embed_texts(self, texts: Sequence[str]) -> torch.Tensor:
        return torch.ones(len(texts), 3)


def folder_of(folder: Path, number: int, suffix: str) -> list[Path]:
    """Photos, which BMP makes of one size and PNG does not; the last is a copy of the first."""
    folder.mkdir()
    paths = []
    for place in range(number):
        rng = np.random.default_rng(place)
        pixels = rng.integers(0, 2 + place, (20, 24, 3), np.uint8)
        paths.append(folder / f"{place}.{suffix}")
        Image.fromarray(pixels).save(paths[-1])
    shutil.copy(paths[0], folder / f"copy.{suffix}")
    return [*paths, folder / f"copy.{suffix}"]


def roster_of(paths: Sequence[Path]) -> Roster:
    """A caption a photo."""
    return build_roster(
        "set",
        [
            Sample(row=row, sample_id=f"{path}#0", image_id=str(path), image_path=path, caption="x")
            for row, path in enumerate(paths)
        ],
    )


def look(paths: Sequence[Path], **options: Any) -> tuple[Any, Means]:
    """Evidence of photos, and their encoder."""
    encoder = options.pop("encoder", None) or Means()
    return look_at(roster_of(paths), encoder, None, quiet=True, **options), encoder


def test_each_photo_is_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = folder_of(tmp_path / "set", 9, "bmp")
    opened: Counter[Path] = Counter()
    plain = photo_vectors.open_photo

    def open_photo(path: Path) -> Any:
        opened[path] += 1
        return plain(path)

    def elsewhere(path: Path) -> Any:
        pytest.fail(f"{path} is opened again")

    monkeypatch.setattr(photo_vectors, "open_photo", open_photo)
    monkeypatch.setattr(photos, "open_photo", elsewhere)
    monkeypatch.setattr(photo_vectors, "content_key", elsewhere)
    real = Image.open
    monkeypatch.setattr(
        Image, "open", lambda file: elsewhere(file) if isinstance(file, Path) else real(file)
    )
    evidence, _ = look(paths)
    assert opened == dict.fromkeys(paths, 1)
    assert all(not facts.problem and facts.key for facts in evidence.photos.values())


@pytest.mark.parametrize("suffix", ["bmp", "png"])
@pytest.mark.parametrize("most", [512, 3])
def test_vectors_are_those_of_any_order_of_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, most: int
) -> None:
    monkeypatch.setattr(photo_vectors, "_PHOTOS_AT_ONCE", 4)
    monkeypatch.setattr(photo_vectors, "_MOST_OF_A_SIZE", most)
    paths = folder_of(tmp_path / "set", 20, suffix)
    evidence, _ = look(paths)
    order = np.random.default_rng(0).permutation(len(paths)).tolist()
    moved = [tmp_path / f"{number}.{suffix}" for number in range(len(paths))]
    for place, path in zip(order, moved, strict=True):
        shutil.copy(paths[place], path)
    again, _ = look(moved)
    assert evidence.photo_vectors is not None
    assert np.array_equal(again.photo_vectors, evidence.photo_vectors[order])
    facts, others = list(evidence.photos.values()), list(again.photos.values())
    assert [facts[place] for place in order] == others


def test_vectors_are_kept_by_content(tmp_path: Path) -> None:
    paths = folder_of(tmp_path / "set", 12, "png")
    (tmp_path / "set" / "bad.png").write_bytes(b"no photo")
    paths = [*paths, tmp_path / "set" / "bad.png"]
    cache = tmp_path / "cache"
    first, encoder = look(paths, cache_folder=cache)
    assert encoder.number == 13
    Image.new("RGB", (20, 24), "red").save(paths[3])
    again, second = look(paths, cache_folder=cache)
    assert second.number == 1, "the photo that has changed"
    same = [place for place in range(len(paths)) if place != 3]
    assert np.array_equal(again.photo_vectors[same], first.photo_vectors[same], equal_nan=True)
    assert np.isnan(first.photo_vectors[-1]).all()
    assert not np.array_equal(again.photo_vectors[3], first.photo_vectors[3])
    other = Means()
    other.identity = "others"
    assert look(paths, cache_folder=cache, encoder=other)[1].number == 13


def test_a_damaged_file_of_vectors_is_named(tmp_path: Path) -> None:
    look(folder_of(tmp_path / "set", 3, "png"), cache_folder=tmp_path)
    [file] = tmp_path.glob("photo_vectors/*/*.safetensors")
    file.write_bytes(b"half a file")
    with pytest.raises(ValueError, match=f"{file.name} is damaged.*delete the file"):
        KeptVectors(tmp_path, Means.identity)
