"""Accumulated batches make the update of one large batch, for every captioner."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pytorch_lightning.plugins import MixedPrecision
from pytorch_lightning.strategies import DDPStrategy, ModelParallelStrategy
from torch import Tensor

from captioning.models.training_steps import UpdateWindow, check_strategy, trainable
from captioning.types import CaptionLosses, Mean
from tests.captioning.models import window_run
from tests.captioning.models.test_cos_cvae import with_contexts
from tests.captioning.models.window_run import (
    CASES,
    OF_TWO,
    SHARDED,
    WINDOWS,
    case,
    gradients,
    joined,
    shared_windows,
)
from tests.host_syncs import simulated_device
from tests.tiny import make_batch

TOLERANCE = 1e-6  # of a gradient's largest value
pytestmark = pytest.mark.filterwarnings(
    "ignore:__array__ implementation:DeprecationWarning",
    "ignore:You defined a `validation_step`",
)


def difference(found: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    """The largest, as a share of the largest expected value."""
    names = expected.keys() | found.keys()
    zero = torch.zeros(())
    pairs = [(found.get(name, zero), expected.get(name, zero)) for name in names]
    largest = max(float(other.abs().max()) for _, other in pairs)
    assert largest > 0
    return max(float((one - other).abs().max()) for one, other in pairs) / largest


def check(name: str, *, weighted: bool = False, **settings: Any) -> None:
    model, batch = case(name, weighted=weighted)
    accumulated = gradients(model, batch, [b for w in WINDOWS for b in w], 3, **settings)
    large = gradients(model, batch, [joined(window) for window in WINDOWS], 1)
    assert len(accumulated.updates) == len(large.updates) == 2
    for found, expected in zip(accumulated.updates, large.updates, strict=True):
        assert difference(found, expected) < TOLERANCE
    for loss, expected in zip(accumulated.losses, large.losses, strict=True):
        assert float(loss) == pytest.approx(float(expected), rel=TOLERANCE)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_an_update_is_that_of_one_large_batch(name: str, weighted: bool) -> None:
    check(name, weighted=weighted)


class Scaled(MixedPrecision):
    """The scaler of ``16-mixed`` on a model in double precision."""

    def __init__(self) -> None:
        super().__init__("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=1024.0))

    def forward_context(self) -> Any:
        return nullcontext()


@pytest.mark.parametrize("name", ["updown", "cos_cvae_pseudo", "updown_self_critical"])
def test_a_scaled_loss_has_the_same_updates(name: str) -> None:
    check(name, weighted=True, plugins=[Scaled()])


@pytest.fixture(scope="module")
def by_two(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    """The folder of gradients by two processes."""
    folder = tmp_path_factory.mktemp("two")
    done = subprocess.run(
        [sys.executable, "-m", "tests.late", window_run.__file__, folder],
        env=os.environ | {"PYTHONPATH": str(repository), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.mark.long
@pytest.mark.parametrize("name", [*OF_TWO, SHARDED])
def test_two_processes_make_the_same_updates(name: str, by_two: Path) -> None:
    is_sharded = name == SHARDED
    model, batch = case("updown" if is_sharded else name, weighted=not is_sharded)
    large = gradients(model, batch, shared_windows(), 1)
    found = torch.load(by_two / f"{name}.pt", weights_only=True)
    assert len(found) == len(large.updates) == 2
    for one, other in zip(found, large.updates, strict=True):
        assert difference(one, other) < TOLERANCE


def test_without_accumulation_the_loss_is_left_as_it_is() -> None:
    model, batch = case("cos_cvae_pseudo", weighted=True)
    losses = model.losses(batch)
    shared = trainable(model)._shared_loss(losses, len(batch), 0)
    assert shared.loss is losses.total
    assert shared.batch is losses.total


@pytest.mark.parametrize("clip", [0.01, 0.5])
def test_the_update_is_clipped_as_a_whole(clip: float) -> None:
    model, batch = case("updown")
    clipped = []

    def keep(*args: Any, **kwargs: Any) -> None:
        type(model).configure_gradient_clipping(model, *args, **kwargs)
        clipped.append({n: p.grad.clone() for n, p in model.named_parameters()})

    model.configure_gradient_clipping = keep
    gradients(model, batch, [b for w in WINDOWS for b in w], 3, gradient_clip_val=clip)
    gradients(model, batch, [joined(w) for w in WINDOWS], 1, gradient_clip_val=clip)
    for found, expected in zip(clipped[:2], clipped[2:], strict=True):
        assert difference(found, expected) < TOLERANCE


@pytest.mark.parametrize("name", ["updown", "cos_cvae_pseudo"])
def test_no_batch_waits_for_the_device(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model, batch = CASES[name]().train(), make_batch()
    batch = with_contexts(batch) if name == "cos_cvae_pseudo" else batch
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    accumulates = iter([True, True, False])
    trainer: Any = SimpleNamespace(
        accumulate_grad_batches=3,
        fit_loop=SimpleNamespace(_should_accumulate=lambda: next(accumulates)),
        optimizers=[optimizer],
        precision_plugin=None,
        strategy=DDPStrategy(),
    )
    window = UpdateWindow()
    with simulated_device(monkeypatch) as syncs, syncs:
        syncs.put([*model.parameters(), *model.buffers()])
        for number in range(3):
            losses = model.losses(batch.to("device"))
            window.add(losses, len(batch), trainer, number).loss.backward()
    assert syncs.places == []


def trainer_with(strategy: Any, number: int = 4) -> Any:
    return SimpleNamespace(strategy=strategy, accumulate_grad_batches=number)


def test_several_means_of_weights_in_shards_are_refused() -> None:
    sharded = trainer_with(ModelParallelStrategy())
    with pytest.raises(ValueError, match="accumulate_grad_batches=4 with trainer.strategy.*=ddp"):
        check_strategy(sharded, several_means=True)
    check_strategy(sharded, several_means=False)
    check_strategy(trainer_with(ModelParallelStrategy(), 1), several_means=True)
    check_strategy(trainer_with(DDPStrategy()), several_means=True)


def test_a_strategy_that_accumulates_by_itself_is_refused() -> None:
    class OfItself(DDPStrategy):
        handles_gradient_accumulation = True

    with pytest.raises(ValueError, match="OfItself accumulates gradients itself.*=1"):
        check_strategy(trainer_with(OfItself()), several_means=False)


def test_the_model_is_checked_before_it_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    name = "captioning.models.training_steps.check_strategy"
    monkeypatch.setattr(name, lambda trainer, *, several_means: seen.append(several_means))
    for case_name in ("updown", "cos_cvae", "cos_cvae_pseudo", "updown_self_critical"):
        model, batch = case(case_name)
        gradients(model, batch, [(0, 1)], 1)
    # without filled contexts COS-CVAE has one mean
    assert seen == [False, False, True, True]


def test_batches_with_other_numbers_of_means_are_refused() -> None:
    model, batch = case("updown")
    losses = model.losses

    def odd(batch: Any) -> CaptionLosses:
        found = losses(batch)
        further = Mean(value=found.total * 0, number=0)
        means = (*found.means, further) if len(batch) == 1 else found.means
        return CaptionLosses(total=found.total, per_sample=found.per_sample, means=means)

    model.losses = odd
    with pytest.raises(ValueError, match=r"have 2 means.*first batch has 1.*number=0"):
        gradients(model, batch, WINDOWS[0], 3)
