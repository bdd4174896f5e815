"""Pasting: what is covered, what stays, and which pixel comes from where."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from augmentation.regions import paste as pasting
from augmentation.regions.paste import Blending, Paste, PhotoCache, paste

HARD = Blending(feather=0)
RED = Image.new("RGB", (20, 20), (255, 0, 0))


def move(target, source=(0, 0, 20, 20), label="dog") -> Paste:
    return Paste(source=Path("a"), source_box=source, target_box=target, label=label)


def ground(size: int = 40) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 200, (size, size, 3), np.uint8)


def test_pixels_outside_the_boxes_stay_and_the_map_says_whose_the_others_are():
    before = ground()
    moves = [move((2, 2, 12, 12)), move((20.5, 20, 30, 30))]
    result = paste(before, moves, [RED, RED], blending=Blending(feather=3))
    assert (result.picture[result.owners == 0] == before[result.owners == 0]).all()
    assert (np.argwhere(result.owners == 1).min(0) == 2).all()
    assert (np.argwhere(result.owners == 1).max(0) == 11).all()
    assert (result.owners == 2).sum() == 100  # half a pixel is a pixel
    assert (result.picture[7, 7] == (255, 0, 0)).all()
    assert (before == ground()).all()


def test_edges_fade_in_but_not_at_the_border_of_the_photo():
    black = np.zeros((40, 40, 3), np.uint8)
    result = paste(black, [move((0, 10, 40, 30))], [RED], blending=Blending(feather=3))
    rows = result.picture[:, 20, 0]
    assert rows[9:15].tolist() == [0, 64, 128, 191, 255, 255]
    assert (result.picture[20, :, 0] == 255).all()


def test_hard_edges_where_no_feather_is_asked_for():
    black = np.zeros((40, 40, 3), np.uint8)
    result = paste(black, [move((5, 5, 15, 15))], [RED], blending=HARD)
    assert set(np.unique(result.picture[..., 0])) == {0, 255}


def test_what_must_stay_visible_does():
    before = ground()
    result = paste(
        before, [move((0, 0, 20, 20))], [RED], blending=HARD, protected=[(10, 0, 20, 20)]
    )
    assert (result.owners[:20, :10] == 1).all()
    assert (result.picture[:, 10:] == before[:, 10:]).all()


def test_a_patch_of_which_too_much_is_left_out_is_refused():
    before = ground()
    result = paste(before, [move((0, 0, 20, 20))], [RED], blending=HARD, protected=[(9, 0, 20, 20)])
    assert result.problem == pasting.COVERED
    assert (result.picture == before).all()
    assert not result.owners.any()


def test_a_patch_of_which_nothing_would_be_seen_is_refused_whatever_may_be_left_out():
    blending = Blending(feather=0, max_omitted=1)
    result = paste(
        ground(), [move((0, 0, 20, 20))], [RED], blending=blending, protected=[(0, 0, 20, 20)]
    )
    assert result.problem == pasting.COVERED


def test_a_box_partly_outside_shows_its_part_of_the_patch():
    half = RED.copy()
    half.paste((0, 0, 255), (10, 0, 20, 20))
    result = paste(ground(), [move((-20, 10, 20, 20))], [half], blending=HARD)
    assert (result.picture[12, 2:20] == (0, 0, 255)).all()  # the red half would lie outside
    assert (result.owners > 0).sum() == 200


def test_a_source_box_partly_outside_is_cut():
    source = (10, 10, 50, 50)
    result = paste(ground(), [move((0, 0, 9, 9), source)], [RED], blending=HARD)
    assert (result.picture[:9, :9] == (255, 0, 0)).all()


@pytest.mark.parametrize(
    ("outside", "problem"),
    [
        (move((40, 0, 60, 20)), pasting.OUTSIDE),
        (move((0, 0, 9, 9), (20, 0, 30, 9)), pasting.SOURCE_OUTSIDE),
    ],
)
def test_boxes_outside_are_refused(outside, problem):
    assert paste(ground(), [outside], [RED], blending=HARD).problem == problem


def test_boxes_of_one_pixel():
    result = paste(ground(), [move((5, 5, 6, 6), (3, 3, 4, 4))], [RED], blending=Blending())
    assert (result.owners > 0).sum() == 1
    assert (result.picture[5, 5] == (255, 0, 0)).all()


def test_small_patches_lie_on_large_ones():
    moves = [move((5, 5, 10, 10)), move((0, 0, 20, 20))]
    result = paste(ground(), moves, [RED, RED], blending=HARD)
    assert (result.owners == 1).sum() == 25


@pytest.mark.parametrize("mode", ["L", "CMYK", "P", "LA", "I;16"])
def test_photos_of_any_mode_are_pasted_in_colour(tmp_path: Path, mode: str):
    path = tmp_path / ("a.tif" if mode in ("CMYK", "I;16") else "a.png")
    if mode == "I;16":
        Image.fromarray(np.full((20, 20), 60000, np.uint16)).save(path)
    else:
        Image.new("L", (20, 20), 250).convert("RGB" if mode == "CMYK" else "L").convert(mode).save(
            path
        )
    source = PhotoCache().photo(path)
    result = paste(ground(), [move((5, 5, 15, 15))], [source], blending=HARD)
    assert (result.picture[5:15, 5:15] > 200).all()


def test_a_photo_turned_by_exif_is_cut_as_it_is_seen(tmp_path: Path):
    picture = Image.new("RGB", (40, 20), (0, 0, 0))
    picture.paste((255, 255, 255), (0, 0, 20, 20))
    exif = Image.Exif()
    exif[0x0112] = 6  # a quarter clockwise: the white left half is on top
    picture.save(tmp_path / "a.jpg", exif=exif)
    source = PhotoCache().photo(tmp_path / "a.jpg")
    assert source.size == (20, 40)
    result = paste(ground(), [move((0, 0, 10, 10), (0, 0, 20, 18))], [source], blending=HARD)
    assert (result.picture[:10, :10] > 240).all()


def test_the_shelf_keeps_the_last_photos_alone(tmp_path: Path):
    shelf = PhotoCache(capacity=1)
    for name in "ab":
        RED.save(tmp_path / f"{name}.png")
    first = shelf.photo(tmp_path / "a.png")
    assert shelf.photo(tmp_path / "a.png") is first
    shelf.photo(tmp_path / "b.png")
    assert shelf.photo(tmp_path / "a.png") is not first


def test_the_shelf_drops_what_was_used_longest_ago(tmp_path: Path):
    shelf = PhotoCache(capacity=2)
    for name in "abc":
        RED.save(tmp_path / f"{name}.png")
    first, second, _, _ = (shelf.photo(tmp_path / f"{name}.png") for name in "abac")
    assert shelf.photo(tmp_path / "a.png") is first
    assert shelf.photo(tmp_path / "b.png") is not second


def test_wrong_settings_and_pictures_are_refused():
    with pytest.raises(ValueError, match="max_omitted"):
        Blending(max_omitted=2)
    with pytest.raises(ValueError, match="uint8"):
        paste(np.zeros((4, 4)), [], [], blending=HARD)
