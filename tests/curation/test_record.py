"""What each edit found, followed through the journal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from foreign import make_roster

from captioning.data.roster import CurationView
from captioning.types import Edit
from curation.loop.planted_faults import faulty_kinds
from curation.record import changes, read_records


def edit(sample_id: str, action: str, value: str | None = None, **fields) -> Edit:
    return Edit(sample_id=sample_id, action=action, value=value, policy="p", **fields)


SIBLING = make_roster().by_id["img0#1"].caption
SWAP = edit("img0#0", "replace_caption", SIBLING, origin="sibling:img0#1", epoch=0)
OTHER = edit("img0#0", "replace_caption", "written", origin="blip", epoch=1)
IMAGE = edit("img1#0", "replace_image", "new.jpg", epoch=1)


def test_each_change_knows_what_stood_before():
    view = CurationView(roster=make_roster()).apply(
        [SWAP, OTHER, IMAGE, replace(IMAGE, value="newer.jpg"), edit("img0#0", "remove")]
    )
    recorded = list(changes(view, {}))
    original = view.roster.by_id["img0#0"].caption
    assert [change.before.caption for change in recorded if change.edit.sample_id == "img0#0"] == [
        original,
        SIBLING,
        "written",
    ]
    assert [recorded[2].before.image_path, recorded[3].before.image_path] == [
        Path("img1.jpg"),
        Path("new.jpg"),
    ]
    assert [change.edit for change in recorded] == list(view.journal)


def test_faults_follow_captions_and_photos():
    truth = {"img0#1": "swap", "img1#0": "image", "img2#0": "color"}
    later = [edit("img0#0", "remove"), replace(IMAGE, value="z.jpg"), edit("img2#0", "remove")]
    view = CurationView(roster=make_roster())
    recorded = list(changes(view.apply([SWAP, IMAGE, *later]), truth))
    # the sound caption of img0#0 was replaced by a faulty sibling's, which the removal then hit
    assert [change.fault for change in recorded] == ["", "image", "swap", "", "color"]
    mended = list(changes(view.apply([SWAP, OTHER, edit("img0#0", "remove")]), truth))
    assert [change.fault for change in mended] == ["", "swap", ""]


def test_faults_are_those_that_curation_is_scored_by():
    truth = {"img0#1": "swap", "img1#0": "image", "img2#0": "color", "img2#1": "image"}
    view = CurationView(roster=make_roster()).apply([SWAP, IMAGE])
    for sample in view.samples():
        after = view.apply([edit(sample.sample_id, "remove")])
        (*_, last) = changes(after, truth)
        assert last.fault == faulty_kinds(view, truth).get(sample.row, "")


@pytest.mark.parametrize("text", ["", "{}", "null", "[1]", "[{}]", '[{"epoch": 0}', "[" * 99_999])
def test_damaged_records_are_named(tmp_path, text):
    (tmp_path / "epochs.json").write_text(text)
    with pytest.raises(ValueError, match=r"epochs\.json .*(restore it|delete the file)"):
        read_records(tmp_path / "epochs.json")
    assert read_records(tmp_path / "none.json") == []
