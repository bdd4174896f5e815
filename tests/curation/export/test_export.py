"""The curated set as files that can be read again."""

from __future__ import annotations

import json
import os
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
from foreign import make_roster
from PIL import Image

from captioning.data.readers.arrow import read_arrow
from captioning.data.readers.coco import read_coco
from captioning.data.readers.imagefolder import read_imagefolder
from captioning.data.readers.jsonl import read_jsonl
from captioning.data.readers.webdataset import read_webdataset
from captioning.data.roster import CurationView, build_roster
from captioning.types import UNPAIRED, Edit
from curation.export.apply import read_annotations
from curation.export.curated_set import pictures, safe_names, write_coco
from curation.export.export import _header, export
from curation.journal.journal import read_journal
from curation.record import RunRecord
from curation.review.edit_report import count_words


@pytest.fixture
def record(tmp_path):
    """Photos on the disk; one caption removed, one replaced, one with another picture."""
    photos, run = tmp_path / "photos", tmp_path / "run"
    photos.mkdir()
    (run / "curation" / "images").mkdir(parents=True)
    for image in range(6):
        Image.new("RGB", (4, 4), (image, 0, 0)).save(photos / f"img{image}.jpg")
    Image.new("RGB", (4, 4), "blue").save(run / "curation" / "images" / "new.png")
    samples = [
        replace(sample, image_path=photos / sample.image_path, caption=f"<b>| {sample.caption}")
        for sample in make_roster().samples
    ]
    edits = [
        Edit(sample_id="img0#0", action="remove", policy="p", epoch=0),
        Edit(sample_id="img0#1", action="replace_caption", value="swapped in", policy="p", epoch=0),
        Edit(
            sample_id="img1#2",
            action="replace_image",
            value="curation/images/new.png",
            origin="made",
            policy="p",
            epoch=1,
        ),
    ]
    view = CurationView(roster=build_roster("toy/`train`|", samples), image_root=run)
    (run / "versions.json").write_text('{"commit": "abc", "date": "2026-01-02"}')
    return RunRecord(policy="p", seed=4, view=view.apply(edits))


def captions_by_photo(roster) -> dict[str, list[str]]:
    captions: dict[str, list[str]] = {}
    for sample in roster.samples:
        captions.setdefault(sample.image_path.name, []).append(sample.caption)
    return captions


def waiting(record: RunRecord, *, ids: range) -> RunRecord:
    """The run with photos whose captions are yet to be written."""
    photo = record.view.roster.samples[0].image_path
    samples = [
        replace(
            record.view.roster.samples[0],
            sample_id=f"new{image}#unpaired0",
            image_id=f"new{image}",
            image_path=photo.with_name(f"new{image}.jpg"),
            caption="bus, zebra",
            origin=UNPAIRED,
            weight=0.0,
        )
        for image in ids
    ]
    roster = build_roster("toy", [*record.view.roster.samples, *samples])
    return replace(record, view=replace(record.view, roster=roster))


def test_photos_that_wait_for_a_caption_are_left_out(record, tmp_path):
    Image.new("RGB", (4, 4), "red").save(tmp_path / "photos" / "new0.jpg")
    Image.new("RGB", (4, 4), "red").save(tmp_path / "photos" / "new1.jpg")
    partly = waiting(record, ids=range(2))
    written = Edit(
        sample_id="new0#unpaired0",
        action="replace_caption",
        value="a bus",
        origin="pseudo-label:constrained",
        policy="p",
        epoch=1,
    )
    partly = replace(partly, view=partly.view.apply([written]))
    for format in ("coco", "jsonl", "imagefolder", "parquet"):
        photos = "copy" if format in ("imagefolder", "parquet") else "none"
        assert export(partly, None, tmp_path / format, format=format, photos=photos) == 18
        readme = (tmp_path / format / "README.md").read_text()
        assert "**1 samples still wait for a caption**" in readme
        assert "| captions | 18 | 18 |" in readme
    text = (tmp_path / "jsonl" / "captions.jsonl").read_text()
    assert "a bus" in text
    assert "zebra" not in text
    assert "new1.jpg" not in text
    assert not (tmp_path / "imagefolder" / "new1.jpg").exists()
    nothing = waiting(record, ids=range(2))
    only = [sample for sample in nothing.view.roster.samples if sample.origin == UNPAIRED]
    nothing = replace(nothing, view=CurationView(roster=build_roster("toy", only)))
    with pytest.raises(ValueError, match="no photo has a caption yet"):
        export(nothing, None, tmp_path / "none", format="coco", photos="none")


def test_every_format_is_read_again(record, tmp_path):
    run = tmp_path / "run"
    expected: dict[str, list[str]] = {}
    for sample in record.view.samples():
        expected.setdefault(sample.image_path.name, []).append(sample.caption)
    for format, photos in (("coco", "link"), ("jsonl", "copy"), ("imagefolder", "copy")):
        assert export(record, run, tmp_path / format, format=format, photos=photos) == 17
    read = [
        read_coco(
            name="c",
            annotations=tmp_path / "coco/captions.json",
            image_folder=tmp_path / "coco/images",
        ),
        read_jsonl(
            name="j",
            annotations=tmp_path / "jsonl/captions.jsonl",
            image_folder=tmp_path / "jsonl/images",
        ),
        read_imagefolder(name="i", folder=tmp_path / "imagefolder"),
    ]
    for roster in read:
        assert captions_by_photo(roster) == expected
        assert roster.dropped == ()
    assert expected["new.png"] == [record.view.samples()[4].caption]
    assert (tmp_path / "coco/images/img0.jpg").is_symlink()
    assert not (tmp_path / "jsonl/images/replaced/new.png").is_symlink()


def test_the_journal_and_the_card_go_with_it(record, tmp_path):
    export(record, tmp_path / "run", tmp_path / "out", format="journal", photos="none")
    assert sorted(os.listdir(tmp_path / "out")) == ["README.md", "curation.jsonl"]
    assert read_journal(tmp_path / "out")[1] == list(record.view.journal)
    card = (tmp_path / "out/README.md").read_text()
    assert card.startswith('---\npretty_name: "toy/`train`|, curated"\n')
    assert "| captions | 18 | 17 |" in card
    assert "| 0 | `p` | caption replaced | 1 |" in card
    assert "- commit: `abc`" in card
    assert "- annotations: `toy/'train'/`" in card
    assert "# toy/&#96;train&#96;&#124;, curated" in card
    assert "Planted faults" not in card
    assert str(tmp_path) not in card
    spoilt = replace(record, truth={"img0#0": "swap", "img2#0": "swap"})
    export(spoilt, tmp_path / "run", tmp_path / "spoilt", format="journal", photos="none")
    assert (
        "**2 samples were spoilt on purpose** (2 x swap)"
        in (tmp_path / "spoilt/README.md").read_text()
    )


def test_buckets_are_told_beside_captions(record, tmp_path):
    edits = [Edit(sample_id="img3#1", action="set_bucket", value="2")]
    dealt = replace(record, view=record.view.apply(edits))
    for format in ("coco", "jsonl"):
        export(dealt, tmp_path / "run", tmp_path / format, format=format, photos="none")
    annotations = json.loads((tmp_path / "coco/captions.json").read_text())["annotations"]
    assert {a["sample_id"]: a["bucket"] for a in annotations if "bucket" in a} == {"img3#1": 2}
    lines = map(json.loads, (tmp_path / "jsonl/captions.jsonl").read_text().splitlines())
    by_line = {tuple(line["sample_ids"]): line.get("buckets") for line in lines}
    assert by_line["img3#0", "img3#1", "img3#2"] == [0, 2, 0]
    assert [buckets for buckets in by_line.values() if buckets] == [[0, 2, 0]]


def test_masked_words_stand_in_full_and_the_card_says_so(record, tmp_path):
    run, masks = tmp_path / "run", {"img3#0": "2-5", "img3#1": "0-1,2-3:0.25"}
    edits = [Edit(sample_id=i, action="mask_words", value=v) for i, v in masks.items()]
    masked = replace(record, view=record.view.apply(edits))
    for format in ("coco", "jsonl"):
        export(masked, run, tmp_path / format, format=format, photos="none")
    card = (tmp_path / "coco/README.md").read_text()
    assert "**2 captions have 3 masked words that these files do not mask**" in card
    annotations = json.loads((tmp_path / "coco/captions.json").read_text())["annotations"]
    told = {a["sample_id"]: a["masked_words"] for a in annotations if "masked_words" in a}
    assert told == masks
    lines = map(json.loads, (tmp_path / "jsonl/captions.jsonl").read_text().splitlines())
    by_line = {tuple(line["sample_ids"]): line.get("masked_words") for line in lines}
    assert by_line["img3#0", "img3#1", "img3#2"] == ["2-5", "0-1,2-3:0.25", ""]
    assert [masks for masks in by_line.values() if masks] == [["2-5", "0-1,2-3:0.25", ""]]
    export(record, run, tmp_path / "plain", format="coco", photos="none")
    assert "Masked words" not in (tmp_path / "plain/README.md").read_text()


def test_numbers_stay_cocos_numbers(tmp_path):
    samples = [
        replace(s, image_id=s.image_id[3:], sample_id=s.sample_id[3:])
        for s in make_roster().samples
    ]
    edit = Edit(sample_id="2#0", action="replace_image", value="x/new.png")
    view = CurationView(roster=build_roster("coco", samples)).apply([edit])
    write_coco(pictures(view), tmp_path / "c.json", name="coco")
    written = json.loads((tmp_path / "c.json").read_text())
    assert [image["id"] for image in written["images"]] == [0, 1, 6, 2, 3, 4, 5]
    assert written["images"][2]["file_name"] == "replaced/new.png"
    assert [image["id"] for image in written["annotations"]] == list(range(1, 19))


def test_a_picture_of_several_images_stands_once(record):
    again = Edit(sample_id="img3#0", action="replace_image", value="curation/images/new.png")
    curated = pictures(record.view.apply([again]))
    (shared,) = (picture for picture in curated if picture.path.name == "new.png")
    assert [sample.sample_id for sample in shared.samples] == ["img1#2", "img3#0"]


def test_what_cannot_be_exported_leaves_nothing(record, tmp_path):
    run, out = tmp_path / "run", tmp_path / "out"
    with pytest.raises(ValueError, match="choose --photos copy or link"):
        export(record, run, out, format="imagefolder", photos="none")
    with pytest.raises(ValueError, match="exists already and is not empty"):
        export(record, run, tmp_path / "photos", format="coco", photos="none")
    (tmp_path / "photos/img5.jpg").unlink()
    with pytest.raises(FileNotFoundError, match=r"img5.jpg: no such picture; --photos none"):
        export(record, run, out, format="coco", photos="copy")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["photos", "run"]
    assert export(record, run, out, format="coco", photos="none") == 17


def test_two_pictures_of_one_name_are_refused(record, tmp_path):
    edits = [
        Edit(sample_id=f"img{n}#0", action="replace_image", value=f"{n}/same.png") for n in (2, 3)
    ]
    with pytest.raises(ValueError, match="would both be called replaced/same.png"):
        pictures(record.view.apply(edits))


def test_weights_go_with_their_captions(record, tmp_path):
    lower = Edit(sample_id="img2#1", action="down_weight", value="0.25", policy="p", epoch=1)
    record = replace(record, view=record.view.apply([lower]))
    for format in ("coco", "jsonl"):
        export(record, tmp_path / "run", tmp_path / format, format=format, photos="none")
    written = json.loads((tmp_path / "coco/captions.json").read_text())["annotations"]
    assert {
        annotation["sample_id"]: annotation.get("weight")
        for annotation in written
        if "weight" in annotation
    } == {"img2#1": 0.25}
    lines = [
        json.loads(line) for line in (tmp_path / "jsonl/captions.jsonl").read_text().splitlines()
    ]
    assert [line["weights"] for line in lines if "weights" in line] == [[1.0, 0.25, 1.0]]
    assert "| 1 | `p` | weighted down | 1 |" in (tmp_path / "coco/README.md").read_text()


def test_an_export_can_be_curated_again(record, tmp_path):
    export(record, tmp_path / "run", tmp_path / "out", format="jsonl", photos="none")
    roster = read_annotations([Path(tmp_path / "out/captions.jsonl")])
    assert len(roster) == 17


@pytest.mark.parametrize("format", ["coco", "jsonl", "imagefolder", "parquet", "webdataset"])
def test_datasets_loads_the_folder_and_no_journal(record, tmp_path, format):
    datasets = pytest.importorskip("datasets")
    if format == "webdataset":  # datasets wants photos of one type in it
        kept = [e for e in record.view.journal if e.action != "replace_image"]
        record = replace(record, view=replace(record.view, journal=()).apply(kept))
    export(record, tmp_path / "run", tmp_path / "out", format=format, photos="copy")
    loaded = datasets.load_dataset(str(tmp_path / "out"), cache_dir=str(tmp_path / "cache"))
    rows = list(loaded["train"])
    if format == "webdataset":
        rows = [row["json"] for row in rows]
    captions = [c for row in rows for c in row.get("captions") or [row["caption"]]]
    assert sorted(captions) == sorted(sample.caption for sample in record.view.samples())


def test_large_files_tell_weights_buckets_and_masks_and_are_read_again(record, tmp_path):
    datasets = pytest.importorskip("datasets")
    edits = [
        Edit(sample_id="img2#1", action="down_weight", value="0.25"),
        Edit(sample_id="img3#1", action="set_bucket", value="2"),
        Edit(sample_id="img4#2", action="mask_words", value="2-5"),
    ]
    told = replace(record, view=record.view.apply(edits))
    for format in ("parquet", "datasets", "webdataset"):
        export(told, tmp_path / "run", tmp_path / format, format=format, photos="copy")
    with tarfile.open(tmp_path / "webdataset/000000.tar") as shard:
        members = [member for member in shard if member.name.endswith(".json")]
        in_shard = [json.load(shard.extractfile(member)) for member in members]
    parquet = str(tmp_path / "parquet/data/*.parquet")
    loaded = datasets.load_dataset("parquet", data_files=parquet, cache_dir=str(tmp_path / "cache"))
    for rows in (loaded["train"], datasets.load_from_disk(str(tmp_path / "datasets")), in_shard):
        lists = {row["image_id"]: row for row in rows}
        assert lists["img2"]["weights"] == [1.0, 0.25, 1.0]
        assert lists["img3"]["buckets"] == [0, 2, 0]
        assert lists["img4"]["masked_words"] == ["", "", "2-5"]
        assert lists["img5"]["weights"] == [1.0] * 3
    expected = sorted(sample.caption for sample in told.view.samples())
    for roster in (
        read_arrow(name="p", folder=tmp_path / "parquet"),
        read_arrow(name="d", folder=tmp_path / "datasets", files="*.arrow"),
        read_webdataset(name="w", folder=tmp_path / "webdataset"),
    ):
        assert sorted(sample.caption for sample in roster.samples) == expected
    export(record, tmp_path / "run", tmp_path / "plain", format="datasets", photos="copy")
    assert "weights" not in datasets.load_from_disk(str(tmp_path / "plain")).column_names


def test_photos_that_stand_for_other_images_too_keep_ids_of_their_own(record, tmp_path):
    """A sample of an image has the photo of another: by a planted fault, or by an edit."""
    photos = tmp_path / "photos"
    samples = [
        replace(sample, image_path=photos / "img4.jpg") if sample.sample_id == "img0#1" else sample
        for sample in record.view.roster.samples
    ]
    edit = Edit(sample_id="img1#0", action="replace_image", value=str(photos / "img2.jpg"))
    view = CurationView(roster=build_roster("planted", samples)).apply([edit])
    curated = pictures(view)
    assert {picture.path.stem: picture.image_id for picture in curated} == {
        f"img{number}": f"img{number}" for number in range(6)
    }
    record = replace(record, view=view)
    for format in ("coco", "jsonl"):
        export(record, None, tmp_path / format, format=format, photos="copy")
    rosters = [
        read_coco(
            name="c",
            annotations=tmp_path / "coco/captions.json",
            image_folder=tmp_path / "coco/images",
        ),
        read_jsonl(
            name="j",
            annotations=tmp_path / "jsonl/captions.jsonl",
            image_folder=tmp_path / "jsonl/images",
        ),
    ]
    assert [captions_by_photo(roster)["img4.jpg"] for roster in rosters] == [
        [s.caption for s in view.samples() if s.image_path.stem == "img4"]
    ] * 2


def test_an_image_of_two_photos_gives_the_second_a_name_after_its_id(tmp_path):
    samples = [
        replace(sample, image_id="one", image_path=tmp_path / f"{sample.row % 2}" / "a.jpg")
        for sample in make_roster(num_images=2).samples
    ]
    curated = pictures(CurationView(roster=build_roster("twice", samples)))
    assert [picture.image_id for picture in curated] == ["one", "one/a"]


def test_names_that_say_a_split_are_made_safe_in_an_image_folder(record):
    whole = pictures(record.view)[:1]
    names = [
        "red_train.jpg", "COCO_val2014_07.jpg", "test/a.jpg", "sub/my test 1.jpg", "trainer.jpg",
        "Test.jpg", "red_xtrain.jpg", ".a.jpg", "latest.jpg",
    ]  # fmt: skip
    safe = safe_names([replace(whole[0], file_name=name) for name in names])
    assert list(safe) == names
    assert list(safe.values()) == [
        "red_xtrain-2.jpg", "COCO_xval2014_07.jpg", "xtest/a.jpg", "sub/my xtest 1.jpg",
        "trainer.jpg", "Test.jpg", "red_xtrain.jpg", "x.a.jpg", "latest.jpg",
    ]  # fmt: skip
    of_test = replace(whole[0], file_name="test/eval/train.jpg", split="test")
    assert safe_names([of_test]) == {"test/eval/train.jpg": "test/eval/xtrain.jpg"}


def test_the_card_tells_one_content_from_another(record, tmp_path):
    cards = []
    for number in range(4):
        if number == 2:
            Image.new("RGB", (9, 9), "green").save(tmp_path / "photos" / "img5.jpg")
        for format in ("parquet", "jsonl"):
            out = tmp_path / f"{number}-{format}"
            export(record, None, out, format=format, photos="copy")
        cards.append((tmp_path / f"{number}-parquet/README.md").read_text())
    assert cards[0] == cards[1] != cards[2] == cards[3]
    edited = replace(record, view=record.view.apply([Edit(sample_id="img5#0", action="remove")]))
    export(edited, None, tmp_path / "edited", format="jsonl", photos="copy")
    heads = [
        (tmp_path / f"{name}/README.md").read_text().split("---")[1]
        for name in ("0-jsonl", "3-jsonl", "edited")
    ]
    assert heads[0] == heads[1] != heads[2]  # JSON Lines hold no photos


def test_headers_of_shards_are_those_of_tarfile() -> None:
    names = ("a.jpg", "zoë b.txt", "x" * 100, "x" * 101, "y" * 50 + "/" + "z" * 120, "ü" * 51)
    for name in names:
        for size in (0, 1, 511, 8**11 - 1, 8**11):
            member = tarfile.TarInfo(name)
            member.size = size
            assert _header(name, size) == member.tobuf(tarfile.GNU_FORMAT)


def test_the_card_counts_the_words_of_edited_captions(record, tmp_path) -> None:
    export(record, None, tmp_path / "out", format="journal", photos="none")
    before = count_words(sample.caption for sample in record.view.roster.samples)
    after = count_words(sample.caption for sample in record.view.samples())
    assert "swapped" in after
    card = (tmp_path / "out" / "README.md").read_text()
    assert f"| words | {len(before)} | {len(after)} |" in card
    assert len(before) != len(after)
