"""Samples by where the annotations say that they came from."""

from __future__ import annotations

from dataclasses import replace

import pytest

from captioning.data.roster import CurationView, build_roster
from captioning.types import Edit
from curation.select.unmatched import Origin
from tests.contracts.test_policies import make_context


def test_all_live_samples_of_an_origin_are_selected_whatever_became_of_them() -> None:
    samples = [
        replace(sample, origin="unpaired" if sample.image_id == "3" else sample.origin)
        for sample in make_context().view.samples()
    ]
    view = CurationView(roster=build_roster("some", samples))
    view = view.apply(
        [
            Edit(sample_id="3#1", action="replace_caption", value="new", origin="pseudo-label"),
            Edit(sample_id="3#2", action="remove"),
            Edit(sample_id="5#0", action="replace_caption", value="new", origin="unpaired"),
        ]
    )
    selected = Origin(origin="unpaired").select(make_context(view))
    assert [candidate.sample.sample_id for candidate in selected] == ["3#0", "3#1", "3#3"]
    assert selected[1].sample.caption == "new"
    assert selected[0].reason == "of origin unpaired"


def test_an_origin_has_a_name() -> None:
    with pytest.raises(ValueError, match="origin must name the source of the samples"):
        Origin(origin="")
