"""Shares of each image's captions, and the coin."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch

from captioning.data.roster import CurationView, build_roster
from captioning.types import Sample
from curation.base import Context
from curation.select.share import Share


def context(num_images=200, num_captions=5, *, seed=0) -> Context:
    samples = [
        Sample(row=0, sample_id=f"{i}#{k}", image_id=str(i), image_path=Path("x"), caption="x")
        for i in range(num_images)
        for k in range(num_captions)
    ]
    roster = build_roster("share", samples)
    unknown = torch.full((len(roster),), torch.nan)
    view = CurationView(roster=roster)
    history = torch.empty(0, len(roster))
    return Context(view=view, losses=unknown, history=history, epoch=-1, seed=seed)


def counts(selected) -> set[int]:
    return set(Counter(candidate.sample.image_id for candidate in selected).values())


@pytest.mark.parametrize(("ratio", "captions"), [(0.2, 1), (0.4, 2), (0.6, 3), (0.8, 4), (1.0, 5)])
def test_shares_of_five_captions_are_one_to_four(ratio, captions):
    selected = Share(ratio=ratio).select(context())
    assert len(selected) == 200 * captions
    assert counts(selected) == {captions}
    positions = Counter(candidate.sample.sample_id.partition("#")[2] for candidate in selected)
    assert max(positions.values()) < 2 * min(positions.values())


def test_half_of_five_is_two_or_three():
    selected = Share(ratio=0.5).select(context())
    assert counts(selected) == {2, 3}
    assert 450 < len(selected) < 550


def test_the_coin_decides_for_each_sample_by_itself():
    selected = Share(ratio=0.5, coin=True).select(context())
    assert counts(selected) == {1, 2, 3, 4, 5}
    assert 430 < len(selected) < 570
    assert Share(ratio=0, coin=True).select(context()) == []
    assert len(Share(ratio=1, coin=True).select(context())) == 1000


def test_seeds_draw_other_captions():
    drawn = [
        [candidate.sample.row for candidate in Share(ratio=0.2).select(context(seed=s))]
        for s in (0, 1)
    ]
    assert drawn[0] != drawn[1]
