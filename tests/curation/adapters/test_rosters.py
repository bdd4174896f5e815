"""Rosters from Python."""

from __future__ import annotations

from pathlib import Path

import pytest
from foreign import make_roster
from PIL import Image

from captioning.data.readers.imagefolder import read_imagefolder
from curation import make_roster as roster_of


def test_records_of_every_kind_give_the_same_roster():
    records = [
        {"image": "a.jpg", "caption": "A dog."},
        {"image": "b.jpg", "captions": ["A cat.", "Two cats."]},
        {"image": "a.jpg", "caption": "A brown dog."},
    ]
    pairs = [
        ("a.jpg", "A dog."),
        (Path("b.jpg"), ["A cat.", "Two cats."]),
        ["a.jpg", "A brown dog."],
    ]
    roster = roster_of(records, name="mine/train")
    assert [sample.sample_id for sample in roster.samples] == [
        "a.jpg#0",
        "b.jpg#0",
        "b.jpg#1",
        "a.jpg#1",
    ]
    assert [sample.row for sample in roster.samples] == [0, 1, 2, 3]
    assert roster.samples[2].image_path == Path("b.jpg")
    assert roster.name == "mine/train"
    assert roster_of(pairs).samples == roster.samples
    assert roster_of(iter(roster.samples)).samples == roster.samples
    assert roster_of(make_roster()) == make_roster()


def test_ids_of_ones_own_are_kept():
    record = {"file_name": "x/a.jpg", "text": "A dog.", "image_id": 7, "sample_id": "seven"}
    (sample,) = roster_of([record]).samples
    assert (sample.image_id, sample.sample_id, sample.image_path) == ("7", "seven", Path("x/a.jpg"))


def test_pictures_in_memory_are_named_by_their_place(tmp_path):
    Image.new("RGB", (2, 2)).save(tmp_path / "a.png")
    with Image.open(tmp_path / "a.png") as image:
        roster = roster_of([(Image.new("RGB", (2, 2)), "Text."), (image, "Text.")])
    assert [s.image_path for s in roster.samples] == [Path("image_0"), tmp_path / "a.png"]


def test_an_image_folder_is_read_by_its_reader(git):
    assert roster_of(git[1]).fingerprint == read_imagefolder(name="x", folder=git[1]).fingerprint


def test_a_table_of_datasets_is_read_without_its_pixels(git, monkeypatch):
    datasets = pytest.importorskip("datasets", reason="needs datasets")
    photos = [str(Path(git[1]) / f"{number}.png") for number in range(3)]
    columns = {"image": photos, "text": ["One.", "Two.", "Three."], "other": [1, 2, 3]}
    table = datasets.Dataset.from_dict(columns).cast_column("image", datasets.Image())
    monkeypatch.setattr(datasets.Image, "decode_example", None)
    roster = roster_of(table)
    assert [str(sample.image_path) for sample in roster.samples] == photos
    assert [sample.caption for sample in roster.samples] == columns["text"]
    assert [s.caption for s in roster_of(table.select([2, 0])).samples] == ["Three.", "One."]
    with pytest.raises(ValueError, match="table: needs columns for image"):
        roster_of(table.rename_column("text", "words"))


def test_photos_of_one_name_in_a_table_from_the_hub_are_told_apart_by_their_bytes():
    datasets = pytest.importorskip("datasets", reason="needs datasets")
    photos = [(b"cat", "0.png"), (b"dog", "0.png"), (b"cat", "0.png"), (b"owl", None)]
    columns = {
        "image": [{"bytes": content, "path": path} for content, path in photos],
        "text": ["One.", "Two.", "Three.", "Four."],
    }
    table = datasets.Dataset.from_dict(columns).cast_column("image", datasets.Image())
    samples = roster_of(table).samples
    cat, dog, again, owl = [sample.image_id for sample in samples]
    assert cat == again == "0-19e985a2841e.png"
    assert len({cat, dog, owl}) == 3
    assert [sample.sample_id for sample in samples[::2]] == [f"{cat}#0", f"{cat}#1"]
    # what is exported goes by the path
    assert [str(sample.image_path) for sample in samples] == [cat, dog, again, owl]
    assert [s.image_id for s in roster_of(table.select([1, 0])).samples] == [dog, cat]
    named = roster_of(table.add_column("image_id", ["a", "b", "a", "c"])).samples
    assert [sample.image_id for sample in named] == ["a", "b", "a", "c"]
    assert [sample.image_path for sample in named] == [sample.image_path for sample in samples]


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ([{"image": "a.jpg"}], r"samples\[0\]: needs exactly one of the keys \['caption'"),
        ([{"image": "a", "caption": "x", "text": "y"}], r"it has \['caption', 'text'\]"),
        ([("a.jpg", "x"), ("b.jpg", " ")], r"samples\[1\]: 'caption' is empty"),
        ([("a.jpg", 5)], r"'caption' must be a text or a list of texts"),
        ([("a.jpg", [])], r"'caption' must be a text or a list of texts"),
        ([5], r"samples\[0\]: must be a mapping with image and caption, or a pair"),
        (
            5,
            "samples must be a Roster, a list of records, a table of datasets or a folder: got int",
        ),
        ([], "no samples"),
        ([{"image": "a", "caption": "x", "sample_id": "s"}] * 2, "'s' occurs twice"),
    ],
)
def test_what_is_wrong_is_named(samples, message):
    with pytest.raises(ValueError, match=message):
        roster_of(samples)


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"metadata\.jsonl"):
        roster_of(tmp_path)
