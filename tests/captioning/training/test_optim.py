"""Schedules over an explicit horizon."""

from __future__ import annotations

import pytest
import torch

from captioning.training.optim import cosine, cosine_by_epoch, linear, rounds


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
