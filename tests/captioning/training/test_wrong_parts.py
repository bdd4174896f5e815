"""Parts of the user's own that give what they must not are told by name, most before training."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from augmentation.captions.caption_set import PhotoWorker
from augmentation.captions.new_captions import AbstractCaptionMethod, PhotoCaptions
from captioning.data.roster import Roster
from captioning.data.steps.base import AbstractStep, StepContext
from captioning.decoding.beam import BeamSearch
from captioning.decoding.search import AbstractSearch
from captioning.metrics.coco import MetricResult
from captioning.metrics.evaluation import AbstractMetric, CaptionedImages, Captions
from captioning.models.updown import UpDown
from captioning.types import CaptionLosses
from curation.base import Amender, Context, Score
from curation.loop.policy import Policy
from curation.select.top import Top
from tests.run_calls import train

OWN = f"plugins=[{__name__.partition('.')[0]}]"


class Logits(UpDown):
    """Its steps give no log-probabilities."""

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        log_probs, state = super().step(tokens, state)
        return 9 + 2 * log_probs, state


class OneRow(UpDown):
    """Its steps give the words of one image alone."""

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        log_probs, state = super().step(tokens, state)
        return log_probs[0], state


class OneMean(UpDown):
    """Its captions all have the mean of their batch."""

    def losses(self, batch: Any) -> CaptionLosses:
        losses = super().losses(batch)
        mean = losses.per_sample.mean().expand(len(losses.per_sample))
        return CaptionLosses(total=losses.total, per_sample=mean)


class Flat(AbstractSearch):
    """Gives one caption of an image in place of a list of them."""

    def __call__(self, stepper: Any, state: Any, request: Any) -> Any:
        result = BeamSearch(settings=self.settings)(stepper, state, request)
        return replace(result, tokens=result.tokens[:, 0])


class Nothing(AbstractStep):
    """Gives no roster."""

    def __call__(self, roster: Roster, context: StepContext) -> Any:
        return list(roster.samples)


class Wrong(AbstractMetric):
    """Scores of a kind that is chosen."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def score(self, captions: Captions, images: CaptionedImages) -> Any:
        score: Any = {"tensor": torch.tensor(0.5), "none": math.nan, "text": "high"}.get(self.kind)
        per_image = {image_id: {"mine": score} for image_id in captions}
        result = MetricResult(corpus={"mine": score}, per_image=per_image, settings={})
        return [0.5] if self.kind == "list" else result


class OfLive(Score):
    """One value a live sample, and none for the others."""

    name = "of live samples"

    def scores(self, context: Context) -> Tensor:
        return torch.zeros(len(context.live) - 1)


class Rows(Top):
    """Selects rows in place of samples."""

    def select(self, context: Context) -> Any:
        return [candidate.sample.row for candidate in super().select(context)]


class Edits(Amender):
    """Gives a list of edits."""

    amends_at_once = True

    def amend(self, context: Context, selected: Any) -> Any:
        return [context.edit(candidate, "remove") for candidate in selected]


class Unknown(Score):
    """Knows nothing of any sample."""

    name = "nothing"

    def scores(self, context: Context) -> Tensor:
        return torch.full((len(context.view.roster),), torch.nan)


def _model(name: str) -> str:
    return f"model.module._target_={__name__}.{name}"


def _score(name: str) -> tuple[str, ...]:
    return (
        "curation=remove",
        "curation/score=length",
        f"curation.score._target_={__name__}.{name}",
    )


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        ((_model("Logits"),), r"Logits.step must return log-probabilities: .* add up to .*softmax"),
        (
            (_model("OneRow"),),
            r"OneRow.step must return log-probabilities \(\d+, V\), a row",
        ),
        (
            (f"search._target_={__name__}.Flat.with_settings",),
            r"Flat must return tokens \(I, M, T\)",
        ),
        (
            (f"+steps.mine._target_={__name__}.Nothing",),
            "step Nothing must return the changed roster.*list",
        ),
    ],
)
def test_no_epoch_is_spent_before_it_is_told(
    overrides: tuple[str, ...], told: str, small: Any, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=told):
        train(small("num_epochs=1", OWN, *overrides))
    assert not list((tmp_path / "run").rglob("*.ckpt"))
    assert not (tmp_path / "run" / "curation" / "losses.npz").exists()


@pytest.mark.long
@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (
            ("curation/score=length", "OfLive"),
            r"OfLive.scores must return a tensor \(\d+,\), a value",
        ),
        (
            ("curation/select=top", "Rows"),
            "Rows.select must give curation.base.Selected.*got int",
        ),
        (("", "Edits"), "Edits.amend must give curation.base.Amended, with edits: got list"),
    ],
)
def test_a_policy_is_tried_before_the_first_epoch(
    overrides: tuple[str, str], told: str, small: Any, tmp_path: Path
) -> None:
    choice, name = overrides
    key = {"OfLive": "score", "Rows": "select", "Edits": "amend"}[name]
    own = (choice, f"curation.{key}._target_={__name__}.{name}", "curation.select.ratio=0.5")
    with pytest.raises(ValueError, match=told):
        train(small("num_epochs=1", OWN, "curation=remove", *filter(None, own)))
    assert not list((tmp_path / "run").rglob("*.ckpt"))
    assert not (tmp_path / "run" / "timing.json").exists()


@pytest.mark.long
def test_a_batch_that_is_tried_changes_nothing(small: Any, tmp_path: Path, caplog: Any) -> None:
    curation = ("curation=remove", "curation.select.ratio=0.1", "ema_decay=0.9", "num_epochs=2")
    for folder, tried in (("plain", 0), ("tried", 1)):
        train(small(*curation, f"trainer.num_sanity_val_steps={tried}", folder=folder))
    plain, tried = (
        [
            (tmp_path / folder / name).read_text()
            for name in ("history.json", "curation.jsonl", "predictions.json", "metrics.json")
        ]
        for folder in ("plain", "tried")
    )
    assert plain == tried
    assert "COLLAPSED? epoch 0" not in caplog.text


@pytest.mark.long
def test_only_a_policy_that_will_act_is_tried_and_once(
    small: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    tried: list[int] = []
    monkeypatch.setattr(Policy, "rehearse", lambda _, context: tried.append(context.epoch))
    own = ("curation=remove", "curation.schedule.from_epoch=1", OWN)
    train(small("num_epochs=1", *own, "curation.name=never", folder="never"))
    assert tried == []
    assert "has selected no caption" not in caplog.text
    config = small("num_epochs=2", *own)
    train(config)
    assert tried == [1]
    (tmp_path / "run" / "metrics.json").unlink()
    train(config)
    assert tried == [1]


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("list", r"mine \(Wrong\) must return .*MetricResult: got list"),
        ("text", "must return numbers"),
    ],
)
def test_a_metric_without_numbers_is_told(kind: str, told: str, small: Any) -> None:
    with pytest.raises(ValueError, match=told):
        train(small("num_epochs=1", *_metric(kind)))


@pytest.mark.long
def test_numbers_of_a_metric_are_plain_and_what_is_none_is_missing(
    small: Any, tmp_path: Path
) -> None:
    assert train(small("num_epochs=1", *_metric("tensor"), folder="number"))["mine"] == 0.5
    assert "mine" not in train(small("num_epochs=1", *_metric("none"), folder="none"))
    test = json.loads((tmp_path / "none" / "metrics.json").read_text())["test"]
    assert test["settings"]["missing"] == {"mine": "mine (Wrong) gave nan"}


def _metric(kind: str) -> tuple[str, str]:
    return (f"+extra_metrics.mine._target_={__name__}.Wrong", f"+extra_metrics.mine.kind={kind}")


@pytest.mark.long
def test_it_is_told_that_nothing_was_selected(small: Any, caplog: Any) -> None:
    train(small("num_epochs=2", *_score("Unknown")))
    assert caplog.text.count("nothing is not a number for any of") == 1
    assert "has selected no caption in 2 epochs, although it was due at the end of 2" in caplog.text


def test_equal_losses_of_all_captions_are_told_once(small: Any, caplog: Any) -> None:
    train(small("num_epochs=1", _model("OneMean")))
    assert caplog.text.count("have the same loss") == 1


class SomeCaptions(AbstractCaptionMethod):
    """What it is given in place of captions of each photo."""

    def __init__(self, given: list[Any]) -> None:
        self.given = given

    def captions(self, roster: Roster, *, skip: int = 0) -> Iterator[Any]:
        return iter(self.given)


def test_a_method_that_does_not_yield_for_each_photo_is_told() -> None:
    def made(*given: Any) -> list[dict[str, Any]]:
        roster: Any = None
        return PhotoWorker(method=SomeCaptions([*given]), roster=roster)([0, 1])

    with pytest.raises(ValueError, match=r"captions must yield .*PhotoCaptions: got list"):
        made(["a dog"], ["a cat"])
    with pytest.raises(ValueError, match="ended 1 photos too early"):
        made(PhotoCaptions(captions=[]))
