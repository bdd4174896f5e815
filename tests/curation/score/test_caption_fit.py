"""Suspicion by the fit of caption and photo."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from captioning.data.roster import CurationView, build_roster
from captioning.types import UNPAIRED, Edit
from curation.score.caption_fit import CaptionFit
from curation.select.above import Above
from tests.contracts.test_policies import make_context


class Lengths:
    """The fit is the caption's length over 100."""

    name = "length"

    def __init__(self, *, is_probability: bool) -> None:
        self.is_probability = is_probability
        self.asked = 0

    def scores(self, pairs):
        self.asked += len(pairs)
        return torch.tensor([len(caption) / 100 for _, caption in pairs])

    def release(self):
        self.released = True


def context():
    samples = list(make_context().view.roster.samples[:4])
    samples[2] = replace(samples[2], origin=UNPAIRED, weight=0.0)
    samples[3] = replace(samples[3], caption="a" * 80)
    view = CurationView(roster=build_roster("fit", samples))
    return make_context(view.apply([Edit(sample_id=samples[0].sample_id, action="remove")]))


@pytest.mark.parametrize("is_probability", [True, False])
def test_what_fits_badly_is_suspicious(is_probability):
    pairs = Lengths(is_probability=is_probability)
    score = CaptionFit(pairs=pairs)
    values = score.scores(context())
    shift = 1 if is_probability else 0
    expected = torch.tensor([torch.nan, shift - 0.14, torch.nan, shift - 0.8])
    torch.testing.assert_close(values, expected, equal_nan=True)
    assert score.name == ("1 - length" if is_probability else "minus length")
    assert pairs.asked == 2
    assert pairs.released


def test_selectors_work_on_it():
    chosen = Above(threshold=0.5, score=CaptionFit(pairs=Lengths(is_probability=True)))
    selected = chosen.select(context())
    assert [(s.sample.row, s.reason) for s in selected] == [(1, "1 - length 0.860 > 0.5")]
