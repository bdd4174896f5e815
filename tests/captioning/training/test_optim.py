"""Schedules over an explicit horizon."""

from __future__ import annotations

import io
import sys
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from captioning.config.compose import compose_config
from captioning.training import preflight
from captioning.training.optim import adamw8bit, cosine, cosine_by_epoch, linear, rounds
from captioning.training.step_memory import _of_optimizer


def rates(schedule, horizon: int, **settings) -> list[float]:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=2.0)
    scheduler = schedule(optimizer, horizon=horizon, **settings)
    learning_rates = []
    for _ in range(horizon):
        learning_rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return [*learning_rates, optimizer.param_groups[0]["lr"]]


def test_linear_rises_then_falls_to_nothing() -> None:
    learning_rates = rates(linear, 10, warmup=0.2)
    assert learning_rates[0] < learning_rates[1] < learning_rates[2] == 2.0
    assert learning_rates[6] == pytest.approx(1.0)
    assert learning_rates[10] == 0


@pytest.mark.parametrize("horizon", [4, 10])
def test_a_short_run_may_end_amid_the_rise(horizon: int) -> None:
    options = {"warmup_steps": 10, "may_end_rising": True}
    begun = rates(linear, horizon, **options)
    assert begun[:-1] == pytest.approx([2.0 * (update + 1) / 11 for update in range(horizon)])
    assert rates(linear, 100, **options) == rates(linear, 100, warmup_steps=10)


def test_cosine_is_half_way_down_in_the_middle_and_stops_at_its_floor() -> None:
    learning_rates = rates(cosine, 10, floor=0.1)
    assert learning_rates[0] == 2.0
    assert learning_rates[5] == pytest.approx(2.0 * 0.55)
    assert learning_rates[10] == pytest.approx(0.2)


def test_a_cosine_by_epoch_is_that_of_blip() -> None:
    learning_rates = rates(cosine_by_epoch, 5, num_epochs=5)
    assert learning_rates == pytest.approx([2.0, 1.809017, 1.309017, 0.690983, 0.190983, 0.0])
    assert rates(cosine_by_epoch, 2, num_epochs=2, floor=1.0) == [2.0, 2.0, 2.0]


def test_rounds_fall_in_lines_each_from_a_share_of_the_former_ones_start() -> None:
    learning_rates = rates(rounds, 8, num_rounds=4, scale=0.5)
    assert learning_rates[:8] == [2.0, 1.0, 1.0, 0.5, 0.5, 0.25, 0.25, 0.125]
    # the last round is cut where the updates are no multiple of the rounds
    uneven = rates(rounds, 5, num_rounds=2, scale=0.8)
    assert uneven[:5] == pytest.approx([2.0, 4 / 3, 2 / 3, 1.6, 1.6 * 2 / 3])


@pytest.mark.parametrize("settings", [{"num_rounds": 0}, {"num_rounds": 9}, {"scale": 0.0}])
def test_rounds_out_of_range_are_refused(settings: dict) -> None:
    with pytest.raises(ValueError, match=r"rounds need 1 <= num_rounds <= horizon and scale > 0"):
        rates(rounds, 8, **settings)
    assert len(rates(rounds, 8, num_rounds=8)) == 9


def test_a_floor_of_one_is_constant() -> None:
    assert set(rates(cosine, 5, floor=1.0)) == {2.0}


@pytest.mark.parametrize(("horizon", "warmup"), [(0, 0.0), (10, 1.0), (10, -0.1)])
def test_settings_out_of_range_are_refused(horizon: int, warmup: float) -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    with pytest.raises(ValueError, match="horizon >= 1"):
        linear(optimizer, horizon=horizon, warmup=warmup)


@pytest.mark.parametrize("schedule", [linear, cosine])
def test_a_warm_up_may_be_of_so_many_updates(schedule) -> None:
    assert rates(schedule, 10, warmup_steps=2) == rates(schedule, 10, warmup=0.2)
    long = rates(schedule, 1000, warmup_steps=2, warmup=0.5)
    assert long[0] < long[1] < long[2] == 2.0
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    with pytest.raises(ValueError, match=r"warmup_steps must be below the 10 updates .* got 10"):
        schedule(optimizer, horizon=10, warmup_steps=10)


@pytest.mark.parametrize("name", ["adamw8bit", "paged_adamw8bit"])
def test_states_in_8_bits_need_their_package(name: str, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "bitsandbytes.optim", None)
    config = compose_config("train", [f"optimizer={name}", "speed=gpu"])
    with pytest.raises(ModuleNotFoundError, match=f"optimizer={name}: .*extra 'quantize'"):
        preflight.check_settings(preflight.settings_of(config))


def test_pages_need_a_gpu(monkeypatch) -> None:
    monkeypatch.setattr(preflight, "check_settings", lambda _: None)
    chosen = ("optimizer=paged_adamw8bit", "trainer.accelerator=cpu")
    with pytest.raises(ValueError, match=r"optimizer\.paged: .*; choose optimizer=adamw8bit"):
        preflight.check_run(preflight.settings_of(compose_config("train", list(chosen))))


def test_states_in_8_bits_are_given_what_the_config_says(monkeypatch) -> None:
    given: dict[str, Any] = {}
    for kind in ("AdamW8bit", "PagedAdamW8bit"):
        given[kind] = lambda values, _kind=kind, **options: (_kind, len(values), options)
    monkeypatch.setitem(sys.modules, "bitsandbytes.optim", SimpleNamespace(**given))
    values = [nn.Parameter(torch.zeros(2))]
    built: Any = adamw8bit(iter(values), lr=0.1)
    assert built == ("AdamW8bit", 1, {"lr": 0.1, "weight_decay": 0.01})
    built = adamw8bit(values, lr=0.1, weight_decay=0.0, paged=True)
    assert built == ("PagedAdamW8bit", 1, {"lr": 0.1, "weight_decay": 0.0})
    shard: Any = SimpleNamespace(full_tensor=None)
    with pytest.raises(ValueError, match="optimizer: .* divided .* another trainer than fsdp"):
        adamw8bit([shard], lr=0.1)


@pytest.mark.skipif(find_spec("bitsandbytes") is None, reason="needs bitsandbytes")
def test_states_in_8_bits_take_a_quarter_and_resume_to_the_bit() -> None:
    def begun() -> tuple[nn.Parameter, torch.optim.Optimizer]:
        weight = nn.Parameter(torch.ones(256, 512))
        return weight, adamw8bit([weight], lr=1e-3)

    def update(weight: nn.Parameter, optimizer: torch.optim.Optimizer, number: int) -> None:
        weight.grad = torch.randn(256, 512, generator=torch.Generator().manual_seed(number))
        optimizer.step()

    weight, optimizer = begun()
    update(weight, optimizer, 0)
    file = io.BytesIO()
    torch.save({"weight": weight.detach(), "states": optimizer.state_dict()}, file)
    update(weight, optimizer, 1)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    again, resumed = begun()
    again.data.copy_(saved["weight"])
    resumed.load_state_dict(saved["states"])
    update(again, resumed, 1)
    assert torch.equal(again, weight)
    states = [v for v in optimizer.state[weight].values() if isinstance(v, torch.Tensor)]
    size = sum(value.nbytes for value in states)
    assert size == pytest.approx(weight.numel() * 2, rel=0.05)
    built: list[torch.optim.Optimizer] = []

    def build(values: list[nn.Parameter]) -> torch.optim.Optimizer:
        built.append(adamw8bit(values, lr=1e-3))
        return built[-1]

    model: Any = SimpleNamespace(_optimizer=build)
    assert _of_optimizer(model, [weight], is_real=False)[0] == pytest.approx(size, rel=0.05)
    (state,) = built[-1].state.values()
    assert type(state["state1"]) is torch.Tensor  # of a real update
