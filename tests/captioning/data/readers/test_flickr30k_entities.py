from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from PIL import Image

from captioning.data.readers.flickr30k_entities import photo_id, read_flickr30k_entities
from captioning.types import Phrase, Region

SENTENCES = """[/EN#1/people Two men] in [/EN#2/clothing green shirts] run .
A pair of [/EN#1/people men] at [/EN#3/vehicles/scene a boat] , [/EN#0/notvisual it] .
"""
BOX = "<bndbox><xmin>{}</xmin><ymin>{}</ymin><xmax>{}</xmax><ymax>{}</ymax></bndbox>"
XML = f"""<annotation><filename>1.jpg</filename>
<size><width>100</width><height>50</height><depth>3</depth></size>
<object><name>1</name>{BOX.format(10, 10, 20, 50)}</object>
<object><name>1</name><name>2</name>{BOX.format(50, 0, 100, 25)}</object>
<object><name>3</name><scene>1</scene><nobndbox>0</nobndbox></object>
</annotation>"""


def write(
    folder: Path, xml: str = XML, sentences: str = SENTENCES, photo: str = "1_ab.jpg"
) -> dict:
    """Image 1 with a photo of half its width, image 2 without a photo."""
    root = folder / "entities"
    for kind, suffix, text in (("Annotations", "xml", xml), ("Sentences", "txt", sentences)):
        (root / kind).mkdir(parents=True)
        (root / kind / f"1.{suffix}").write_text(text)
        (root / kind / f"2.{suffix}").write_text(XML if suffix == "xml" else SENTENCES)
    (folder / "images").mkdir()
    Image.new("RGB", (50, 50)).save(folder / "images" / photo)
    (folder / "split.txt").write_text("1_ab.jpg\n")
    return {
        "name": "e",
        "annotations": root,
        "image_folder": folder / "images",
        "split_file": folder / "split.txt",
    }


def test_phrases_chains_and_boxes_in_pixels_of_the_photo_at_hand(tmp_path):
    first, second = read_flickr30k_entities(**write(tmp_path)).samples
    assert (first.sample_id, first.image_path.name) == ("1#0", "1_ab.jpg")
    assert first.caption == "Two men in green shirts run ."
    assert second.caption == "A pair of men at a boat , it ."
    assert first.regions == (
        Region(box=(5.0, 10.0, 10.0, 50.0), label="people"),
        Region(box=(25.0, 0.0, 50.0, 25.0), label="people"),
    )
    assert first.phrases == (
        Phrase(start=0, text="Two men", chain_id="1", kinds=("people",), regions=(0, 1)),
        Phrase(start=11, text="green shirts", chain_id="2", kinds=("clothing",), regions=(1,)),
    )
    assert [phrase.regions for phrase in second.phrases] == [(0, 1), (), ()]
    assert second.phrases[1].kinds == ("vehicles", "scene")
    for sample in (first, second):
        for phrase in sample.phrases:
            assert sample.caption[phrase.start :].startswith(phrase.text)


def test_zip_and_folder_are_the_same(tmp_path):
    arguments = write(tmp_path)
    with zipfile.ZipFile(tmp_path / "annotations.zip", "w") as archive:
        for path in sorted(arguments["annotations"].rglob("*.*")):
            archive.write(path, path.relative_to(arguments["annotations"]))
    zipped = arguments | {"annotations": tmp_path / "annotations.zip"}
    assert read_flickr30k_entities(**zipped) == read_flickr30k_entities(**arguments)


def test_split_may_be_ids_and_photos_may_be_missing(tmp_path):
    arguments = write(tmp_path) | {"split_file": None}
    with pytest.raises(ValueError, match=r"Sentences/2.txt: no photo '2.jpg'"):
        read_flickr30k_entities(**arguments)
    roster = read_flickr30k_entities(**arguments, missing_photos="drop")
    assert [(d.item, d.rule) for d in roster.dropped] == [("2.jpg", "photo missing")]
    text = arguments | {"image_folder": None}
    assert len(read_flickr30k_entities(**text)) == 4
    assert list(read_flickr30k_entities(**text, image_ids=["2"]).rows_by_image) == ["2"]


def test_bad_boxes_can_be_dropped_and_phrases_follow(tmp_path):
    arguments = write(tmp_path, xml=XML.replace("<xmax>20", "<xmax>10"))
    with pytest.raises(ValueError, match=r"Annotations/1.xml: object\[0\]: box .* no area"):
        read_flickr30k_entities(**arguments)
    first = read_flickr30k_entities(**arguments, bad_boxes="drop").samples[0]
    assert [region.box[0] for region in first.regions] == [25.0]
    assert [phrase.regions for phrase in first.phrases] == [(0,), (0,)]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("</annotation>", "", "1.xml: not XML"),
        ("<annotation>", '<!DOCTYPE a [<!ENTITY b "c">]><annotation>', "1.xml: declares"),
        ("<size>", "<sized>", "1.xml: not XML"),
        ("<width>100", "<width>0", "1.xml: <size> is 0x50"),
        ("<width>100", "<width>wide", "1.xml: <width> must be a whole number"),
        ("<name>3</name>", "", r"1.xml: object\[2\]: has no <name>"),
        ("<xmin>10</xmin>", "", r"1.xml: object\[0\]: <xmin> must be"),
        ("<xmax>100", "<xmax>101", r"1.xml: object\[1\]: box .* leaves the photo"),
    ],
)
def test_bad_boxes_files_are_named(tmp_path, old, new, message):
    assert old in XML
    with pytest.raises(ValueError, match=message):
        read_flickr30k_entities(**write(tmp_path, xml=XML.replace(old, new)))


@pytest.mark.parametrize(
    ("sentences", "message"),
    [
        ("[/EN#1/people Two men run .\n", "1.txt:1: brackets must be"),
        ("A dog .\nTwo men] run .\n", "1.txt:2: brackets must be"),
        ("[/EN#x/people Two men] run .\n", "1.txt:1: brackets must be"),
        ("[/EN#1/people Two men ] run .\n", "1.txt:1: white space at a bracket's edge"),
        ("\u200b\n", "1.txt:1: the caption is empty"),
        ("", "1.txt: image '1' has no caption"),
    ],
)
def test_bad_sentences_are_named(tmp_path, sentences, message):
    with pytest.raises(ValueError, match=message):
        read_flickr30k_entities(**write(tmp_path, sentences=sentences))


def test_bad_folders_zips_and_splits_are_named(tmp_path):
    arguments = write(tmp_path)
    (tmp_path / "bad.zip").write_bytes(b"PK\x03\x04 cut")
    with pytest.raises(ValueError, match=r"bad.zip: not a whole zip file"):
        read_flickr30k_entities(**arguments | {"annotations": tmp_path / "bad.zip"})
    with pytest.raises(FileNotFoundError, match=r"none.zip: no such zip or folder"):
        read_flickr30k_entities(**arguments | {"annotations": tmp_path / "none.zip"})
    with pytest.raises(ValueError, match=r"images: holds no Annotations"):
        read_flickr30k_entities(**arguments | {"annotations": tmp_path / "images"})
    (tmp_path / "split.txt").write_text("1\n9\n")
    with pytest.raises(ValueError, match=r"split.txt:2: the split names '9'"):
        read_flickr30k_entities(**arguments)
    (tmp_path / "split.txt").write_text("1\n1_ab.jpg\n")
    with pytest.raises(ValueError, match=r"split.txt:2: '1_ab.jpg' is image 1 of .*:1"):
        read_flickr30k_entities(**arguments)
    Image.new("RGB", (5, 5)).save(tmp_path / "images" / "1.jpg")
    with pytest.raises(ValueError, match=r"1.jpg and 1_ab.jpg are both image 1"):
        read_flickr30k_entities(**arguments)
    (arguments["annotations"] / "Sentences" / "2.txt").unlink()
    with pytest.raises(ValueError, match=r"image 2 has no file in Sentences"):
        read_flickr30k_entities(**arguments)


@pytest.mark.parametrize(("name", "expected"), [("1_a.jpg", "1"), ("1.JPG", "1"), ("12", "12")])
def test_photo_id(name, expected):
    assert photo_id(name) == expected


@pytest.mark.long
def test_flickr8k_test_photos_are_all_grounded(shared_data):
    roster = read_flickr30k_entities(
        name="e",
        annotations=shared_data / "flickr30k_entities" / "annotations.zip",
        image_folder=shared_data / "flickr8k" / "images",
        split_file=shared_data / "flickr8k" / "Flickr_8k.testImages.txt",
    )
    assert (len(roster), len(roster.rows_by_image), roster.dropped) == (5000, 1000, ())
    for sample in roster.samples:
        for phrase in sample.phrases:
            assert sample.caption[phrase.start :].startswith(phrase.text)
        for region in sample.regions:
            assert 0 <= region.box[0] < region.box[2] <= 224
            assert 0 <= region.box[1] < region.box[3] <= 224
    assert sum(bool(phrase.regions) for s in roster.samples for phrase in s.phrases) > 10_000
