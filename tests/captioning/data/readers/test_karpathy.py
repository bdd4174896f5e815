from __future__ import annotations

import json
from pathlib import Path

import pytest

from captioning.data.readers.karpathy import read_karpathy


def image(number: int, split: str, *sentences: str, **changes) -> dict:
    """One image as COCO's Karpathy file has it."""
    return {
        "filepath": "val2014",
        "filename": f"{number}.jpg",
        "cocoid": number,
        "split": split,
        "sentences": [
            {"raw": raw, "sentid": 10 * number + k, "tokens": raw.lower().split()}
            for k, raw in enumerate(sentences)
        ],
    } | changes


IMAGES = [
    image(1, "train", "A dog.", "Dogs."),
    image(2, "restval", "A cat."),
    image(3, "val", "A bird."),
    image(4, "test", "A horse."),
]


def write(folder: Path, images: list = IMAGES) -> dict:
    path = folder / "dataset.json"
    path.write_text(json.dumps({"images": images, "dataset": "coco"}))
    return {"name": "k", "annotations": path, "image_folder": None}


@pytest.mark.parametrize(
    ("split", "restval", "ids"),
    [
        ("train", True, ["1#0", "1#1", "2#0"]),
        ("train", False, ["1#0", "1#1"]),
        ("val", True, ["3#0"]),
        ("test", False, ["4#0"]),
    ],
)
def test_splits(tmp_path, split, restval, ids):
    roster = read_karpathy(**write(tmp_path), split=split, restval=restval)
    assert [sample.sample_id for sample in roster.samples] == ids
    assert roster.samples[0].image_path == Path("val2014") / f"{ids[0][0]}.jpg"


def test_photos_are_found_below_their_file_path(tmp_path):
    arguments = write(tmp_path) | {"image_folder": tmp_path}
    with pytest.raises(ValueError, match=r"dataset.json: images\[2\]: no photo 'val2014/3.jpg'"):
        read_karpathy(**arguments, split="val")
    (tmp_path / "val2014").mkdir()
    for name in ("3.jpg", "5.jpg"):
        (tmp_path / "val2014" / name).touch()
    roster = read_karpathy(**arguments, split="val")
    assert roster.samples[0].image_path == tmp_path / "val2014" / "3.jpg"
    assert [drop.item for drop in roster.dropped] == ["val2014/5.jpg"]


def test_flickr_files_are_known_by_file_name(tmp_path):
    images = [{k: v for k, v in image(1, "train", "A dog.").items() if k[:5] not in "filepcocoi"}]
    images[0]["filename"] = "a_b.jpg"
    roster = read_karpathy(**write(tmp_path, images), split="train")
    assert roster.samples[0].sample_id == "a_b.jpg#0"


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (image(1, "train", "B."), "image_id '1' is used twice"),
        (image(5, "trian", "B."), "'split' must be one of"),  # codespell:ignore trian
        (image(5, "train", " "), r"images\[4\]: sentences\[0\]: 'raw': the caption is empty"),
        (image(5, "train"), "image '5' has no caption"),
        (image(5, "train", "B.", sentences=["B."]), r"sentences\[0\]: must be an object"),
        (image(5, "train", "B.", filename="../5.jpg"), "lead out"),
        (image(5, "train", "B.", cocoid=2.5), "'cocoid' must be a whole number"),
        (image(5, "train", "B.", sentences=[{"raw": "B.", "sentid": 10}]), "sentid 10 occurs twi"),
        (image(5, "train", sentences=[{"raw": "B.", "sentid": "10"}]), "sentid 10 occurs twice"),
        (image(5, "train", sentences=[{"raw": "B.", "sentid": -1}]), "'sentid' must be a whole"),
        (image(5, "train", sentences=[{"raw": "B.", "sentid": True}]), "'sentid' must be a whole"),
        (image(5, "train", sentences=[{"raw": 3, "sentid": 9}]), "'raw' must be a text: got 3"),
        (image(5, "train", sentences=[{"sentid": 9}]), "key 'raw' is missing"),
        (image(5, "train", sentences={"raw": "B."}), "'sentences' must be a list"),
    ],
)
def test_bad_images_are_named(tmp_path, bad, message):
    with pytest.raises(ValueError, match=rf"dataset.json.*{message}"):
        read_karpathy(**write(tmp_path, [*IMAGES, bad]), split="train")


def test_ids_of_sentences_may_be_texts_or_left_out(tmp_path):
    sentences = [{"raw": "B.", "sentid": "x"}, {"raw": "C  c."}, {"raw": "D.", "sentid": 99}]
    arguments = write(tmp_path, [*IMAGES, image(5, "train", sentences=sentences)])
    roster = read_karpathy(**arguments, split="train")
    assert [sample.caption for sample in roster.samples][3:] == ["B.", "C c.", "D."]


def test_unknown_split(tmp_path):
    with pytest.raises(ValueError, match="split must be one of .* got 'dev'"):
        read_karpathy(**write(tmp_path), split="dev")
