"""Images and words that must not vanish."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from captioning.data.roster import CurationView, build_roster
from captioning.types import UNPAIRED, Sample
from curation.amend.remove import Remove
from curation.base import Context, Selected
from curation.loop.policy import Budget, Policy
from curation.select.top import Top

CAPTIONS = ["a red dog", "a dog", "a zebra", "two dogs", "a boat", "a zebra runs"]

LOSSES = {"losses": torch.zeros(5), "history": torch.zeros(1, 5)}


def make_context(captions: Sequence[str] = CAPTIONS) -> Context:
    """Images of two captions; the later a caption, the worse it is."""
    samples = [
        Sample(
            row=0,
            sample_id=str(number),
            image_id=str(number // 2),
            image_path=Path("a.jpg"),
            caption=caption,
        )
        for number, caption in enumerate(captions)
    ]
    losses = torch.arange(float(len(captions)))
    view = CurationView(roster=build_roster("budget", samples))
    return Context(view=view, losses=losses, history=losses[None], epoch=0)


def selected(context: Context, order: str) -> list[Selected]:
    return [Selected(sample=context.live[int(row)], reason="bad") for row in order]


def ids(selected: list[Selected]) -> str:
    return "".join(candidate.sample.sample_id for candidate in selected)


def test_every_image_keeps_captions_the_worst_go_first():
    context = make_context()
    for min_captions, expected in ((0, "5432"), (1, "53"), (2, "")):
        budget = Budget(min_captions_per_image=min_captions)
        assert ids(budget.affordable(context, selected(context, "5432"))) == expected


def test_every_word_keeps_a_caption():
    context = make_context()
    budget = Budget(min_captions_per_word=1)
    # "runs", "boat", "two" and "red" stand in one caption each; of the zebras one may go
    assert ids(budget.affordable(context, selected(context, "543210"))) == "21"
    assert ids(budget.affordable(context, selected(context, "12"))) == "12"


def test_a_word_that_a_caption_repeats_stands_in_one_caption():
    context = make_context(["dog dog", "a cat", "a cat"])
    assert ids(Budget(min_captions_per_word=1).affordable(context, selected(context, "01"))) == "1"


def test_what_is_to_go_counts_no_longer():
    context = make_context(["a cat", "a cat", "a dog", "a dog"])
    budget = Budget(min_captions_per_word=1)
    assert ids(budget.affordable(context, selected(context, "3210"))) == "31"


def test_a_policy_spares_what_is_beyond_the_budget():
    context = make_context()
    policy = Policy(
        select=Top(ratio=1.0),
        amend=Remove(),
        budget=Budget(min_captions_per_image=1),
        name="careful",
    )
    decision = policy.deliberate(context)
    assert [edit.sample_id for edit in decision.edits] == ["5", "3", "1"]
    assert decision.unchanged == ("4", "2", "0")
    remaining = {sample.image_id for sample in context.view.apply(decision.edits).samples()}
    assert remaining == {"0", "1", "2"}


def test_what_waits_for_a_caption_is_no_caption():
    """CapFilt fills the last one; else the image would keep no caption but the placeholder."""
    context = make_context(["a bad boat", "a bad dog", "a cat", "a cat"])
    view = context.view
    slot = replace(view.roster.samples[1], origin=UNPAIRED, caption="a photo")
    second = replace(slot, sample_id="9", caption="a boat")
    samples = [view.roster.samples[0], slot, second, *view.roster.samples[2:]]
    waiting = replace(context, view=CurationView(roster=build_roster("slots", samples)), **LOSSES)
    for budget in (Budget(min_captions_per_image=1), Budget(min_captions_per_word=1)):
        chosen = budget.affordable(waiting, selected(waiting, "012"))
        assert ids(chosen) == "19"  # the caption stays, the samples that wait are filled


def test_a_negative_budget_is_refused():
    with pytest.raises(ValueError, match="min_captions_per_word must be at least 0: got -1"):
        Budget(min_captions_per_word=-1)
