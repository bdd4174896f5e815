"""A short part: a training is struck by both signals."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.chaos.compare import damaged, difference
from tests.chaos.nursery import Nursery
from tests.chaos.scenarios import SCENARIOS, train
from tests.chaos.trial import Trial

ALONE = train("remove", "curation=remove", "curation.select.ratio=0.1")


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    nursery = Nursery()
    yield nursery
    nursery.close()


@pytest.mark.slow
def test_a_struck_training_ends_in_the_undisturbed_bits(nursery: Nursery, tmp_path: Path):
    result = Trial(nursery, tmp_path, ALONE, seed=3).run(kills=1, terms=1)
    assert result.failures == []
    assert (result.kills, result.terms) == (1, 1)
    assert result.events > 20


def test_other_bits_and_halves_are_seen(tmp_path: Path):
    """The comparison can fail."""
    for name in ("one", "other"):
        folder = tmp_path / name
        folder.mkdir()
        torch.save({"state_dict": {"w": torch.ones(3)}, "epoch": 1}, folder / "last.ckpt")
        (folder / "metrics.json").write_text(json.dumps({"seconds": name, "test": [1, 2]}))
        (folder / "timing.json").write_text(name)
        np.savez(folder / "losses.npz", history=np.ones(3))
    one, other = tmp_path / "one", tmp_path / "other"
    assert difference(one, other) == ""
    assert damaged(other) == []
    torch.save({"state_dict": {"w": torch.ones(3) + 1e-7}, "epoch": 1}, other / "last.ckpt")
    assert difference(one, other) == "last.ckpt"
    (other / "more.json").write_text('{"a')
    assert difference(one, other) == "files: more.json"
    (other / "losses.npz").write_bytes((one / "losses.npz").read_bytes()[:50])
    assert [text.partition(":")[0] for text in sorted(damaged(other))] == [
        "losses.npz",
        "more.json",
    ]


def test_the_whole_strikes_as_often_as_the_page_says():
    assert sum(scenario.kills for scenario in SCENARIOS) >= 100
    assert sum(scenario.terms for scenario in SCENARIOS) >= 50
    assert len({scenario.name for scenario in SCENARIOS}) == len(SCENARIOS)
