from __future__ import annotations

import json

import pytest
from foreign import make_roster

from captioning.data.roster import CurationView
from captioning.types import Edit
from curation.loop.truth import faulty_kinds, load_truth


def faulty_ids(view, truth):
    kinds = faulty_kinds(view, truth)
    return [sample.sample_id for sample in view.roster.samples if sample.row in kinds]


def test_a_replaced_caption_is_sound_unless_its_source_is_faulty():
    view = CurationView(roster=make_roster())
    truth = {"img0#0": "swap", "img0#1": "swap", "img2#0": "overlong"}
    assert faulty_ids(view, truth) == ["img0#0", "img0#1", "img2#0"]
    edits = [
        Edit(
            sample_id="img0#0",
            action="replace_caption",
            value=view.roster.by_id[source].caption,
            origin=f"sibling:{source}",
        )
        for source in ("img0#1", "img0#2")
    ]
    assert faulty_ids(view.apply(edits[:1]), truth) == ["img0#0", "img0#1", "img2#0"]
    assert faulty_ids(view.apply(edits), truth) == ["img0#1", "img2#0"]
    taken = faulty_kinds(view.apply(edits[:1]), truth)
    assert [taken[view.roster.by_id[i].row] for i in ("img0#0", "img2#0")] == ["swap", "overlong"]
    gone = Edit(sample_id="img2#0", action="remove")
    assert faulty_ids(view.apply([gone]), truth) == ["img0#0", "img0#1"]


def test_a_caption_of_nobodys_is_sound():
    view = CurationView(roster=make_roster())
    edit = Edit(sample_id="img0#0", action="replace_caption", value="new", origin="model:x")
    assert faulty_ids(view.apply([edit]), {"img0#0": "swap"}) == []


def test_a_wrong_photo_stays_wrong_until_it_is_replaced():
    view = CurationView(roster=make_roster())
    truth = {"img1#0": "image of another photo"}
    words = Edit(sample_id="img1#0", action="replace_caption", value="new")
    photo = Edit(sample_id="img1#0", action="replace_image", value="other.png")
    assert faulty_ids(view.apply([words]), truth) == ["img1#0"]
    assert faulty_ids(view.apply([photo]), truth) == []


def test_bad_truth_is_named(tmp_path):
    path = tmp_path / "truth.json"
    with pytest.raises(FileNotFoundError, match=r"truth\.json"):
        load_truth(path)
    for content in ("{", json.dumps(["a"]), json.dumps({"a": 1})):
        path.write_text(content)
        with pytest.raises(ValueError, match=r"truth\.json"):
            load_truth(path)
