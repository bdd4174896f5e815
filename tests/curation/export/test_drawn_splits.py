"""A cleaned set has the splits that training on the original draws, in every format."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from captioning.commands.main import main
from captioning.data.readers.own.own import own_splits, read_own
from captioning.data.roster import build_roster
from curation.check import check
from curation.check.check_files import export_cleaned
from curation.export.export import FORMATS, HOLD_PHOTOS
from tests.packed_files import photo

PARTS = ("train", "val", "test")
SKIP = ("duplicate_photo", "too_short", "same_caption", "tiny_photo", "file_name")
NUMBER = 30
WRONG = "As an AI model, I cannot see images."


def make(root: Path, *, number: int = NUMBER, splits: dict[int, str] | None = None) -> Path:
    """A set of PNGs, which shards hold as JPEG; the first caption is flagged."""
    root.mkdir()
    rows = [["file_name", "text", *(["split"] if splits else [])]]
    for n in range(number):
        name = f"p{n}.png"
        Image.open(io.BytesIO(photo(n, 64))).save(root / name)
        text = WRONG if n == 0 else f"A dog runs over field number {n}."
        rows.append([name, text, *([splits[n]] if splits else [])])
    with (root / "captions.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return root


def parts_of(folder: Path) -> dict[str, list[tuple[str, str, str]]]:
    """Captions and ids by part, as ``data=own`` with its defaults has them."""
    return {
        part: sorted(
            (s.caption, s.sample_id, s.image_id)
            for s in read_own(name=part, folder=folder, part=part, split_by="content").samples
        )
        for part in PARTS
    }


def cleaned(root: Path, out: Path, format: str, **options: Any) -> Path:
    result = check(root, space="none", skip=SKIP, quiet=True)
    style = {} if format in HOLD_PHOTOS else {"photos": "copy"}
    export_cleaned(result, out, format=format, **style, **options)
    return out


@pytest.mark.parametrize("format", [name for name in FORMATS if name != "journal"])
def test_the_cleaned_set_holds_the_same_photos_out(tmp_path: Path, format: str) -> None:
    root = make(tmp_path / "set")
    expected = parts_of(root)
    assert all(len(expected[part]) > 0 for part in PARTS)
    out = cleaned(root, tmp_path / "new", format)
    found = parts_of(out)
    for part in PARTS:
        wanted = [(text, *ids) for text, *ids in expected[part] if text != WRONG]
        if format == "text_files":  # which have no place for ids of captions
            assert [one[0] for one in found[part]] == [one[0] for one in wanted]
        else:
            assert found[part] == wanted
    assert {*own_splits(out).values()} == {*PARTS}
    # whatever the draw would be now: the files say it
    again = read_own(name="x", folder=out, part="test", split_by="content", seed=7)
    assert sorted(s.caption for s in again.samples) == [one[0] for one in found["test"]]


def test_the_card_says_that_splits_were_drawn(tmp_path: Path) -> None:
    out = cleaned(make(tmp_path / "set"), tmp_path / "new", "coco", held_out=0.2)
    card = (out / "README.md").read_text()
    assert "The original has no splits of its own. Val and test were drawn" in card
    assert "(seed 0, share 0.2 each)" in card
    sizes = {p: len(c) for p, c in parts_of(out).items()}
    assert f"train {sizes['train']} photos, {sizes['train']} captions; val {sizes['val']} " in card
    expected = read_own(
        name="x", folder=tmp_path / "set", part="test", split_by="content", held_out=0.2
    )
    assert sorted(s.caption for s in expected.samples) == [c for c, *_ in parts_of(out)["test"]]


def test_given_splits_stay_and_a_lacking_one_is_drawn(tmp_path: Path) -> None:
    given = {n: "test" if n < 6 else "train" for n in range(NUMBER)}
    root = make(tmp_path / "set", splits=given)
    out = cleaned(root, tmp_path / "new", "csv")
    found, expected = parts_of(out), parts_of(root)
    assert found["test"] == [one for one in expected["test"] if one[0] != WRONG]
    assert found["val"] == expected["val"] != []
    card = (out / "README.md").read_text()
    assert "The original has no val. Val were drawn" not in card
    assert "The original has no val. It was drawn" in card

    whole = {n: PARTS[n % 3] for n in range(NUMBER)}
    out = cleaned(make(tmp_path / "whole", splits=whole), tmp_path / "other", "csv")
    assert "were drawn" not in (out / "README.md").read_text()
    assert len(parts_of(out)["test"]) == NUMBER // 3


def test_a_small_set_or_a_share_of_zero_draws_none(tmp_path: Path) -> None:
    small = make(tmp_path / "small", number=9)
    assert own_splits(cleaned(small, tmp_path / "a", "jsonl")) == {}
    large = make(tmp_path / "large")
    assert own_splits(cleaned(large, tmp_path / "b", "jsonl", held_out=0)) == {}
    assert "## Splits" not in (tmp_path / "b" / "README.md").read_text()
    # copies of two photos cannot be divided
    copies = make(tmp_path / "copies")
    for n in range(2, NUMBER):
        (copies / f"p{n}.png").write_bytes((copies / f"p{n % 2}.png").read_bytes())
    assert own_splits(cleaned(copies, tmp_path / "c", "jsonl")) == {}


def test_a_roster_is_a_part_and_is_not_divided(tmp_path: Path) -> None:
    root = make(tmp_path / "set")
    roster = build_roster("x", read_own(name="x", folder=root).samples)
    result = check(roster, space="none", skip=SKIP, quiet=True)
    export_cleaned(result, tmp_path / "new", format="jsonl", photos="copy")
    assert own_splits(tmp_path / "new") == {}


def test_the_command_has_the_option(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    root = make(tmp_path / "set")
    options = ["check", "set", "--space", "none", "--export", "jsonl", "--photos", "copy"]
    skips = [word for name in SKIP for word in ("--skip", name)]
    assert main([*options, *skips, "--out", "a"]) == 0, capsys.readouterr().err
    expected = [one for one in parts_of(root)["test"] if one[0] != WRONG]
    assert parts_of(tmp_path / "a" / "cleaned")["test"] == expected
    assert main([*options, *skips, "--out", "b", "--held-out", "0"]) == 0
    assert own_splits(tmp_path / "b" / "cleaned") == {}
    assert main([*options, "--out", "c", "--held-out", "0.5"]) == 1
    assert "--held-out must be at least 0 and below 0.5: got 0.5" in capsys.readouterr().err
    assert not (tmp_path / "c").exists()
    assert main(["check", "set", "--held-out", "0.1", "--out", "d"]) == 1
    assert "--held-out needs --export" in capsys.readouterr().err


def test_where_all_held_out_photos_are_flagged_none_is_written(tmp_path: Path) -> None:
    root = make(tmp_path / "set", number=10)
    held_out = {text for part in ("val", "test") for text, *_ in parts_of(root)[part]}
    table = (root / "captions.csv").read_text()
    for text in held_out:
        table = table.replace(text, WRONG)
    (root / "captions.csv").write_text(table)
    out = cleaned(root, tmp_path / "new", "jsonl")
    assert own_splits(out) == {}
    assert "drawn" not in (out / "README.md").read_text()


def test_photos_of_no_split_are_left_out_and_counted(tmp_path: Path) -> None:
    root = tmp_path / "set"
    root.mkdir()
    lines = []
    for n in range(9):
        (root / f"p{n}.jpg").write_bytes(photo(n, 64))
        lines.append(f"p{n}.jpg#0\tA dog runs over field number {n}.\n")
    (root / "x.token.txt").write_text("".join(lines))
    for split, numbers in {"train": range(4), "dev": range(4, 6), "test": range(6, 8)}.items():
        (root / f"x.{split}Images.txt").write_text("".join(f"p{n}.jpg\n" for n in numbers))
    result = check(root, space="none", skip=SKIP, quiet=True)
    assert export_cleaned(result, tmp_path / "new", format="jsonl", photos="copy") == 8
    assert parts_of(tmp_path / "new") == parts_of(root)
    card = (tmp_path / "new" / "README.md").read_text()
    assert "photos that no split of the original has: 1; they are not part" in card
