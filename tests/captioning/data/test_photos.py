from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from captioning.data.photos import check_photos, drop_photos, load_rgb, photo_problem
from captioning.data.roster import Dropped, build_roster
from captioning.types import Sample


def picture(folder: Path, name: str, mode: str = "RGB", **options) -> Path:
    path = folder / name
    Image.new(mode, (30, 20), options.pop("color", 0)).save(path, **options)
    return path


def noisy(folder: Path, name: str) -> Path:
    path = folder / name
    pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return path


@pytest.fixture
def bad(tmp_path) -> dict[str, Path]:
    """One photo for each rule that a photo can break."""
    (tmp_path / "empty.jpg").touch()
    (tmp_path / "text.jpg").write_text("<html>404</html>")
    for suffix in ("jpg", "png", "webp"):
        whole = noisy(tmp_path, f"cut.{suffix}")
        whole.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    frames = [Image.new("L", (9, 9), shade) for shade in (0, 90, 200)]
    frames[0].save(tmp_path / "moving.gif", save_all=True, append_images=frames[1:])
    picture(tmp_path, "large.png")
    names = ("empty.jpg", "text.jpg", "cut.jpg", "cut.png", "cut.webp", "moving.gif", "large.png")
    return {name: tmp_path / name for name in names}


RULES = {
    "empty.jpg": "photo is an empty file",
    "text.jpg": "photo is not an image",
    "cut.jpg": "photo is truncated or damaged",
    "cut.png": "photo is truncated or damaged",
    "cut.webp": "photo is ",  # Pillow's WebP reader calls a cut file no image
    "moving.gif": "photo is animated",
    "large.png": "photo is too large (30x20, at most 500 pixels)",
}


@pytest.mark.parametrize("num_workers", [0, 2])
def test_every_rule(tmp_path, bad, num_workers):
    good = [picture(tmp_path, f"good{n}.png", size) for n, size in enumerate(["L", "RGB"])]
    for photo in good:
        Image.open(photo).crop((0, 0, 10, 10)).save(photo)
    paths = [*bad.values(), *good, *bad.values()]
    many = [tmp_path / f"copy{n}.png" for n in range(64)]  # enough for two processes to start
    for photo in many:
        photo.write_bytes(good[0].read_bytes())
    dropped = check_photos(
        [*paths, *many],
        cache_path=tmp_path / "cache" / "photos.json",
        max_pixels=500,
        num_workers=num_workers,
    )
    found = {Path(drop.item).name: drop.rule for drop in dropped}
    assert set(found) == set(RULES)
    for name in ("empty.jpg", "text.jpg", "moving.gif", "large.png"):
        assert found[name] == RULES[name]


def test_cut_photos_are_found_by_decoding(bad):
    for name in ("cut.jpg", "cut.png", "cut.webp"):
        assert photo_problem(bad[name]).startswith(RULES[name])
        with pytest.raises(ValueError, match=name):
            load_rgb(bad[name])


def test_decompression_bomb_is_not_decoded(tmp_path, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    photo = picture(tmp_path, "bomb.png")
    assert photo_problem(photo) == "photo is too large"
    with pytest.raises(ValueError, match="bomb.png: cannot be decoded"):
        load_rgb(photo)


def test_results_are_kept_until_the_file_changes(tmp_path, monkeypatch):
    good, wrong = picture(tmp_path, "a.png"), tmp_path / "b.jpg"
    wrong.write_text("no")
    cache = tmp_path / "photos.json"
    first = check_photos([good, wrong], cache_path=cache)
    decoded: list[str] = []

    def seen(path: str, max_pixels: int) -> str:
        decoded.append(Path(path).name)
        return ""

    monkeypatch.setattr("captioning.data.photos.photo_problem", seen)
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


def test_limits_are_checked(tmp_path):
    with pytest.raises(ValueError, match="max_pixels must be at least 1"):
        check_photos([], cache_path=tmp_path / "c.json", max_pixels=0)


@pytest.mark.parametrize(
    ("mode", "suffix", "color", "rgb"),
    [
        ("RGB", "png", (9, 8, 7), (9, 8, 7)),
        ("L", "png", 70, (70, 70, 70)),
        ("1", "png", 1, (255, 255, 255)),
        ("LA", "png", (0, 0), (255, 255, 255)),
        ("RGBA", "png", (255, 0, 0, 0), (255, 255, 255)),
        ("RGBA", "png", (255, 0, 0, 255), (255, 0, 0)),
        ("P", "png", 0, None),
        ("CMYK", "tif", (0, 255, 255, 0), (255, 0, 0)),
        ("I;16", "png", 257 * 100, (100, 100, 100)),
    ],
)
def test_every_mode_becomes_rgb(tmp_path, mode, suffix, color, rgb):
    path = picture(tmp_path, f"a.{suffix}", mode, color=color)
    image = load_rgb(path)
    assert (image.mode, image.size) == ("RGB", (30, 20))
    assert rgb is None or image.getpixel((3, 3)) == rgb
    assert photo_problem(path) == ""


def test_transparent_palette_is_laid_on_white(tmp_path):
    image = Image.new("P", (4, 4), 1)
    image.putpalette([0, 0, 0, 255, 0, 0])
    image.save(tmp_path / "p.png", transparency=1)
    assert load_rgb(tmp_path / "p.png").getpixel((0, 0)) == (255, 255, 255)


def test_exif_orientation_is_applied(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    image = Image.new("RGB", (30, 20))
    image.paste((255, 255, 255), (0, 0, 15, 20))  # the left half is white
    image.save(tmp_path / "t.png", exif=exif)
    turned = load_rgb(tmp_path / "t.png")
    assert turned.size == (20, 30)
    assert turned.getpixel((10, 5)) == (255, 255, 255)  # and is on top once turned
    assert turned.getpixel((10, 25)) == (0, 0, 0)


def test_missing_and_animated_photos_are_named(bad, tmp_path):
    with pytest.raises(FileNotFoundError, match="none.jpg: no such photo"):
        load_rgb(tmp_path / "none.jpg")
    with pytest.raises(ValueError, match="moving.gif: photo is animated; save one frame"):
        load_rgb(bad["moving.gif"])


def roster_of(*paths: str):
    samples = [
        Sample(row=0, sample_id=f"{n}#0", image_id=str(n), image_path=Path(path), caption="A dog.")
        for n, path in enumerate(paths)
    ]
    return build_roster("r", samples, [Dropped(item="x", rule="earlier")])


def test_drop_photos():
    roster = roster_of("a.jpg", "b.jpg", "c.jpg")
    wrong = [Dropped(item="b.jpg", rule="photo is animated"), Dropped(item="z.jpg", rule="odd")]
    left = drop_photos(roster, wrong)
    assert [(s.row, s.image_id) for s in left.samples] == [(0, "0"), (1, "2")]
    assert [drop.item for drop in left.dropped] == ["x", "b.jpg"]
    assert drop_photos(roster, wrong[1:]) is roster
    with pytest.raises(ValueError, match="every photo is bad; the first, b.jpg: photo is anim"):
        drop_photos(roster_of("b.jpg"), wrong)


def test_real_photos_are_good(shared_data, tmp_path):
    photos = sorted((shared_data / "flickr8k" / "images").iterdir())[:200]
    assert check_photos(photos, cache_path=tmp_path / "c.json") == []
