"""Manifests and balanced sets."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from curation.study.answers import CATEGORIES, KEYS
from curation.study.items import Item, divide, fingerprint, read_items
from tests.curation.study.studies import make_folder


def make_items(count: int) -> list[Item]:
    return [
        Item(name=f"{n}", path=Path(f"{n}.png"), captions=("c",), loss=float(n * 37 % count))
        for n in range(count)
    ]


def test_there_are_25_categories():
    assert len(set(KEYS)) == 25
    groups = [category.group for category in CATEGORIES]
    assert {group: groups.count(group) for group in groups} == {
        "People": 6,
        "Main object": 5,
        "Other objects": 5,
        "General": 9,
    }


def test_sets_are_balanced_as_in_the_paper():
    placed = divide(make_items(1000))
    assert len(placed) == 100
    for number in range(5):
        members = [entry for entry in placed if entry.set_number == number]
        assert [entry.half for entry in members].count("high") == 10
        assert len(members) == 20
        # mixed, so that their order tells nothing
        assert [entry.half for entry in members] != sorted(entry.half for entry in members)
    assert {entry.item.loss for entry in placed if entry.half == "low"} == set(range(50))
    assert {entry.item.loss for entry in placed if entry.half == "high"} == set(range(950, 1000))
    assert placed == divide(make_items(1000)[::-1])
    assert placed != divide(make_items(1000), seed=1)


@pytest.mark.parametrize(
    ("count", "sets", "each"), [(2, 1, 2), (7, 1, 6), (20, 1, 20), (44, 2, 20)]
)
def test_few_pictures_make_few_sets_and_none_is_in_both_halves(count, sets, each):
    placed = divide(make_items(count))
    assert len({entry.item.name for entry in placed}) == len(placed) == sets * each
    assert {entry.set_number for entry in placed} == set(range(sets))


def test_what_cannot_be_divided_is_refused():
    with pytest.raises(ValueError, match="at least 2 pictures with a loss: got 1"):
        divide(make_items(1))
    with pytest.raises(ValueError, match="must be even and at least 2"):
        divide(make_items(9), size=3)
    broken = Item(name="x", path=Path("x"), captions=("c",), loss=math.nan)
    with pytest.raises(ValueError, match="x: loss must be finite"):
        divide([*make_items(3), broken])


def test_a_study_is_known_by_what_was_judged_not_by_where_it_lies():
    items = make_items(4)
    moved = [Item(**{**as_dict(item), "path": Path("elsewhere") / item.path}) for item in items]
    other = [Item(**{**as_dict(item), "captions": ("other",)}) for item in items]
    assert fingerprint(divide(items)) == fingerprint(divide(moved))
    assert fingerprint(divide(items)) != fingerprint(divide(other))


def as_dict(item: Item) -> dict:
    return {name: getattr(item, name) for name in item.__dataclass_fields__}


def test_both_manifests_say_the_same(tmp_path):
    folder = make_folder(tmp_path / "a", 3)
    expected = read_items(folder)
    assert expected[1].captions == ("caption 1", "<b>second</b>")
    assert (expected[1].loss, expected[1].clip_score) == (2.0, 0.89)
    rows = ["image,caption,loss,clip_score"]
    for item in expected:
        rows += [f"{item.name},{text},{item.loss},{item.clip_score}" for text in item.captions]
    (folder / "manifest.jsonl").unlink()
    (folder / "manifest.csv").write_text("\n".join(rows) + "\n")
    assert read_items(folder) == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loss": None}, "'loss' is null"),
        ({"loss": "high"}, "'loss' must be a finite number: got 'high'"),
        ({"clip_score": "x"}, "'clip_score' must be a finite number"),
        ({"captions": []}, "'captions' is empty"),
        ({"image": "/etc/passwd"}, "must be relative"),
        ({"image": "../b/0.png"}, "must not lead out"),
        ({"image": "9.png"}, "9.png does not exist"),
    ],
)
def test_bad_manifests_are_named(tmp_path, change, message):
    folder = make_folder(tmp_path / "a", 2)
    first = json.loads((folder / "manifest.jsonl").read_text().split("\n")[0])
    (folder / "manifest.jsonl").write_text(json.dumps(first | change) + "\n")
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        read_items(folder)


def test_a_link_that_leads_out_is_refused_unless_told(tmp_path):
    folder = make_folder(tmp_path / "a", 2)
    other = make_folder(tmp_path / "other", 1)
    (folder / "0.png").unlink()
    (folder / "0.png").symlink_to(other / "0.png")
    with pytest.raises(ValueError, match=r"0.png' lies outside .* --within"):
        read_items(folder)
    assert len(read_items(folder, within=[other])) == 2


def test_a_folder_without_a_manifest_says_what_is_wanted(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no manifest \(manifest.jsonl or manifest.csv\)"):
        read_items(tmp_path)
