"""A captioner of one's own that gives other losses than those of each caption is told of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from captioning.models.training_steps import check_losses, trainable
from captioning.models.updown import UpDown
from captioning.types import Batch, CaptionLosses
from tests.tiny import build, make_batch

TOTAL, EACH = torch.tensor(1.0), torch.ones(3)


class Mine:
    """Gave the losses."""


@pytest.mark.parametrize("further", [{}, {"nll": EACH}, {"nll": EACH, "smoothed": EACH}])
def test_losses_of_each_caption_are_taken(further: dict[str, torch.Tensor]) -> None:
    check_losses(CaptionLosses(total=TOTAL, per_sample=EACH, **further), 3, by=Mine())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"per_sample": TOTAL},
            r"Mine: per_sample of .* one value per caption, \(3,\): got a .*\(\)",
        ),
        ({"per_sample": EACH[:, None]}, r"per_sample .*got a tensor \(3, 1\)"),
        ({"per_sample": None}, "per_sample .*got NoneType"),
        ({"total": EACH}, r"total .*a single value: got a tensor \(3,\)"),
        ({"nll": EACH[:2]}, r"nll of its .*got a tensor \(2,\)"),
    ],
)
def test_losses_of_another_shape_are_refused(given: dict[str, Any], message: str) -> None:
    losses = CaptionLosses(**({"total": TOTAL, "per_sample": EACH} | given))
    with pytest.raises(ValueError, match=message):
        check_losses(losses, 3, by=Mine())


@pytest.mark.parametrize(
    ("losses", "shown"), [(TOTAL, r"a tensor \(\)"), (None, "NoneType"), ({}, "dict")]
)
def test_what_is_no_loss_of_captions_is_refused(losses: Any, shown: str) -> None:
    with pytest.raises(ValueError, match=rf"Mine must return captioning\.types\..*got {shown}"):
        check_losses(losses, 3, by=Mine())


def test_a_step_tells_whose_losses_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    model = trainable(build("updown"))
    monkeypatch.setattr(UpDown, "losses", lambda self, batch: torch.tensor(1.0))
    with pytest.raises(ValueError, match="UpDown must return"):
        model.training_step(make_batch(), 0)


def test_losses_for_callbacks_keep_no_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    model, likelihood = trainable(build("updown")), UpDown.losses

    def losses(self: UpDown, batch: Batch) -> CaptionLosses:
        given = likelihood(self, batch)
        return replace(given, per_sample=given.nll)

    monkeypatch.setattr(UpDown, "losses", losses)
    monkeypatch.setattr(type(model), "log", lambda *_, **__: None)
    assert not model.training_step(make_batch(), 0)["per_sample"].requires_grad
