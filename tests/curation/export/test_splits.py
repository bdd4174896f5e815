"""A cleaned set has the splits that its folder says, in every format."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from captioning.data.readers.own.own import own_splits, read_own
from curation.check import check
from curation.check.check_files import export_cleaned
from curation.export.export import FORMATS
from tests.packed_files import photo

SPLITS = {"train": range(8), "val": range(8, 10), "test": range(10, 13)}
SKIP = ("duplicate_photo", "too_short", "same_caption", "tiny_photo")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "set"
    root.mkdir()
    rows = [["file_name", "text", "split"]]
    for split, numbers in SPLITS.items():
        for number in numbers:
            (root / f"p{number}.png").write_bytes(photo(number, 64))
            rows.append([f"p{number}.png", f"A dog runs over field number {number}.", split])
    rows[3][1] = "As an AI model, I cannot see images."  # is flagged
    with (root / "captions.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return root


def parts_of(folder: Path) -> dict[str, list[str]]:
    return {
        part: sorted(s.caption for s in read_own(name=part, folder=folder, part=part).samples)
        for part in SPLITS
    }


@pytest.mark.long
@pytest.mark.parametrize("format", [name for name in FORMATS if name != "journal"])
def test_an_export_says_the_splits(folder: Path, tmp_path: Path, format: str) -> None:
    result = check(folder, space="none", skip=SKIP, quiet=True)
    expected = parts_of(folder)
    expected["train"] = [text for text in expected["train"] if "AI" not in text]
    out = tmp_path / "cleaned"
    assert export_cleaned(result, out, format=format, photos="copy") == 12
    assert parts_of(out) == expected
    assert sorted(own_splits(out).values()) == ["test"] * 3 + ["train"] * 7 + ["val"] * 2


@pytest.mark.parametrize(
    ("format", "files"), [("coco", "captions_{}.json"), ("webdataset", "{}-*.tar")]
)
def test_the_card_names_the_files_of_each_split(folder, tmp_path, format, files) -> None:
    result = check(folder, space="none", skip=SKIP, quiet=True)
    export_cleaned(result, tmp_path / "cleaned", format=format)
    head = (tmp_path / "cleaned" / "README.md").read_text().split("---\n")[1]
    [line] = [line for line in head.splitlines() if line.startswith("configs: ")]
    [config] = json.loads(line.removeprefix("configs: "))
    names = ("train", "validation", "test")
    assert config["data_files"] == [{"split": n, "path": files.format(n)} for n in names]


def test_a_set_without_splits_is_written_as_one(tmp_path: Path) -> None:
    root = tmp_path / "set"
    root.mkdir()
    for number in range(4):
        (root / f"p{number}.png").write_bytes(photo(number, 64))
        (root / f"p{number}.txt").write_text(f"A dog runs over field number {number}.")
    result = check(root, space="none", skip=SKIP, quiet=True)
    assert result.splits == {}
    export_cleaned(result, tmp_path / "cleaned", format="coco")
    assert (tmp_path / "cleaned" / "captions.json").is_file()
    assert own_splits(tmp_path / "cleaned", missing_photos="keep") == {}
