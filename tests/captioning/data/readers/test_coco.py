from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from captioning.data.photo_folder import PhotoFolder
from captioning.data.readers.coco import load_annotations, read_coco
from captioning.data.readers.own.own import read_own

IMAGES = [
    {"id": 7, "file_name": "a.jpg", "width": 40, "height": 20},
    {"id": 9, "file_name": "b.jpg", "width": 40, "height": 20},
]
CAPTIONS = [
    {"id": 1, "image_id": 9, "caption": "Two cats. "},
    {"id": 2, "image_id": 7, "caption": "A dog\nruns."},
    {"id": 3, "image_id": 9, "caption": "Cats"},
]
CATEGORIES = [{"id": 3, "name": "Dog"}]


def write(folder: Path, size=(40, 20), **changes) -> dict:
    """Two photos with captions; ``changes`` replace top-level keys of the captions file."""
    for name in ("a.jpg", "b.jpg"):
        Image.new("RGB", size).save(folder / name)
    document = {"images": IMAGES, "annotations": CAPTIONS} | changes
    (folder / "captions.json").write_text(json.dumps(document))
    return {"name": "c", "annotations": folder / "captions.json", "image_folder": folder}


def write_boxes(folder: Path, *boxes: list[float], **changes) -> Path:
    annotations = [
        {"id": n, "image_id": 7, "category_id": 3, "bbox": box, "iscrowd": 0} | changes
        for n, box in enumerate(boxes)
    ]
    path = folder / "instances.json"
    path.write_text(
        json.dumps({"images": IMAGES, "annotations": annotations, "categories": CATEGORIES})
    )
    return path


def test_captions_are_grouped_by_image_and_white_space_made_plain(tmp_path):
    roster = read_coco(**write(tmp_path))
    assert [(s.sample_id, s.caption) for s in roster.samples] == [
        ("7#0", "A dog runs."),
        ("9#0", "Two cats."),
        ("9#1", "Cats"),
    ]
    assert roster.samples[0].image_path == tmp_path / "a.jpg"


def test_lists_include_and_exclude(tmp_path):
    arguments = write(tmp_path)
    (tmp_path / "ids.txt").write_text("x/b.jpg 9\n")
    only = read_coco(**arguments, image_ids=tmp_path / "ids.txt")
    remaining = read_coco(**arguments, exclude_ids=[tmp_path / "ids.txt"])
    assert list(only.rows_by_image) == ["9"]
    assert list(remaining.rows_by_image) == ["7"]
    (tmp_path / "ids.txt").write_text("9\n8\n")
    with pytest.raises(ValueError, match=r"ids.txt:2: the split names '8'"):
        read_coco(**arguments, exclude_ids=tmp_path / "ids.txt")


def test_boxes_become_regions_in_pixels_of_the_photo_at_hand(tmp_path):
    arguments = write(tmp_path, size=(20, 20))
    roster = read_coco(**arguments, instances=write_boxes(tmp_path, [10, 5, 20, 10]))
    region = roster.by_id["7#0"].regions[0]
    assert (region.box, region.label) == ((5.0, 5.0, 15.0, 15.0), "dog")
    text_only = arguments | {"image_folder": None}
    roster = read_coco(**text_only, instances=tmp_path / "instances.json")
    assert roster.by_id["7#0"].regions[0].box == (10.0, 5.0, 30.0, 15.0)


def test_boxes_over_the_edge_by_rounding_are_clipped(tmp_path):
    boxes = write_boxes(tmp_path, [-0.5, 0, 41.2, 20])
    roster = read_coco(**write(tmp_path), instances=boxes)
    assert roster.by_id["7#0"].regions[0].box == (0.0, 0.0, 40.0, 20.0)


@pytest.mark.parametrize("box", [[0, 0, 0, 5], [5, 5, -2, 5], [30, 0, 11, 5], [0, -1, 5, 5]])
def test_bad_boxes_are_errors_or_dropped_by_rule(tmp_path, box):
    arguments = write(tmp_path) | {"instances": write_boxes(tmp_path, [0, 0, 9, 9], box)}
    with pytest.raises(ValueError, match=r"instances.json: annotations\[1\]: box"):
        read_coco(**arguments)
    roster = read_coco(**arguments, bad_boxes="drop")
    assert len(roster.by_id["7#0"].regions) == 1
    assert [drop.rule for drop in roster.dropped] == ["box outside the photo or without area"]


def test_crowd_regions_are_dropped_by_rule(tmp_path):
    boxes = write_boxes(tmp_path, [0, 0, 9, 9], iscrowd=1)
    roster = read_coco(**write(tmp_path), instances=boxes)
    assert roster.by_id["7#0"].regions == ()
    assert [drop.rule for drop in roster.dropped] == ["crowd region"]


def test_photo_that_cannot_be_opened_is_dropped_by_rule_when_boxes_need_its_size(tmp_path):
    arguments = write(tmp_path) | {"instances": write_boxes(tmp_path, [0, 0, 9, 9])}
    (tmp_path / "a.jpg").write_bytes(b"")
    roster = read_coco(**arguments)
    assert list(roster.rows_by_image) == ["9"]
    assert roster.dropped[0].item == "a.jpg"
    assert roster.dropped[0].rule.startswith("photo unreadable")


def test_photo_turned_by_exif_with_boxes_of_the_unturned_pixels_is_named(tmp_path):
    arguments = write(tmp_path) | {"instances": write_boxes(tmp_path, [0, 0, 9, 9])}
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (40, 20)).save(tmp_path / "a.jpg", exif=exif)
    roster = read_coco(**arguments)
    assert "EXIF turns this photo" in roster.dropped[0].rule


def test_missing_photos_and_captions(tmp_path):
    arguments = write(tmp_path, annotations=CAPTIONS[1:2])
    with pytest.raises(ValueError, match=r"images\[1\]: image '9' has no caption"):
        read_coco(**arguments)
    (tmp_path / "a.jpg").unlink()
    with pytest.raises(ValueError, match=r"images\[0\]: no photo 'a.jpg'"):
        read_coco(**arguments, missing_captions="drop")
    with pytest.raises(ValueError, match=r"captions.json: no samples for c"):
        read_coco(**arguments, missing_captions="drop", missing_photos="drop")


def test_ids_of_captions_may_stand_twice(tmp_path):
    other = [{"id": 1, "image_id": 7, "caption": "Dogs."}, {"image_id": 9, "caption": "A cat."}]
    roster = read_coco(**write(tmp_path, annotations=[CAPTIONS[0], *other]))
    assert {"Dogs.", "A cat."} < {sample.caption for sample in roster.samples}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"images": [IMAGES[0], *IMAGES]}, r"images\[1\]: image_id '7' is used twice"),
        ({"images": [IMAGES[0], IMAGES[1] | {"id": "7"}]}, "caption of image 9, not among"),
        ({"images": [IMAGES[0], IMAGES[1] | {"file_name": "./a.jpg"}]}, "'a.jpg' is used twice"),
        ({"images": [IMAGES[0] | {"file_name": "../a.jpg"}, IMAGES[1]]}, "lead out"),
        ({"images": {"7": "a.jpg"}}, "'images' must be a list: got an object of 1"),
        ({"images": [IMAGES[0] | {"id": True}]}, r"images\[0\]: 'id' must be a whole number"),
        ({"annotations": [CAPTIONS[0], CAPTIONS[0]]}, "annotation id 1 occurs twice"),
        ({"annotations": [CAPTIONS[0] | {"image_id": 8}]}, "caption of image 8, not among"),
        ({"annotations": [CAPTIONS[0] | {"caption": " \n"}]}, r"annotations\[0\].*is empty"),
        ({"annotations": [CAPTIONS[0] | {"caption": 3}]}, "'caption' must be a text: got 3"),
        ({"annotations": [CAPTIONS[0] | {"caption": "\ud800"}]}, "incomplete surrogate pair"),
        ({"annotations": [CAPTIONS[0] | {"caption": "a\0b"}]}, "NUL"),
        ({"annotations": [{"id": 1, "image_id": 7}]}, r"'caption' is missing \(it has 'id', "),
        ({"annotations": [7]}, r"annotations\[0\]: must be an object"),
    ],
)
def test_bad_captions_are_named(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message) as caught:
        read_coco(**write(tmp_path, **changes))
    assert "captions.json" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"images": [', "not JSON at line 1 column 13: .* truncated"),
        ('{"images": [NaN]}', "NaN is not a JSON number"),
        ('{"images": [-Infinity]}', "-Infinity is not a JSON number"),
        ('{"images": [1], "images": [2]}', "'images' occurs twice"),
        ("[" * 200_000, "nested too deep"),
        ("9" * 5000, "4300 digits"),
        ("[]", "must be an object"),
    ],
)
def test_bad_json_is_named(tmp_path, text, message):
    (tmp_path / "bad.json").write_text(text)
    with pytest.raises(ValueError, match=rf"bad.json.*{message}"):
        read_coco(name="c", annotations=tmp_path / "bad.json", image_folder=None)


@pytest.mark.parametrize("bbox", ["[0, 0, 1e999, 3]", "[0, 0, 3]", '[0, 0, 3, "3"]', "3", "true"])
def test_boxes_are_four_finite_numbers(tmp_path, bbox):
    arguments = write(tmp_path)
    instances = write_boxes(tmp_path, [1, 2, 3, 4])
    instances.write_text(instances.read_text().replace("[1, 2, 3, 4]", bbox))
    with pytest.raises(ValueError, match=r"instances.json: annotations\[0\]: 'bbox' must be"):
        read_coco(**arguments, instances=instances)


def test_instances_of_other_images_or_categories_are_named(tmp_path):
    arguments = write(tmp_path)
    for change in ({"image_id": 8}, {"category_id": 4}):
        with pytest.raises(ValueError, match=r"instances.json: annotations\[0\].*(8|4)"):
            read_coco(**arguments, instances=write_boxes(tmp_path, [1, 2, 3, 4], **change))


def test_annotations_inside_pycocoevalcap_that_are_not_there():
    with pytest.raises(FileNotFoundError, match="captions_val2017.*captions_train2014"):
        load_annotations("pycocoevalcap:captions_val2017")


@pytest.mark.long
def test_captions_inside_pycocoevalcap():
    roster = read_coco(name="v", annotations="pycocoevalcap:captions_val2014", image_folder=None)
    assert len(roster.rows_by_image) == 40_504
    assert len(roster) == 202_654


@pytest.mark.long
def test_all_captions_inside_pycocoevalcap_in_the_karpathy_split(shared_data):
    lists = [shared_data / "lists" / f"karpathy_{split}_images.txt" for split in ("val", "test")]
    files = [f"pycocoevalcap:captions_{split}2014" for split in ("train", "val")]
    roster = read_coco(name="k", annotations=files, image_folder=None, exclude_ids=lists)
    assert len(roster.rows_by_image) == 82_783 + 40_504 - 10_000
    assert len(roster) == 566_747


@pytest.mark.parametrize("split", ["train", "val"])
def test_real_photos_with_boxes(shared_data, split):
    root = shared_data / "coco" / "tiny_coco" / "tiny_coco"
    roster = read_coco(
        name=split,
        annotations=root / "annotations" / f"captions_{split}2017.json",
        instances=root / "annotations" / f"instances_{split}2017.json",
        image_folder=root / f"{split}2017",
    )
    assert (len(roster), len(roster.rows_by_image)) == (250, 50)
    regions = {s.image_id: s.regions for s in roster.samples}.values()
    num_boxes = {"train": 470, "val": 382}[split]
    assert sum(map(len, regions)) + len(roster.dropped) == num_boxes
    assert {drop.rule for drop in roster.dropped} <= {"crowd region"}


@pytest.mark.parametrize("name", ["sub/A.JPG", "a.png", "B.jpg"])
def test_a_photo_whose_name_is_spelt_otherwise_is_named(tmp_path, name) -> None:
    arguments = write(tmp_path, annotations=CAPTIONS[1:2])
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.jpg").rename(tmp_path / name)
    hint = "" if name == "B.jpg" else rf", but '{name}': write names as the files have them"
    with pytest.raises(ValueError, match=rf"no photo 'a\.jpg' in \S+{hint}; add the photos"):
        read_coco(**arguments, missing_captions="drop")
    dropped = rf"no samples for c .* the first: \S+ photo missing{hint}\); check"
    with pytest.raises(ValueError, match=dropped):
        read_coco(**arguments, missing_captions="drop", missing_photos="drop")


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("Gro\u0308ße.jpg", "Größe.jpg"),
        ("Größe.jpg", "Gro\u0308ße.jpg"),
        ("A.JPG", "a.jpg"),
        ("a.jpg", "A.JPG"),
        ("0012.jpg", "12.0"),
        ("12.jpg", "0012"),
    ],
)
def test_photos_are_found_by_other_spellings_of_their_names(tmp_path, file, name) -> None:
    (tmp_path / file).touch()
    photos = PhotoFolder(folder=tmp_path)
    assert photos.find(name) == tmp_path / file
    assert photos.unclaimed([name]) == []
    assert photos.find("12.5") is None


def test_a_spelling_of_two_photos_finds_neither(tmp_path) -> None:
    for name in ("A.JPG", "A.jpg"):
        (tmp_path / name).touch()
    assert PhotoFolder(folder=tmp_path).find("a.jpg") is None
    assert PhotoFolder(folder=tmp_path).find("A.jpg") == tmp_path / "A.jpg"


def test_two_names_of_one_photo_are_refused(tmp_path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"")
    (tmp_path / "all.csv").write_text("image,caption\na.jpg,A dog.\nA.JPG,A cat.\n")
    message = r"all.csv:3: 'A.JPG' is the photo \S+a.jpg, and so is 'a.jpg' at .*all.csv:2; give"
    with pytest.raises(ValueError, match=message):
        read_own(name="o", folder=tmp_path)
