"""CapFilt's decisions: each of the captioner's and the filter's, counted."""

from __future__ import annotations

from collections import Counter

import pytest

from captioning.data.roster import CurationView
from captioning.data.steps.hold_out import CaptionSlots, with_slots
from captioning.types import UNPAIRED
from curation.amend.model_caption import CapFilt
from curation.amend.remove import Remove
from curation.loop.policy import Policy, Schedule
from curation.select.unmatched import Origin, Unmatched
from tests.curation.amend.test_model_caption import view_of
from tests.curation.amend.test_replace_caption import context_of
from tests.curation.toy_captions import ToyCaptions, ToyFit

WRITTEN = {"a": ["good 9", "bad 1"], "b": ["bad 2", "good 6"], "c": ["good 7"], "d": ["even 5"]}
MADE = {"a": ["made 8", "made 3"], "b": ["made 4", "made 7"], "c": ["made 9"]}


def decided(select, amend, slots=2):
    roster = view_of(WRITTEN).roster
    view = CurationView(roster=with_slots(roster, slots) if slots else roster)
    policy = Policy(
        select=select, amend=amend, schedule=Schedule(from_epoch=-1, until_epoch=-1), name="capfilt"
    )
    decision = policy.deliberate(context_of(view, epoch=-1))
    return decision, view.apply(decision.edits)


def captions(view):
    return sorted(sample.caption for sample in view.samples())


def test_both_drop_what_does_not_match_and_add_what_does():
    amend = CapFilt(source=ToyCaptions(MADE), pairs=ToyFit())
    decision, view = decided(Unmatched(pairs=ToyFit()), amend)
    assert captions(view) == sorted(
        ["good 9", "good 6", "good 7", "even 5", "made 8", "made 7", "made 9"]
    )
    assert Counter(decision.notes) == {
        "made caption accepted": 3,
        "made caption dropped": 2,
        "no caption was written": 3,
    }
    assert Counter(edit.action for edit in decision.edits) == {
        "remove": 2 + 2 + 3,
        "replace_caption": 3,
        "down_weight": 3,
    }
    assert {s.weight for s in view.samples()} == {1.0}
    made = {s.sample_id: (s.caption, s.origin) for s in view.samples() if "made" in s.sample_id}
    assert made["b#made1"] == ("made 7", "model:toy")
    reasons = {edit.sample_id: edit.reason for edit in decision.edits}
    assert reasons["a#1"] == "match 0.100 < 0.5"
    assert reasons["a#made1"] == "match 0.300 < 0.5: made 3"
    assert reasons["a#made0"] == "match 0.800"


def test_the_filter_alone_writes_nothing():
    _, view = decided(Unmatched(pairs=ToyFit(), waiting=False), Remove(), slots=0)
    assert captions(view) == ["even 5", "good 6", "good 7", "good 9"]


def test_the_captioner_alone_keeps_everything():
    _, view = decided(Origin(origin=UNPAIRED), CapFilt(source=ToyCaptions(MADE)))
    made = [text for texts in MADE.values() for text in texts]
    assert captions(view) == sorted([text for texts in WRITTEN.values() for text in texts] + made)


def test_worst_captions_come_first_and_the_threshold_counts():
    roster = view_of(WRITTEN).roster
    chosen = Unmatched(pairs=ToyFit(), threshold=0.65, waiting=False)
    selected = chosen.select(context_of(CurationView(roster=roster), epoch=-1))
    assert [s.sample.caption for s in selected] == ["bad 1", "bad 2", "even 5", "good 6"]


def test_wrong_settings_are_refused():
    with pytest.raises(ValueError, match="must not both be false"):
        Unmatched(pairs=ToyFit(), written=False, waiting=False)
    with pytest.raises(ValueError, match=r"add \+matching@curation\.filter=NAME"):
        Unmatched(pairs=None)
    with pytest.raises(ValueError, match="threshold must be a finite number: got nan"):
        Unmatched(pairs=ToyFit(), threshold=float("nan"))
    with pytest.raises(ValueError, match=r"steps\.caption_slots\.per_photo .*: got 0"):
        CaptionSlots(per_photo=0)
