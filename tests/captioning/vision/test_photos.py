"""The one opener of photos."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import ExifTags, Image, ImageOps
from PIL.PngImagePlugin import PngImageFile

from captioning.vision.photos import load_rgb, photo_problem, photo_sizes, upright_rgb
from tests.photo_files import RULES, bad_photos, picture, turned


@pytest.fixture
def bad(tmp_path: Path) -> dict[str, Path]:
    return bad_photos(tmp_path)


def test_cut_photos_are_found_by_decoding(bad):
    for name in ("cut.jpg", "cut.png", "cut.webp"):
        assert photo_problem(bad[name]).startswith(RULES[name])
        with pytest.raises(ValueError, match=name):
            load_rgb(bad[name])


def test_decompression_bomb_is_not_decoded(tmp_path, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    photo = picture(tmp_path, "bomb.png")
    assert photo_problem(photo) == "photo is too large"
    with pytest.raises(ValueError, match="bomb.png: photo is too large; save it smaller"):
        load_rgb(photo)


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


def test_a_transparent_colour_is_laid_on_white(tmp_path):
    image = Image.new("RGB", (4, 4), (0, 0, 0))
    image.putpixel((1, 1), (9, 9, 9))
    image.save(tmp_path / "p.png", transparency=(0, 0, 0))
    opened = load_rgb(tmp_path / "p.png")
    assert (opened.mode, opened.has_transparency_data) == ("RGB", False)
    assert [opened.getpixel(place) for place in ((0, 0), (1, 1))] == [(255,) * 3, (9,) * 3]


def test_exif_orientation_is_applied(tmp_path):
    upright = load_rgb(turned(tmp_path / "t.png"))
    assert upright.size == (20, 30)
    assert upright.getpixel((10, 5)) == (255, 255, 255)
    assert upright.getpixel((10, 25)) == (0, 0, 0)
    assert photo_sizes(tmp_path / "t.png") == ((30, 20), (20, 30))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_orientation_is_turned_as_pillow_does(tmp_path, orientation):
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (4, 6, 3), dtype=np.uint8))
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    image.save(tmp_path / "a.png", exif=exif)
    upright = load_rgb(tmp_path / "a.png")
    with Image.open(tmp_path / "a.png") as stored:
        assert np.array_equal(np.asarray(upright), np.asarray(ImageOps.exif_transpose(stored)))
    assert photo_sizes(tmp_path / "a.png")[1] == upright.size
    assert np.array_equal(np.asarray(upright_rgb(upright)), np.asarray(upright)), "turned once"


def test_a_damaged_entry_of_exif_costs_neither_pixels_nor_turn(tmp_path):
    width_as_text = struct.pack("<HHI4s", ExifTags.Base.ImageWidth, 2, 4, b"wid\0")
    turn = struct.pack("<HHIHH", ExifTags.Base.Orientation, 3, 1, 6, 0)
    entries = b"II*\0\x08\0\0\0" + struct.pack("<H", 2) + width_as_text + turn + b"\0\0\0\0"
    Image.new("RGB", (30, 20)).save(tmp_path / "a.jpg", exif=b"Exif\0\0" + entries)
    assert photo_problem(tmp_path / "a.jpg") == ""
    assert load_rgb(tmp_path / "a.jpg").size == (20, 30)


@pytest.mark.parametrize("name", ["a.webp", "a.png"])
@pytest.mark.parametrize("exif", [b"Exif\0\0" + b"\0" * 16, b"Exif\0\0MM\0+\0\0\0", b"x"])
def test_exif_that_cannot_be_read_costs_no_pixels(tmp_path, name, exif):
    path = tmp_path / name
    Image.new("RGB", (30, 20), (200, 20, 20)).save(path, exif=exif)
    assert photo_problem(path) == ""
    assert load_rgb(path).size == (30, 20)
    assert photo_sizes(path) == ((30, 20), (30, 20))
    with Image.open(path) as stored:
        assert upright_rgb(stored).size == (30, 20)


def test_the_size_of_a_png_that_is_cut_is_none(bad):
    with pytest.raises(ValueError, match=r"cut\.png: cannot be opened as a photo"):
        photo_sizes(bad["cut.png"])


def test_a_jpeg_with_a_preview_behind_it_is_one_photo(tmp_path):
    photo, preview = Image.new("RGB", (32, 24), "red"), Image.new("RGB", (8, 6), "blue")
    photo.save(tmp_path / "IMG_1.JPG", format="MPO", save_all=True, append_images=[preview])
    assert photo_problem(tmp_path / "IMG_1.JPG") == ""
    opened = load_rgb(tmp_path / "IMG_1.JPG", smallest_side=6)
    assert opened.getpixel((3, 3))[0] > 200


def test_missing_and_animated_photos_are_named(bad, tmp_path):
    with pytest.raises(FileNotFoundError, match="none.jpg: no such photo"):
        load_rgb(tmp_path / "none.jpg")
    with pytest.raises(ValueError, match="moving.gif: photo is animated; save one frame"):
        load_rgb(bad["moving.gif"])


@pytest.mark.parametrize(
    ("values", "white"),
    [
        (np.float32([[0, 0.5, 1]]), [0, 127, 255]),
        (np.int32([[0, 257 * 100, 65535]]), [0, 100, 255]),
    ],
)
def test_pixels_of_32_bits_are_scaled(tmp_path, values, white):
    Image.fromarray(values).save(tmp_path / "a.tif")
    assert np.asarray(load_rgb(tmp_path / "a.tif"))[0, :, 1].tolist() == white
    assert photo_problem(tmp_path / "a.tif") == ""


@pytest.mark.parametrize(
    "values",
    [
        np.float32([[0, 200]]),
        np.float32([[-0.1, 1]]),
        np.float32([[0, np.nan]]),
        np.float32([[0, np.inf]]),
        np.int32([[0, 65536]]),
        np.int32([[-1, 5]]),
    ],
)
def test_pixels_of_32_bits_that_may_mean_anything_are_refused(tmp_path, values):
    Image.fromarray(values).save(tmp_path / "a.tif")
    assert photo_problem(tmp_path / "a.tif").startswith("photo has 32-bit pixels of an unknown")
    with pytest.raises(ValueError, match=r"a\.tif: photo has 32-bit .*; save it with 8 or 16 bits"):
        load_rgb(tmp_path / "a.tif")


def test_photos_are_refused_by_size_before_they_are_decoded(tmp_path):
    photo = picture(tmp_path, "a.png")
    assert load_rgb(photo, max_pixels=600).size == (30, 20)
    with pytest.raises(ValueError, match=r"a\.png: photo is too large \(30x20, at most 599 pix"):
        load_rgb(photo, max_pixels=599)


def test_sizes_of_what_is_no_photo(tmp_path, bad):
    with pytest.raises(ValueError, match=r"text\.jpg: cannot be opened as a photo"):
        photo_sizes(bad["text.jpg"])
    with pytest.raises(FileNotFoundError):
        photo_sizes(tmp_path / "none.jpg")


def test_a_photo_beyond_memory_is_refused(tmp_path, monkeypatch):
    def load(image: Image.Image) -> None:
        raise MemoryError

    Image.new("RGB", (2, 3)).save(tmp_path / "a.png")
    monkeypatch.setattr(PngImageFile, "load", load)
    with pytest.raises(ValueError, match=r"a\.png: cannot be opened"):
        photo_sizes(tmp_path / "a.png")
    assert photo_problem(tmp_path / "a.png")


def test_large_jpegs_may_come_smaller(tmp_path) -> None:
    path = tmp_path / "large.jpg"
    rows, columns = np.mgrid[0:320, 0:480]
    smooth = np.stack([rows / 2, columns / 2, (rows + columns) / 4], axis=2).astype(np.uint8)
    Image.fromarray(smooth).save(path, quality=95)
    assert load_rgb(path).size == (480, 320)
    assert load_rgb(path, smallest_side=161).size == (480, 320)
    half = load_rgb(path, smallest_side=160)
    assert half.size == (240, 160)
    expected = np.asarray(load_rgb(path).resize((240, 160), Image.Resampling.BOX)).astype(int)
    assert np.abs(np.asarray(half).astype(int) - expected).mean() < 2
