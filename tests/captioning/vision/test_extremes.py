"""Photos of extreme form are tried before a training, few of a set of many."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from captioning.data.batches.image_text import refused_photos
from captioning.vision.photos import load_rgb


def written(folder: Path, sizes: dict[str, tuple[int, int]]) -> list[Path]:
    for name, size in sizes.items():
        Image.new("RGB", size).save(folder / name)
    return [folder / name for name in sizes]


USUAL = {f"{number}.png": (60 + number, 50) for number in range(30)}


@pytest.mark.parametrize("size", [(1, 900), (900, 1), (7, 7), (2000, 1500)])
def test_the_one_photo_of_extreme_form_is_found(tmp_path: Path, size: tuple[int, int]) -> None:
    paths = written(tmp_path, USUAL | {"odd.png": size})
    tried: list[Path] = []

    def problem(path: Path) -> str:
        tried.append(path)
        return "odd" if load_rgb(path).size == size else ""

    assert refused_photos(paths, problem) == {tmp_path / "odd.png": "odd"}
    assert len(tried) < 12


def test_all_photos_of_refused_forms_are_found(tmp_path: Path) -> None:
    odd = {f"odd{number}.png": (5 + number % 3, 400) for number in range(9)}
    paths = written(tmp_path, USUAL | odd)
    refused = refused_photos(paths, lambda path: "" if load_rgb(path).width > 20 else "narrow")
    assert set(refused) == {tmp_path / name for name in odd}


def test_a_photo_without_a_header_is_tried(tmp_path: Path) -> None:
    paths = written(tmp_path, USUAL)
    (tmp_path / "broken.png").write_bytes(b"\x89PNG\r\n")
    paths.append(tmp_path / "broken.png")
    reasons = refused_photos(paths, lambda path: "broken" if path.name == "broken.png" else "")
    assert reasons == {tmp_path / "broken.png": "broken"}


def test_nothing_is_refused_where_every_photo_is_taken(tmp_path: Path) -> None:
    assert refused_photos(written(tmp_path, USUAL), lambda path: "") == {}
