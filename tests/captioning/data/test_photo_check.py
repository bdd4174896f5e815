from __future__ import annotations

import json
import os
import warnings
from pathlib import Path

import pytest
from PIL import Image

from captioning.data.roster import Dropped, build_roster
from captioning.training.rosters import check_photos, drop_photos
from captioning.types import Sample
from tests.photo_files import RULES, bad_photos, picture


@pytest.fixture
def bad(tmp_path: Path) -> dict[str, Path]:
    return bad_photos(tmp_path)


@pytest.mark.parametrize("num_workers", [1, 3, None])
def test_every_rule(tmp_path, bad, num_workers):
    good = [picture(tmp_path, f"good{n}.png", size) for n, size in enumerate(["L", "RGB"])]
    for photo in good:
        Image.open(photo).crop((0, 0, 10, 10)).save(photo)
    paths = [*bad.values(), *good, *bad.values()]
    many = [tmp_path / f"copy{n}.png" for n in range(64)]
    filters = list(warnings.filters)
    for photo in many:
        photo.write_bytes(good[0].read_bytes())
    dropped = check_photos(
        [*paths, *many],
        cache_path=tmp_path / "cache" / "photos.json",
        max_pixels=500,
        num_workers=num_workers,
    )
    rules = {Path(drop.item).name: drop.rule for drop in dropped}
    assert set(rules) == set(RULES)
    assert warnings.filters == filters  # which opening a photo changes for a moment
    for name in ("empty.jpg", "text.jpg", "moving.gif", "large.png"):
        assert rules[name] == RULES[name]


def test_results_are_kept_until_the_file_changes(tmp_path, monkeypatch):
    good, wrong = picture(tmp_path, "a.png"), tmp_path / "b.jpg"
    wrong.write_text("no")
    cache = tmp_path / "photos.json"
    first = check_photos([good, wrong], cache_path=cache)
    decoded: list[str] = []

    def checked(path: str, *, max_pixels: int) -> str:
        decoded.append(Path(path).name)
        return ""

    monkeypatch.setattr("captioning.training.rosters.photo_problem", checked)
    assert check_photos([good, wrong], cache_path=cache) == first
    assert decoded == []
    os.utime(good, ns=(1, 1))
    assert check_photos([good, wrong], cache_path=cache) == first
    assert decoded == ["a.png"]
    check_photos([good, wrong], cache_path=cache, max_pixels=7)
    assert decoded == ["a.png", "a.png", "b.jpg"]
    assert [path.name for path in tmp_path.glob("*.tmp")] == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"photos": 3}', '{"version": 1, "photos": {}}'])
def test_damaged_cache_is_built_again(tmp_path, text):
    cache = tmp_path / "photos.json"
    cache.write_text(text)
    assert check_photos([picture(tmp_path, "a.png")], cache_path=cache) == []
    assert len(json.loads(cache.read_text())["photos"]) == 1


def test_missing_photo_is_not_remembered(tmp_path):
    cache = tmp_path / "photos.json"
    path = tmp_path / "a.png"
    assert [d.rule for d in check_photos([path], cache_path=cache)] == ["photo missing"]
    picture(tmp_path, "a.png")
    assert check_photos([path], cache_path=cache) == []


def test_what_was_checked_before_a_stop_is_kept(tmp_path, monkeypatch):
    photos = [picture(tmp_path, f"{n}.png") for n in range(6)]
    cache = tmp_path / "photos.json"

    def checked(path: str, *, max_pixels: int) -> str:
        if path.endswith("3.png"):
            raise KeyboardInterrupt
        return ""

    monkeypatch.setattr("captioning.training.rosters.photo_problem", checked)
    with pytest.raises(KeyboardInterrupt):
        check_photos(photos, cache_path=cache, num_workers=1)
    kept = json.loads(cache.read_text())["photos"]
    assert sorted(Path(path).name for path in kept) == ["0.png", "1.png", "2.png"]


def test_limits_are_checked(tmp_path):
    with pytest.raises(ValueError, match="max_pixels and num_workers must be at least 1"):
        check_photos([], cache_path=tmp_path / "c.json", max_pixels=0)


def roster_of(*paths: str):
    samples = [
        Sample(row=0, sample_id=f"{n}#0", image_id=str(n), image_path=Path(path), caption="A dog.")
        for n, path in enumerate(paths)
    ]
    return build_roster("r", samples, [Dropped(item="x", rule="earlier")])


def test_drop_photos():
    roster = roster_of("a.jpg", "b.jpg", "c.jpg")
    wrong = [Dropped(item="b.jpg", rule="photo is animated"), Dropped(item="z.jpg", rule="odd")]
    remaining = drop_photos(roster, wrong)
    assert [(s.row, s.image_id) for s in remaining.samples] == [(0, "0"), (1, "2")]
    assert [drop.item for drop in remaining.dropped] == ["x", "b.jpg"]
    assert drop_photos(roster, wrong[1:]) is roster
    with pytest.raises(ValueError, match="every photo is bad; the first, b.jpg: photo is anim"):
        drop_photos(roster_of("b.jpg"), wrong)


def test_real_photos_are_good(shared_data, tmp_path):
    photos = sorted((shared_data / "flickr8k" / "images").iterdir())[:200]
    assert check_photos(photos, cache_path=tmp_path / "c.json") == []
