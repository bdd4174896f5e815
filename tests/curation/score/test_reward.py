"""Rewards of training as a score."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from captioning.data.roster import CurationView, build_roster
from captioning.types import CAPTION_REWARD, REWARD, Edit, Sample
from curation.base import Context
from curation.loop.callback import _want_rewards
from curation.loop.ledger import LossLedger
from curation.loop.probes import record_rewards
from curation.score.reward import Reward

NAN = torch.nan
DRAWS = torch.tensor([[1.0, 3.0, 2.0], [2.0, 1.0, NAN]])
OWN = torch.tensor([[4.0, 0.0, 2.0], [5.0, 0.5, NAN]])


def context(**signals: torch.Tensor) -> Context:
    samples = [
        Sample(row=n, sample_id=name, image_id=name, image_path=Path(name), caption="a dog")
        for n, name in enumerate("abc")
    ]
    view = CurationView(roster=build_roster("rewards", samples))
    nothing = torch.zeros(2, 3)
    return Context(view=view, losses=nothing[0], history=nothing, epoch=1, signals=signals)


@pytest.mark.parametrize(
    ("of", "num_epochs", "expected"),
    [
        ("draws", 1, [-2.0, -1.0, NAN]),
        ("draws", 2, [-1.5, -2.0, -2.0]),
        ("caption", 1, [-5.0, -0.5, NAN]),
        ("gap", 1, [-3.0, 0.5, NAN]),
    ],
)
def test_low_rewards_are_suspicious(of, num_epochs: int, expected: list[float]) -> None:
    scores = Reward(of=of, num_epochs=num_epochs).scores(
        context(**{REWARD: DRAWS, CAPTION_REWARD: OWN})
    )
    torch.testing.assert_close(scores, torch.tensor(expected), equal_nan=True)


def test_a_reward_from_before_a_caption_was_replaced_does_not_count() -> None:
    before = context(**{REWARD: DRAWS})
    edit = Edit(sample_id="a", action="replace_caption", value="a cat", epoch=0)
    scores = Reward(num_epochs=2).scores(replace(before, view=before.view.apply([edit])))
    torch.testing.assert_close(scores, torch.tensor([-2.0, -2.0, -2.0]))


def test_runs_without_rewards_are_refused_by_the_objective_to_choose() -> None:
    with pytest.raises(ValueError, match="did not measure: train with objective=self_critical"):
        Reward().scores(context())
    with pytest.raises(ValueError, match="with objective=self_critical or objective=grpo"):
        _want_rewards(SimpleNamespace(objective=None), [REWARD])
    with pytest.raises(ValueError, match="of must be one of"):
        Reward(of="both")
    objective = SimpleNamespace(judges_captions=False)
    _want_rewards(SimpleNamespace(objective=objective), [REWARD])
    assert not objective.judges_captions
    _want_rewards(SimpleNamespace(objective=objective), [CAPTION_REWARD])
    assert objective.judges_captions


def test_rewards_of_a_step_reach_their_ledgers() -> None:
    ledgers = {REWARD: LossLedger(num_samples=3)}
    outputs = {"rows": torch.tensor([2, 0]), REWARD: torch.tensor([1.0, 4.0])}
    record_rewards(ledgers, outputs)
    torch.testing.assert_close(
        ledgers[REWARD].mean(), torch.tensor([4.0, NAN, 1.0]), equal_nan=True
    )
