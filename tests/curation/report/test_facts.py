"""The numbers of a report."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from foreign import make_roster

from captioning.data.roster import CurationView, build_roster
from captioning.types import Edit
from curation.record import RunRecord, changes
from curation.report.facts import count_words, facts, histograms, loss_curves, most_often_changed


def remove(sample_id: str, epoch: int) -> Edit:
    return Edit(sample_id=sample_id, action="remove", policy="p", epoch=epoch)


def make_record(edits, *, truth=None, roster=None) -> RunRecord:
    roster = roster or make_roster(num_images=2, num_captions=2)
    view = CurationView(roster=roster).apply(edits)
    history = np.arange(2 * len(roster), dtype=np.float32).reshape(2, -1)
    gone = [roster.by_id[one.sample_id].row for one in edits if one.epoch == 0]
    history[1, gone] = np.nan
    return RunRecord(
        policy="p", seed=3, view=view, epochs=(0, 1), history=history, truth=truth or {}
    )


def told(record: RunRecord) -> dict:
    return facts(record, list(changes(record.view, record.truth)))


def test_counts_and_what_vanished():
    record = make_record([remove("img0#0", 0), remove("img0#1", 1)])
    found = told(record)
    assert (found["num_samples"], found["num_left"], found["num_edits"]) == (4, 2, 2)
    assert found["actions"] == [
        {"epoch": epoch, "policy": "p", "action": "remove", "count": 1} for epoch in (0, 1)
    ]
    assert found["vanished"]["images"]["count"] == 1
    assert found["vanished"]["images"]["named"][0]["image"] == "img0"
    # "picture", "way" and "very" are still in captions of img1
    assert found["vanished"]["words"] == {"count": 0, "of": 3, "named": []}
    assert found["truth"] is None


def test_words_that_vanished_come_with_their_counts():
    roster = make_roster(num_images=2, num_captions=2)
    texts = ["a rare zebra", "Zebra's day", "a day", "a dog"]
    samples = [replace(s, caption=text) for s, text in zip(roster.samples, texts, strict=True)]
    record = make_record([remove("img0#0", 0)], roster=build_roster("x", samples))
    words = told(record)["vanished"]["words"]
    assert words["named"] == [{"word": "rare", "count": 1}, {"word": "zebra", "count": 1}]
    assert count_words(["Don't re-use 3 ÉTÉ dogs"]) == dict.fromkeys(
        ["don't", "re-use", "été", "dogs"], 1
    )


def test_an_image_that_was_replaced_everywhere_is_named():
    edits = [
        Edit(sample_id=f"img0#{k}", action="replace_image", value=f"new{k}.jpg", epoch=0)
        for k in range(2)
    ]
    assert told(make_record(edits[:1]))["vanished"]["images"]["count"] == 0
    assert told(make_record(edits))["vanished"]["images"]["count"] == 1


def test_truth_by_epoch_and_kind():
    truth = {"img0#0": "swap", "img1#1": "color"}
    edits = [remove("img0#0", 0), remove("img0#1", 0), remove("img1#0", 1)]
    found = told(make_record(edits, truth=truth))["truth"]
    assert found["rate"] == pytest.approx(0.5)
    assert found["epochs"] == [
        {"epoch": 0, "edits": 2, "hits": 1},
        {"epoch": 1, "edits": 1, "hits": 0},
    ]
    assert {one["kind"]: (one["planted"], one["caught"]) for one in found["kinds"]} == {
        "swap": (1, 1),
        "color": (1, 0),
    }


def test_curves_follow_an_edited_sample_until_its_edit():
    record = make_record([remove("img0#1", 0), remove("img1#1", 1)])
    curves = {one["name"]: one["values"] for one in loss_curves(record, list(_made(record)))}
    # rows 0..3 have the losses 0..3, then 4..7; row 1 is gone in the second epoch
    assert curves["never edited"] == [1.0, 5.0]
    assert curves["edited (before it)"] == [2.0, 7.0]
    assert curves["all"] == [1.5, pytest.approx((4 + 6 + 7) / 3, abs=1e-4)]


def test_histograms_count_every_seen_sample_once():
    record = make_record([remove("img0#1", 0)], truth={"img0#0": "swap"})
    found = histograms(record, list(_made(record)))
    assert len(found["edges"]) == len(found["epochs"][0]["seen"]) + 1
    assert [sum(one["seen"]) for one in found["epochs"]] == [4, 3]
    assert [sum(one["edited"]) for one in found["epochs"]] == [1, 0]
    assert [sum(one["faulty"]) for one in found["epochs"]] == [1, 1]


def test_a_run_without_losses_has_no_curves():
    view = CurationView(roster=make_roster())
    record = RunRecord(policy="none", seed=0, view=view)
    found = told(record)
    assert (found["curves"], found["histograms"], found["actions"]) == ([], None, [])


def test_the_most_often_changed_come_first():
    def swap(sample_id, epoch):
        return Edit(sample_id=sample_id, action="replace_caption", value="x", epoch=epoch)

    edits = [swap("img0#0", 0), swap("img0#1", 0), swap("img0#0", 1), swap("img1#0", 1)]
    edits += [swap("img1#0", 2), swap("img1#0", 3)]
    made = list(_made(make_record(edits)))
    assert most_often_changed(made) == [[3, 4, 5], [0, 2]]


def _made(record: RunRecord):
    return changes(record.view, record.truth)
