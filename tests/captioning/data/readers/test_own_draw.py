"""``data=own`` without splits: photos are drawn by their content, whatever the layout."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from captioning.data.readers.own.own import read_own
from captioning.data.roster import Roster
from tests.packed_files import photo, table, write_parquet, write_tar

NUMBER = 60
PARTS = ("train", "val", "test")


def captions(number: int) -> list[str]:
    return [f"Dog {number} runs .", f"A dog is running {number} times ."]


def text_files(folder: Path, numbers: Sequence[int]) -> None:
    folder.mkdir(parents=True)
    for number in numbers:
        (folder / f"p{number}.png").write_bytes(photo(number))
        (folder / f"p{number}.txt").write_text("\n".join(captions(number)))


def coco(folder: Path, numbers: Sequence[int]) -> None:
    (folder / "images").mkdir(parents=True)
    for place, number in enumerate(reversed(numbers)):
        (folder / "images" / f"{place:06d}.png").write_bytes(photo(number))
    images = [{"id": n, "file_name": f"{n:06d}.png"} for n in range(len(numbers))]
    notes = [
        {"id": 2 * place + own, "image_id": place, "caption": caption}
        for place, number in enumerate(reversed(numbers))
        for own, caption in enumerate(captions(number))
    ]
    (folder / "captions.json").write_text(json.dumps({"images": images, "annotations": notes}))


def csv_table(folder: Path, numbers: Sequence[int]) -> None:
    (folder / "a" / "b").mkdir(parents=True)
    with (folder / "captions.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("image", "caption"))
        for number in numbers:
            (folder / "a" / "b" / f"photo {number}.png").write_bytes(photo(number))
            writer.writerows((f"a/b/photo {number}.png", c) for c in captions(number))


def parquet(folder: Path, numbers: Sequence[int]) -> None:
    pictures, texts = [photo(n) for n in numbers], [captions(n) for n in numbers]
    write_parquet(folder / "data.parquet", table(pictures, texts))


def shards(folder: Path, numbers: Sequence[int]) -> None:
    folder.mkdir()
    write_tar(
        folder / "0000.tar",
        [
            item
            for number in numbers
            for item in (
                (f"{number}.png", photo(number)),
                (f"{number}.txt", "\n".join(captions(number)).encode()),
            )
        ],
    )


LAYOUTS = (text_files, coco, csv_table, parquet, shards)


def parts_of(folder: Path, **settings) -> dict[str, Roster]:
    settings = {"split_by": "content", **settings}
    return {part: read_own(name=part, folder=folder, part=part, **settings) for part in PARTS}


def numbers_of(rosters: dict[str, Roster]) -> dict[str, set[str]]:
    """Numbers of the photos, which stand in their captions."""
    return {
        part: {re.findall(r"\d+", s.caption)[0] for s in roster.samples}
        for part, roster in rosters.items()
    }


@pytest.mark.long
@pytest.mark.parametrize("write", LAYOUTS, ids=lambda write: write.__name__)
def test_every_layout_of_a_set_has_the_same_splits(tmp_path: Path, write: Callable) -> None:
    text_files(tmp_path / "first", range(NUMBER))
    write(tmp_path / "second", range(NUMBER))
    expected, found = (numbers_of(parts_of(tmp_path / name)) for name in ("first", "second"))
    assert found == expected
    assert sum(map(len, expected.values())) == NUMBER
    assert all(expected.values())


def test_a_cleaned_copy_has_the_same_test_photos_but_those_that_are_gone(tmp_path: Path) -> None:
    text_files(tmp_path / "first", range(NUMBER))
    csv_table(tmp_path / "second", range(0, NUMBER, 2))
    before, after = (numbers_of(parts_of(tmp_path / name)) for name in ("first", "second"))
    for part in PARTS:
        assert after[part] <= before[part]


def test_copies_of_a_photo_are_in_one_split(tmp_path: Path) -> None:
    text_files(tmp_path / "set", range(20))
    for number in range(20):
        for suffix in (".png", ".txt"):
            path = tmp_path / "set" / f"p{number}{suffix}"
            shutil.copy(path, path.with_name(f"copy{number}{suffix}"))
    for roster in parts_of(tmp_path / "set").values():
        names = set(roster.rows_by_image)
        assert {name.replace("copy", "p") for name in names} == {
            name for name in names if name.startswith("p")
        }


@pytest.mark.parametrize("seed", range(12))
def test_each_split_has_a_photo_however_few_there_are(tmp_path: Path, seed: int) -> None:
    text_files(tmp_path / "set", range(3))
    rosters = parts_of(tmp_path / "set", seed=seed, held_out=0.4)
    assert [len(roster.rows_by_image) for roster in rosters.values()] == [1, 1, 1]


def test_fewer_photos_than_splits_are_refused(tmp_path: Path) -> None:
    text_files(tmp_path / "set", range(2))
    with pytest.raises(ValueError, match="2 photos are too few to be split into"):
        parts_of(tmp_path / "set")


@pytest.mark.long
def test_a_share_of_the_photos_is_held_out(tmp_path: Path) -> None:
    text_files(tmp_path / "set", range(NUMBER))
    sizes = [
        len(read_own(name="t", folder=tmp_path / "set", part="test", split_by="content", seed=s))
        / (2 * NUMBER)
        for s in range(20)
    ]
    assert 0.08 < sum(sizes) / len(sizes) < 0.12


def test_hashes_of_photos_are_kept(tmp_path: Path) -> None:
    text_files(tmp_path / "set", range(6))
    keys = tmp_path / "keys"
    parts_of(tmp_path / "set", keys_folder=keys)
    lines = [line for path in keys.glob("*.jsonl") for line in path.read_text().splitlines()]
    assert len(lines) == 6
