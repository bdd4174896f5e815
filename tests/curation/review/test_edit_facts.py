"""The numbers of a report."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from foreign import make_roster

from captioning.data.roster import CurationView, PlantedWord, build_roster, planted_origin
from captioning.types import Edit
from curation.record import RunRecord, changes
from curation.review.edit_report import (
    count_words,
    facts,
    histograms,
    loss_curves,
    most_often_changed,
)


def remove(sample_id: str, epoch: int) -> Edit:
    return Edit(sample_id=sample_id, action="remove", policy="p", epoch=epoch)


def make_record(edits, *, truth=None, roster=None) -> RunRecord:
    roster = roster or make_roster(num_images=2, num_captions=2)
    view = CurationView(roster=roster).apply(edits)
    history = np.arange(2 * len(roster), dtype=np.float32).reshape(2, -1)
    gone = [roster.by_id[edit.sample_id].row for edit in edits if edit.epoch == 0]
    history[1, gone] = np.nan
    return RunRecord(
        policy="p", seed=3, view=view, epochs=(0, 1), history=history, truth=truth or {}
    )


def report_facts(record: RunRecord) -> dict:
    return facts(record, list(changes(record.view, record.truth)))


def test_counts_and_what_vanished():
    record = make_record([remove("img0#0", 0), remove("img0#1", 1)])
    result = report_facts(record)
    assert (result["num_samples"], result["num_left"], result["num_edits"]) == (4, 2, 2)
    assert result["actions"] == [
        {"epoch": epoch, "policy": "p", "action": "remove", "count": 1} for epoch in (0, 1)
    ]
    assert result["vanished"]["images"]["count"] == 1
    assert result["vanished"]["images"]["named"][0]["image"] == "img0"
    # "picture", "way" and "very" are still in captions of img1
    assert result["vanished"]["words"] == {"count": 0, "of": 3, "named": []}
    assert result["truth"] is None


def test_words_that_vanished_come_with_their_counts():
    roster = make_roster(num_images=2, num_captions=2)
    texts = ["a rare zebra", "Zebra's day", "a day", "a dog"]
    samples = [replace(s, caption=text) for s, text in zip(roster.samples, texts, strict=True)]
    record = make_record([remove("img0#0", 0)], roster=build_roster("x", samples))
    words = report_facts(record)["vanished"]["words"]
    assert words["named"] == [{"word": "rare", "count": 1}, {"word": "zebra", "count": 1}]
    assert count_words(["Don't re-use 3 ÉTÉ dogs"]) == dict.fromkeys(
        ["don't", "re-use", "été", "dogs"], 1
    )


def test_an_image_that_was_replaced_everywhere_is_named():
    edits = [
        Edit(sample_id=f"img0#{k}", action="replace_image", value=f"new{k}.jpg", epoch=0)
        for k in range(2)
    ]
    assert report_facts(make_record(edits[:1]))["vanished"]["images"]["count"] == 0
    assert report_facts(make_record(edits))["vanished"]["images"]["count"] == 1


def test_truth_by_epoch_and_kind():
    truth = {"img0#0": "swap", "img1#1": "color"}
    edits = [remove("img0#0", 0), remove("img0#1", 0), remove("img1#0", 1)]
    result = report_facts(make_record(edits, truth=truth))["truth"]
    assert result["rate"] == pytest.approx(0.5)
    assert result["epochs"] == [
        {"epoch": 0, "edits": 2, "hits": 1},
        {"epoch": 1, "edits": 1, "hits": 0},
    ]
    assert {entry["kind"]: (entry["planted"], entry["caught"]) for entry in result["kinds"]} == {
        "swap": (1, 1),
        "color": (1, 0),
    }


def test_curves_follow_an_edited_sample_until_its_edit():
    record = make_record([remove("img0#1", 0), remove("img1#1", 1)])
    curves = {curve["name"]: curve["values"] for curve in loss_curves(record, list(_made(record)))}
    # rows 0..3 have the losses 0..3, then 4..7; row 1 is gone in the second epoch
    assert curves["never edited"] == [1.0, 5.0]
    assert curves["edited (before it)"] == [2.0, 7.0]
    assert curves["all"] == [1.5, pytest.approx((4 + 6 + 7) / 3, abs=1e-4)]


def test_histograms_count_every_seen_sample_once():
    record = make_record([remove("img0#1", 0)], truth={"img0#0": "swap"})
    result = histograms(record, list(_made(record)))
    assert len(result["edges"]) == len(result["epochs"][0]["seen"]) + 1
    assert [sum(entry["seen"]) for entry in result["epochs"]] == [4, 3]
    assert [sum(entry["edited"]) for entry in result["epochs"]] == [1, 0]
    assert [sum(entry["faulty"]) for entry in result["epochs"]] == [1, 1]


def test_a_run_without_losses_has_no_curves():
    view = CurationView(roster=make_roster())
    record = RunRecord(policy="none", seed=0, view=view)
    result = report_facts(record)
    assert (result["curves"], result["histograms"], result["actions"]) == ([], None, [])


def test_the_most_often_changed_come_first():
    def swap(sample_id, epoch):
        return Edit(sample_id=sample_id, action="replace_caption", value="x", epoch=epoch)

    edits = [swap("img0#0", 0), swap("img0#1", 0), swap("img0#0", 1), swap("img1#0", 1)]
    edits += [swap("img1#0", 2), swap("img1#0", 3)]
    changes_in_order = list(_made(make_record(edits)))
    assert most_often_changed(changes_in_order) == [[3, 4, 5], [0, 2]]


def _made(record: RunRecord):
    return changes(record.view, record.truth)


def test_mends_are_counted_by_kind_and_those_of_sound_captions_apart():
    red = PlantedWord(start=2, wrong="blue", right="red")
    texts = ["a blue ball rolls", "a blue cap hangs", "two dogs", "a cat"]
    origins = [planted_origin("color", red), planted_origin("color", red), "human", "human"]
    samples = [
        replace(sample, caption=text, origin=origin)
        for sample, text, origin in zip(
            make_roster(num_images=2, num_captions=2).samples, texts, origins, strict=True
        )
    ]
    values = ("a red ball rolls", "a green cap hangs", "two cats")
    edits = [
        Edit(
            sample_id=sample.sample_id,
            action="replace_caption",
            value=value,
            origin="word:2:blue>x",
            epoch=-1,
        )
        for sample, value in zip(samples[:3], values, strict=True)
    ]
    roster = build_roster("x", samples)
    result = report_facts(make_record(edits, roster=roster, truth=roster.planted))["truth"]
    assert result["kinds"] == [
        {"kind": "color", "planted": 2, "caught": 2, "mended": 1, "mended_wrongly": 1}
    ]
    assert (result["words_replaced"], result["replaced_needlessly"]) == (3, 1)
