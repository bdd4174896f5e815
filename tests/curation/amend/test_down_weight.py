"""Weights fall with every selection and stop at the least."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from captioning.data.roster import CurationView, build_roster
from captioning.types import Edit, Sample
from curation.amend.down_weight import DownWeight
from curation.base import Context, Selected


def make_view() -> CurationView:
    samples = [
        Sample(row=0, sample_id=name, image_id=name, image_path=Path("a.jpg"), caption="a dog")
        for name in "abc"
    ]
    return CurationView(roster=build_roster("weights", samples))


def context_of(view: CurationView) -> Context:
    return Context(view=view, losses=torch.zeros(3), history=torch.zeros(1, 3), epoch=0)


def select(view: CurationView, *names: str) -> list[Selected]:
    return [Selected(sample=s, reason="bad") for s in view.samples() if s.sample_id in names]


def test_the_weight_falls_again_when_a_sample_is_selected_again():
    view, amend = make_view(), DownWeight(factor=0.5, min_weight=0.2)
    for expected in (0.5, 0.25, 0.2):
        amended = amend.amend(context_of(view), select(view, "b"))
        view = view.apply(amended.edits)
        assert [sample.weight for sample in view.samples()] == [1, expected, 1]
    last = amend.amend(context_of(view), select(view, "a", "b"))
    assert [edit.sample_id for edit in last.edits] == ["a"]
    assert last.unchanged == ("b",)


def test_a_factor_outside_the_unit_interval_is_refused():
    with pytest.raises(ValueError, match="factor must be a fraction in"):
        DownWeight(factor=2)


@pytest.mark.parametrize("value", ["1.5", "-0.1", "nan", "half"])
def test_a_journal_with_another_weight_is_refused(value):
    edit = Edit(sample_id="a", action="down_weight", value=value)
    with pytest.raises(ValueError, match=r"edit 1: the weight of 'a' must be a number in \[0, 1\]"):
        make_view().apply([edit])
