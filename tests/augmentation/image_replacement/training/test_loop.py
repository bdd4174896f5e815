"""The loop: resuming to the same bits, averages, rates, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from augmentation.training import loop as loop_module
from augmentation.training.loop import LoopSettings, TrainingLoop
from captioning.types import Mean

IDENTITY = {"seed": 3, "training": {"lr": 0.2}}
TARGET = torch.tensor([1.0, -2.0, 3.0])


class Point(nn.Module):
    def __init__(self, size: int = 3) -> None:
        super().__init__()
        self.place = nn.Parameter(torch.zeros(size))
        self.fixed = nn.Parameter(torch.ones(2), requires_grad=False)


def settings(*, num_steps: int = 60, **changed: Any) -> dict[str, Any]:
    values = {
        "batch_size": 1,
        "lr": 0.2,
        "weight_decay": 0.0,
        "warmup": 0.1,
        "floor": 0.0,
        "ema_decay": 0.9,
        "accumulate": 1,
        "clip": 10.0,
        "log_every": 20,
        "val_every": 30,
        "checkpoint_every": 10,
    }
    chosen = LoopSettings(num_steps=num_steps, **values | changed)
    return {"settings": chosen, "num_steps": num_steps}


class Killed(Exception):
    pass


def train(
    checkpoint: Path,
    *,
    stop: int | None = None,
    model: nn.Module | None = None,
    identity: dict[str, Any] = IDENTITY,
    **changed: Any,
) -> tuple[Point, list[dict[str, float]], TrainingLoop]:
    point = model or Point()
    loop = TrainingLoop(
        model=point,
        **settings(**changed),
        checkpoint=checkpoint,
        seed=3,
        identity=identity,
    )

    def loss_of(step: int, generator: torch.Generator) -> Tensor:
        if step == stop:
            raise Killed
        noise = torch.randn(3, generator=generator)
        return (point.place - TARGET + 0.1 * noise).square().sum()

    def validate(step: int) -> dict[str, float]:
        return {"distance": float((point.place.detach() - TARGET).norm())}

    return point, loop.run(loss_of, validate), loop


def test_it_learns_and_notes_losses_and_scores(tmp_path: Path) -> None:
    point, history, _ = train(tmp_path / "last.ckpt")
    assert [entry["step"] for entry in history] == [20, 30, 40, 60]
    assert history[-1]["loss"] < 0.1 * history[0]["loss"]
    assert history[-1]["distance"] == pytest.approx(float((point.place - TARGET).norm().detach()))
    assert history[-1]["distance"] < 0.5 < history[1]["distance"]
    assert torch.equal(point.fixed, torch.ones(2))


def test_a_killed_training_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    uninterrupted, history, _ = train(tmp_path / "whole.ckpt")
    with pytest.raises(Killed):
        train(tmp_path / "last.ckpt", stop=47)
    assert torch.load(tmp_path / "last.ckpt", weights_only=True)["step"] == 40
    resumed, again, _ = train(tmp_path / "last.ckpt")
    assert torch.equal(uninterrupted.place, resumed.place)
    assert again == history
    finished, after, _ = train(tmp_path / "last.ckpt", stop=0)
    assert torch.equal(finished.place, uninterrupted.place)
    assert after == history


@pytest.mark.parametrize("stop", [33, 41, 59])
def test_losses_go_on_between_two_that_are_logged(tmp_path: Path, stop: int) -> None:
    often = {"log_every": 20, "checkpoint_every": 7}
    _, history, _ = train(tmp_path / "whole.ckpt", **often)
    with pytest.raises(Killed):
        train(tmp_path / "last.ckpt", stop=stop, **often)
    _, again, _ = train(tmp_path / "last.ckpt", **often)
    assert again == history


def test_a_checkpoint_without_losses_has_the_mean_of_those_made_since(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        train(tmp_path / "last.ckpt", stop=11, lr=0.0, log_every=20, checkpoint_every=10)
    state = torch.load(tmp_path / "last.ckpt", weights_only=True)
    torch.save({k: v for k, v in state.items() if k != "losses"}, tmp_path / "last.ckpt")
    _, history, _ = train(tmp_path / "last.ckpt", lr=0.0, log_every=20)
    assert history[0]["loss"] == pytest.approx(TARGET.square().sum().item(), rel=0.1)


def test_a_checkpoint_of_a_gpu_is_read_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(tmp_path / "last.ckpt", num_steps=2)
    load, places = torch.load, []

    def noting(*args: Any, **options: Any) -> Any:
        places.append(options.get("map_location"))
        return load(*args, **options)

    monkeypatch.setattr(torch, "load", noting)
    train(tmp_path / "last.ckpt", num_steps=2)
    assert places == ["cpu", "cpu"]


def test_afterwards_the_model_holds_the_average(tmp_path: Path) -> None:
    point, _, loop = train(tmp_path / "last.ckpt", ema_decay=0.99, num_steps=5)
    last = loop.averaged["place"]
    assert (point.place - TARGET).norm().item() > (last - TARGET).norm().item()
    before = point.place.detach().clone()
    with loop.averaged_weights():
        assert torch.equal(point.place, last)
    assert torch.equal(point.place, before)


def test_without_average_the_last_weights_stay(tmp_path: Path) -> None:
    point, _, loop = train(tmp_path / "last.ckpt", ema_decay=None, num_steps=5)
    assert loop.averaged == {}
    state = torch.load(tmp_path / "last.ckpt", weights_only=True)
    assert torch.equal(state["trained"]["place"], point.place)


def test_a_floor_of_one_keeps_the_rate(tmp_path: Path) -> None:
    _, _, loop = train(tmp_path / "last.ckpt", floor=1.0, warmup=0.0)
    assert loop.schedule.get_last_lr() == [0.2]
    _, _, loop = train(tmp_path / "other.ckpt", floor=0.1)
    assert loop.schedule.get_last_lr() == [pytest.approx(0.02)]


def test_a_step_in_parts_is_their_mean(tmp_path: Path) -> None:
    point = Point()
    loop = TrainingLoop(
        model=point,
        **settings(num_steps=1, accumulate=4, log_every=1),
        checkpoint=tmp_path / "last.ckpt",
        seed=0,
        identity=IDENTITY,
    )
    drawn: list[float] = []

    def loss_of(step: int, generator: torch.Generator) -> Tensor:
        drawn.append(float(torch.rand(1, generator=generator)))
        return point.place.sum() + drawn[-1]

    history = loop.run(loss_of, lambda step: {})
    assert len(set(drawn)) == 4
    assert history[0]["loss"] == pytest.approx(sum(drawn) / 4)


def test_a_loss_that_is_no_number_ends_it(tmp_path: Path) -> None:
    loop = TrainingLoop(
        model=Point(),
        **settings(),
        checkpoint=tmp_path / "last.ckpt",
        seed=0,
        identity=IDENTITY,
    )
    weight = loop.trained["place"]
    with pytest.raises(ValueError, match=r"step 0: lower training\.lr"):
        loop.run(lambda step, generator: weight.sum() * torch.nan, lambda step: {})
    assert torch.equal(weight, torch.zeros(3))


def test_losses_stay_on_a_gpu_until_they_are_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"log_every": 20, "val_every": 30, "checkpoint_every": 25, "accumulate": 2}
    point, history, _ = train(tmp_path / "here.ckpt", **options)
    monkeypatch.setattr(loop_module, "_is_at_hand", lambda _: False)
    counted: list[int] = []
    real = TrainingLoop._count_losses

    def count(self: TrainingLoop) -> None:
        counted.append(len(self._uncounted))
        real(self)

    monkeypatch.setattr(TrainingLoop, "_count_losses", count)
    other, again, _ = train(tmp_path / "gpu.ckpt", **options)
    assert again == history
    assert torch.equal(other.place, point.place)
    assert counted == [40, 10, 10, 20, 20, 20]  # after steps 20, 25, 30, 40, 50 and 60


def test_a_loss_that_is_no_number_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_module, "_is_at_hand", lambda _: False)
    loop = TrainingLoop(
        model=Point(),
        **settings(log_every=50, checkpoint_every=10),
        checkpoint=tmp_path / "last.ckpt",
        seed=0,
        identity=IDENTITY,
    )
    weight = loop.trained["place"]

    def loss_of(step: int, generator: torch.Generator) -> Tensor:
        return weight.sum() * (torch.nan if step == 13 else 1.0)

    with pytest.raises(ValueError, match=r"nan in step 13: lower training\.lr"):
        loop.run(loss_of, lambda step: {})
    assert torch.load(tmp_path / "last.ckpt", weights_only=True)["step"] == 10


def test_the_next_parts_draws_are_known_before_a_part(tmp_path: Path) -> None:
    point, events = Point(), []
    loop = TrainingLoop(
        model=point,
        **settings(num_steps=3, accumulate=2),
        checkpoint=tmp_path / "last.ckpt",
        seed=5,
        identity=IDENTITY,
    )

    def prepare(generator: torch.Generator) -> None:
        events.append(("next", float(torch.rand(1, generator=generator))))

    def loss_of(step: int, generator: torch.Generator) -> Tensor:
        events.append((step, float(torch.rand(1, generator=generator))))
        return point.place.sum()

    loop.run(loss_of, lambda step: {}, prepare)
    drawn = [value for who, value in events if who != "next"]
    assert [value for who, value in events if who == "next"] == drawn[1:]
    assert [who for who, _ in events] == ["next", 0, "next", 0, "next", 1, "next", 1, "next", 2, 2]
    assert drawn[3] == float(
        torch.rand(1, generator=torch.Generator().manual_seed((5 * 1_000_003 + 1) * 2 + 1))
    )


def test_the_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    train(tmp_path / "last.ckpt", num_steps=2)
    with pytest.raises(ValueError, match="belongs to another model; choose another out="):
        train(tmp_path / "last.ckpt", model=Point(4))


def test_the_checkpoint_of_another_training_is_refused_by_what_differs(tmp_path: Path) -> None:
    train(tmp_path / "last.ckpt", num_steps=2)
    other = {"seed": 3, "training": {"lr": 0.1}}
    expected = r"training\.lr was 0\.2, is 0\.1\): give another out=, or remove the folder"
    with pytest.raises(ValueError, match=expected):
        train(tmp_path / "last.ckpt", identity=other)
    many = {f"key{number}": number for number in range(9)}
    with pytest.raises(ValueError, match=r"key2 was None, is 2; and 8 more\)"):
        train(tmp_path / "last.ckpt", identity=many)


def test_a_training_may_be_made_longer_and_not_shorter(tmp_path: Path) -> None:
    train(tmp_path / "last.ckpt", num_steps=10)
    _, history, _ = train(tmp_path / "last.ckpt", num_steps=20)
    assert history[-1]["step"] == 20
    with pytest.raises(ValueError, match=r"is at step 20, beyond training\.num_steps=10:"):
        train(tmp_path / "last.ckpt", num_steps=10)


def test_a_checkpoint_that_tells_no_settings_is_refused(tmp_path: Path) -> None:
    train(tmp_path / "last.ckpt", num_steps=2)
    state = torch.load(tmp_path / "last.ckpt", weights_only=True)
    torch.save({k: v for k, v in state.items() if k != "identity"}, tmp_path / "last.ckpt")
    with pytest.raises(ValueError, match="an earlier version that did not record its settings"):
        train(tmp_path / "last.ckpt")


@pytest.mark.parametrize("numbers", [(3,), (1, 4), (5, 2, 1)])
def test_parts_of_different_sizes_make_one_mean(
    numbers: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    point, gradients = Point(), []
    clip = nn.utils.clip_grad_norm_

    def keep(parameters: Any, norm: float) -> None:
        gradients.append(point.place.grad.clone())
        clip(parameters, norm)

    monkeypatch.setattr(nn.utils, "clip_grad_norm_", keep)
    loop = TrainingLoop(
        model=point,
        **settings(num_steps=2, accumulate=len(numbers), log_every=1, lr=0.0),
        checkpoint=tmp_path / "last.ckpt",
        seed=0,
        identity=IDENTITY,
    )
    generator = torch.Generator().manual_seed(0)
    parts = [torch.rand(number, 3, generator=generator) for number in numbers]
    waiting = [*parts, *parts]

    def loss_of(step: int, generator: torch.Generator) -> Mean:
        part = waiting.pop(0)
        return Mean(value=((point.place + 1) * part).sum(1).mean(), number=len(part))

    history = loop.run(loss_of, lambda step: {})
    expected = torch.cat(parts).mean(0)
    assert len(gradients) == 2
    for gradient, line in zip(gradients, history, strict=True):
        torch.testing.assert_close(gradient, expected, rtol=1e-6, atol=0)
        assert line["loss"] == pytest.approx(float(expected.sum()), rel=1e-6)
