from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from captioning.data.readers.jsonl import read_jsonl
from captioning.types import Region

REGIONS = [{"box": [1, 2, 3, 4.5], "label": "Big  Dog", "score": 0.5}]


def write(folder: Path, *records: dict | str) -> dict:
    for name in ("a.jpg", "b.jpg"):
        Image.new("L", (8, 8)).save(folder / name)
    lines = [r if isinstance(r, str) else json.dumps(r) for r in records]
    (folder / "own.jsonl").write_text("\n".join(lines))
    return {"name": "j", "annotations": folder / "own.jsonl", "image_folder": folder}


def test_lines_of_an_image_add_up(tmp_path):
    roster = read_jsonl(
        **write(
            tmp_path,
            {"image": "a.jpg", "image_id": 5, "caption": "A dog.", "regions": REGIONS},
            {"image": "b.jpg", "captions": ["A cat.", "Cats."]},
            {"image": "a.jpg", "image_id": 5, "caption": "Dogs."},
        )
    )
    assert [s.sample_id for s in roster.samples] == ["5#0", "5#1", "b.jpg#0", "b.jpg#1"]
    region = Region(box=(1.0, 2.0, 3.0, 4.5), label="big dog", score=0.5)
    assert roster.samples[1].regions == (region,)
    assert roster.samples[2].regions == ()


def change(**fields) -> dict:
    return {"image": "a.jpg", "caption": "A dog."} | fields


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (change(image="c.jpg"), "no photo 'c.jpg'"),
        (change(image_id=""), "'image_id' must be"),
        (change(image_id="a\nb"), "'image_id' must be .* line of text"),
        (change(image_id="b.jpg"), "is of 'b.jpg' at .*own.jsonl:1 and of 'a.jpg' here"),
        (change(image_id=7), "file_name 'a.jpg' is used twice|no photo"),
        (change(caption="  "), "the caption is empty"),
        (change(captions=["A"]), "exactly one of the keys"),
        (change(regions=[{"box": [1, 2, 9, 4], "label": "dog"}]), r"regions\[0\]: box .* leaves"),
        (change(regions=[{"box": [3, 2, 3, 4], "label": "dog"}]), r"regions\[0\]: .* no area"),
        (change(regions=[{"box": [1, 2, 3], "label": "dog"}]), "a list of 4 finite numbers"),
        (change(regions=[{"box": [1, 2, 3, 4], "label": " "}]), "'label' must be a class name"),
        (change(regions=[{"box": [1, 2, 3, 4]}]), "key 'label' is missing"),
        (change(regions=[REGIONS[0] | {"score": 1.5}]), r"'score' must be a number in \[0, 1\]"),
        (change(regions=[REGIONS[0] | {"score": "1"}]), r"'score' must be a number in \[0, 1\]"),
    ],
)
def test_bad_lines_are_named(tmp_path, record, message):
    first = {"image": "b.jpg", "caption": "A cat."}
    records = (first, record, change()) if record.get("image_id") == 7 else (first, record)
    with pytest.raises(ValueError, match=rf"own.jsonl:[23].*{message}"):
        read_jsonl(**write(tmp_path, *records))


def test_regions_on_two_lines_of_an_image(tmp_path):
    with pytest.raises(ValueError, match=r"own.jsonl:2: regions of 'a.jpg' stand on two lines"):
        read_jsonl(**write(tmp_path, change(regions=REGIONS), change(regions=REGIONS)))


def test_bad_boxes_can_be_dropped(tmp_path):
    bad = {"box": [1, 2, 9.5, 4], "label": "dog"}
    roster = read_jsonl(**write(tmp_path, change(regions=[bad, *REGIONS])), bad_boxes="drop")
    assert [region.label for region in roster.samples[0].regions] == ["big dog"]
    assert [drop.item[-20:] for drop in roster.dropped if "box" in drop.rule] == [
        "own.jsonl:1: regions[0]"[-20:]
    ]
