"""COCO Entities: noun chunks become phrases with the boxes of their class."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from captioning.data.readers.coco_entities import NO_BOX, read_coco_entities
from captioning.data.roster import Roster

HORSE, WOMAN, OTHER = [10.5, 2, 30, 18], [1, 1, 12, 19], [3, 0, 9, 9]


def document() -> dict:
    riding = {
        "det_sequences": ["woman", "woman", None, "_", None, "horse", "horse"],
        "noun_chunks": [["a woman", "woman"], ["a horse", "horse"]],
        "detections": {"woman": [[9, WOMAN], [12, OTHER]], "horse": [[0, HORSE]]},
        "split": "train",
    }
    horses = {
        "det_sequences": ["horse", "horse", "horse", "horse", None],
        "noun_chunks": [["a horse", "horse"], ["brown horse", "horse"]],
        "detections": {"horse": [[0, HORSE]]},
        "split": "train",
    }
    return {
        "7": {"a woman in sunglasses riding a horse": riding, "a horse brown horse stand": horses},
        "12": {"a horse": horses | {"det_sequences": ["horse", "horse"], "split": "val"}},
    }


def read(folder: Path, content: dict, split: str = "train", **settings: object) -> Roster:
    path = folder / "coco_entities.json"
    path.write_text(json.dumps(content))
    settings = {"image_folder": None} | settings
    return read_coco_entities(name=f"c/{split}", annotations=path, split=split, **settings)


def test_chunks_have_the_boxes_of_their_class(tmp_path: Path) -> None:
    roster = read(tmp_path, document())
    first, second = roster.samples
    assert [(p.text, p.regions) for p in first.phrases] == [
        ("a woman", (0, 1)),
        ("sunglasses", ()),
        ("a horse", (2,)),
    ]
    for sample in roster.samples:
        for phrase in sample.phrases:
            assert sample.caption[phrase.start :].startswith(phrase.text)
    assert [(r.label, r.box) for r in first.regions] == [
        ("woman", tuple(map(float, WOMAN))),
        ("woman", tuple(map(float, OTHER))),
        ("horse", tuple(map(float, HORSE))),
    ]
    # neighbours of one class are two chunks
    assert [phrase.text for phrase in second.phrases] == ["a horse", "brown horse"]
    assert [sample.sample_id for sample in roster.samples] == ["7#0", "7#1"]
    assert [sample.caption for sample in read(tmp_path, document(), "val").samples] == ["a horse"]


def test_captions_with_a_chunk_without_box_are_left_out_on_demand(tmp_path: Path) -> None:
    roster = read(tmp_path, document(), drop_unmatched=True)
    assert [sample.caption for sample in roster.samples] == ["a horse brown horse stand"]
    (dropped,) = roster.dropped
    assert (dropped.rule, dropped.item.endswith("riding a horse")) == (NO_BOX, True)


@pytest.mark.parametrize(
    "name", ["val2014/COCO_val2014_000000000007.jpg", "COCO_train2014_000000000007.jpg",
             "000000000007.jpg"],
)  # fmt: skip
def test_photos_are_found_by_their_number(tmp_path: Path, name: str) -> None:
    path = tmp_path / "photos" / name
    path.parent.mkdir(parents=True)
    Image.new("RGB", (40, 20)).save(path)
    roster = read(tmp_path, document(), image_folder=tmp_path / "photos")
    assert {sample.image_path for sample in roster.samples} == {path}
    with pytest.raises(ValueError, match="no photo 'train2014/COCO_train2014_000000000012.jpg'"):
        read(tmp_path, document(), "val", image_folder=tmp_path / "photos")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"split": "restval"}, "'split' must be one of"),
        ({"det_sequences": ["horse"]}, "'det_sequences' must be a list of 5"),
        ({"det_sequences": [1, 2, 3, 4, 5]}, "'det_sequences' must be a list of texts and nulls"),
        ({"noun_chunks": ["a horse"]}, "'noun_chunks' must be a list of"),
        ({"noun_chunks": [[" ", "horse"]]}, "no text blank"),
        ({"detections": {"horse": [[0, [1, 2, 3]]]}}, "'horse' must be a list of"),
        ({"detections": None}, "'detections' is null"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, change: dict, message: str) -> None:
    content = document()
    content["7"]["a horse brown horse stand"] |= change
    with pytest.raises(ValueError, match=message) as caught:
        read(tmp_path, content)
    assert "coco_entities.json" in str(caught.value)


def test_other_ids_and_splits_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="image ids must be COCO's numbers"):
        read(tmp_path, {"a.jpg": document()["7"]})
    with pytest.raises(ValueError, match="split must be one of"):
        read(tmp_path, document(), "restval")
