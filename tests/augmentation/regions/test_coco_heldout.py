"""Pasted pairs of held-out COCO, from files in COCO's format."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image, ImageDraw

from captioning.commands.main import main
from captioning.config.compose import compose_config

# What each held-out class is called by COCO's boxes, and a label that it may replace.
PAIRS = {
    "bottle": ("bottle", "cup"),
    "bus": ("bus", "truck"),
    "couch": ("couch", "bed"),
    "microwave": ("microwave", "oven"),
    "pizza": ("pizza", "cake"),
    "racket": ("tennis racket", "frisbee"),
    "suitcase": ("suitcase", "handbag"),
    "zebra": ("zebra", "cow"),
}
SIDE = 96


def write_set(folder: Path) -> None:
    """Captions and instances, with a photo of each class and one of what it replaces."""
    folder.mkdir(exist_ok=True)
    words = {label: name for name, (label, _) in PAIRS.items()}
    labels = [label for pair in PAIRS.values() for label in pair]
    images, captions, boxes = [], [], []
    for number, label in enumerate(labels, start=1):
        name = f"COCO_train2014_{number:012}.jpg"
        photo = Image.new("RGB", (SIDE, SIDE), (number * 9, 120, 90))
        ImageDraw.Draw(photo).rectangle((20, 20, 69, 69), fill=(200, number * 9, 30))
        photo.save(folder / name)
        images.append({"id": number, "file_name": name, "width": SIDE, "height": SIDE})
        text = f"A {words.get(label, label)} near a wall."
        captions.append({"id": number, "image_id": number, "caption": text})
        box = {"id": number, "image_id": number, "category_id": number, "iscrowd": 0}
        boxes.append(box | {"bbox": [20, 20, 50, 50], "area": 2500})
    names = [{"id": number, "name": label} for number, label in enumerate(labels, start=1)]
    content = {"images": images, "annotations": captions}
    (folder / "captions.json").write_text(json.dumps(content))
    content = {"images": images, "annotations": boxes, "categories": names}
    (folder / "instances.json").write_text(json.dumps(content))


def augment(folder: Path, *overrides: str) -> dict:
    """Run the command on the files; the card."""
    files = [
        f"data.train.annotations={folder / 'captions.json'}",
        f"data.train.instances={folder / 'instances.json'}",
        f"data.train.image_folder={folder}",
    ]
    paths = [f"out={folder / 'out'}", f"paths.cache={folder / 'cache'}", "num_processes=0"]
    main(["augment", "method=novel_objects", "data=coco_heldout", *files, *paths, *overrides])
    return json.loads((folder / "out" / "card.json").read_text())


def test_every_class_gets_pairs_by_the_boxes_of_the_data(tmp_path: Path):
    write_set(tmp_path)
    card = augment(tmp_path)
    made = {name: entry["candidates"] for name, entry in card["method"]["classes"].items()}
    assert made == {name: {candidate: 1} for name, (_, candidate) in PAIRS.items()}
    assert card["method"]["classes"]["bus"]["candidates without boxes"] == ["train", "car"]
    captions = json.loads((tmp_path / "out" / "captions.json").read_text())["annotations"]
    assert "A bus near a wall." in {entry["caption"] for entry in captions}


def test_candidates_are_counted_in_captions_of_another_split(tmp_path: Path):
    write_set(tmp_path)
    captions = [{"image_id": 3, "caption": "a cow near a bed"}]  # the photo of the bus
    (tmp_path / "predictions.json").write_text(json.dumps(captions))
    card = augment(
        tmp_path,
        f"method.predictions={tmp_path / 'predictions.json'}",
        "method.predictions_roster=${data.train}",
    )
    classes = card["method"]["classes"]
    assert classes["bus"]["candidates"] == {"bed": 1, "cow": 1}
    assert classes["bottle"]["candidates"] == {"cup": 1}  # the paper names them
    assert classes["zebra"]["candidates"] == {}


def test_a_class_without_candidates_is_named(tmp_path: Path):
    write_set(tmp_path)
    with pytest.raises(SystemExit, match="'bus' has no candidates"):
        augment(tmp_path, "novel_classes.classes.bus.likely=[]")


@pytest.mark.parametrize(("data", "not_counted"), [("coco_heldout", ["person"]), ("miniworld", [])])
def test_people_beside_the_objects_of_coco_are_no_candidates(data: str, not_counted: list[str]):
    config = compose_config("augmentation", [f"data={data}"])
    assert config.method.choices.not_counted == not_counted
