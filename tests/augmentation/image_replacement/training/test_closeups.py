"""Windows around what captions name: whole, in place, and the same every time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from augmentation.image_replacement.training.closeups import read_closeups, regions_within
from captioning.data.batches.controls import mentioned_regions
from captioning.data.roster import Roster, build_roster
from captioning.types import Phrase, Region, Sample
from captioning.vision.photos import load_rgb

DOG, BALL, SUN = (10.0, 30.0, 30.0, 50.0), (32.0, 44.0, 38.0, 50.0), (85.0, 2.0, 95.0, 12.0)
COLOURS = {"dog": (200, 20, 20), "ball": (20, 200, 20), "sun": (240, 240, 20)}


def phrase(caption: str, text: str, *regions: int) -> Phrase:
    return Phrase(start=caption.index(text), text=text, chain_id=text, regions=regions)


def park(folder: Path, size: tuple[int, int] = (100, 60)) -> Roster:
    """One photo with three things, each a patch of its colour, and four captions."""
    path = folder / "park.png"
    pixels = np.zeros((size[1], size[0], 3), dtype=np.uint8)
    regions = []
    for label, box in zip(COLOURS, (DOG, BALL, SUN), strict=True):
        left, top, right, bottom = map(int, box)
        pixels[top:bottom, left:right] = COLOURS[label]
        regions.append(Region(box=box, label=label))
    Image.fromarray(pixels).save(path)
    captions = {
        "A dog plays": {"A dog": (0,)},
        "A dog and its ball": {"A dog": (0,), "its ball": (1,)},
        "The dog": {"The dog": (0,)},
        "Such a day": {"a day": ()},
    }
    samples = [
        Sample(
            row=0, sample_id=f"park#{number}", image_id="park", image_path=path, caption=caption,
            regions=tuple(regions),
            phrases=tuple(phrase(caption, text, *rows) for text, rows in phrases.items()),
        )
        for number, (caption, phrases) in enumerate(captions.items())
    ]  # fmt: skip
    return build_roster("park", samples)


def closeups(folder: Path, **changes) -> Roster:
    given_settings = {"name": "close", "roster": park(folder), "folder": folder / "windows"}
    return read_closeups(**given_settings | changes)


def test_captions_that_name_the_same_boxes_share_a_window(tmp_path: Path) -> None:
    roster = closeups(tmp_path)
    captions = [[roster.samples[row].caption for row in r] for r in roster.rows_by_image.values()]
    assert captions == [["A dog plays", "The dog"], ["A dog and its ball"], ["Such a day"]]
    assert roster.samples[-1].image_path == tmp_path / "park.png"


def test_whole_photos_come_along_with_all_captions(tmp_path: Path) -> None:
    roster = closeups(tmp_path, keep_photos=True)
    assert [len(rows) for rows in roster.rows_by_image.values()] == [4, 2, 1]
    assert len({sample.sample_id for sample in roster.samples}) == 7


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("smallest", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("centred", [True, False])
def test_windows_show_what_is_named_where_its_regions_say(
    tmp_path: Path, seed: int, smallest: float, centred: bool
) -> None:
    roster = closeups(tmp_path, seed=seed, smallest=smallest, centred=centred)
    for sample in roster.samples:
        pixels = np.asarray(load_rgb(sample.image_path))
        if not mentioned_regions(sample):
            continue
        assert pixels.shape[0] == pixels.shape[1] >= smallest * 60 - 1
        named = {sample.regions[index].label for index in mentioned_regions(sample)}
        assert named == ({"dog", "ball"} if "ball" in sample.caption else {"dog"})
        for region in sample.regions:
            left, top, right, bottom = map(int, region.box)
            assert (pixels[top:bottom, left:right] == COLOURS[region.label]).all()
            if region.label in named:
                total = (pixels == COLOURS[region.label]).all(-1).sum()
                assert (
                    total
                    == (right - left) * (bottom - top)
                    == {"dog": 400, "ball": 36}[region.label]
                )


def test_close_means_large(tmp_path: Path) -> None:
    roster = closeups(tmp_path, smallest=0.1, margins=(0.0, 0.0))
    assert load_rgb(roster.samples[0].image_path).size == (20, 20)
    assert roster.samples[0].regions == (Region(box=(0.0, 0.0, 20.0, 20.0), label="dog"),)


def test_what_is_named_stands_in_the_middle_where_there_is_room(tmp_path: Path) -> None:
    dog = closeups(tmp_path, smallest=0.5, margins=(0.0, 0.0)).samples[0].regions[0]
    assert dog.box == (5.0, 5.0, 25.0, 25.0)
    apart = {
        closeups(
            tmp_path, smallest=0.5, margins=(0.0, 0.0), centred=False, seed=seed
        ).samples[0].regions[0].box
        for seed in range(8)
    }  # fmt: skip
    assert len(apart) > 4


def test_the_same_seed_cuts_the_same_windows_and_cuts_them_once(tmp_path: Path) -> None:
    first = closeups(tmp_path, keep_photos=True, centred=False)
    windows = (tmp_path / "windows").rglob("*.png")
    times = {path: path.stat().st_mtime_ns for path in windows}
    assert len(times) == 2
    assert closeups(tmp_path, keep_photos=True, centred=False).samples == first.samples
    assert all(path.stat().st_mtime_ns == time for path, time in times.items())
    other = closeups(tmp_path, keep_photos=True, centred=False, seed=1)
    assert other.samples[4].image_path != first.samples[4].image_path
    assert other.samples[4].regions != first.samples[4].regions


def test_a_photo_that_changed_under_its_name_is_cut_anew(tmp_path: Path) -> None:
    settings = {"name": "close", "roster": park(tmp_path), "folder": tmp_path / "windows"}
    first = read_closeups(**settings).samples[0]
    Image.new("RGB", (100, 60), (9, 9, 9)).save(tmp_path / "park.png")
    again = read_closeups(**settings).samples[0]
    assert {colour for _, colour in load_rgb(again.image_path).getcolors()} == {(9, 9, 9)}
    assert again.regions == first.regions


def test_other_boxes_get_windows_of_their_own(tmp_path: Path) -> None:
    """The fingerprint is of ids and captions alone."""
    roster = park(tmp_path)
    first = closeups(tmp_path, roster=roster).samples[0]
    sun = [replace(sample, regions=sample.regions[::-1]) for sample in roster.samples]
    moved = build_roster("park", sun)
    assert moved.fingerprint == roster.fingerprint
    again = closeups(tmp_path, roster=moved).samples[0]
    assert again.image_path != first.image_path
    pixels = np.asarray(load_rgb(again.image_path))
    assert (pixels == COLOURS["sun"]).all(-1).any()
    assert not (pixels == COLOURS["dog"]).all(-1).any()


@pytest.mark.parametrize(
    "changes",
    [{"margins": (0.5, 0.1)}, {"margins": (-0.1, 0.1)}, {"smallest": 0}, {"smallest": 1.1}],
)
def test_settings_out_of_range_are_named(tmp_path: Path, changes: dict) -> None:
    with pytest.raises(ValueError, match="margins with 0 <= first <= second, and smallest in"):
        closeups(tmp_path, **changes)


def test_captions_without_boxes_cannot_be_shown_close(tmp_path: Path) -> None:
    bare = build_roster("bare", [park(tmp_path).samples[-1]])
    with pytest.raises(ValueError, match="with boxes, but bare has none"):
        closeups(tmp_path, roster=bare)


spans = st.tuples(st.integers(0, 90), st.integers(1, 40)).map(lambda s: (s[0], s[0] + s[1]))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(spans, spans), min_size=1, max_size=6), st.integers(0, 50))
def test_regions_are_kept_by_half_and_stay_inside(boxes: list, corner: int) -> None:
    regions = [
        Region(box=(across[0], down[0], across[1], down[1]), label=str(number))
        for number, (across, down) in enumerate(boxes)
    ]
    window = (corner, corner, corner + 40, corner + 40)
    cropped, new_index = regions_within(regions, window)
    for index, region in enumerate(regions):
        x1, y1, x2, y2 = region.box
        inside = {(x, y) for x in range(x1, x2) for y in range(y1, y2)}
        shown = {(x, y) for x, y in inside if corner <= min(x, y) and max(x, y) < corner + 40}
        assert (index in new_index) == (len(shown) > 0 and 2 * len(shown) >= len(inside))
        if index in new_index:
            left, top, right, bottom = cropped[new_index[index]].box
            assert {(x - corner, y - corner) for x, y in shown} == {
                (x, y) for x in range(left, right) for y in range(top, bottom)
            }
