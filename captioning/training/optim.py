"""Learning-rate schedules over an explicit horizon of updates."""

from __future__ import annotations

import math

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from captioning.ranges import DropRate, Fraction, PositiveFloat, PositiveInt


def linear(optimizer: Optimizer, *, horizon: int, warmup: DropRate = 0.0) -> LambdaLR:
    """Rise over the first ``warmup`` share of ``horizon`` updates, then fall in a line to 0."""

    def factor(update: int) -> float:
        return _rise(update, horizon, warmup) * _remaining(update, horizon, warmup)

    return LambdaLR(optimizer, factor)


def cosine(
    optimizer: Optimizer, *, horizon: int, warmup: DropRate = 0.0, floor: Fraction = 0.0
) -> LambdaLR:
    """Rise over the first ``warmup`` share of ``horizon`` updates, then half a cosine to ``floor``.

    Args:
        optimizer: its learning rate is the highest one.
        horizon: updates of the whole run.
        warmup: share of the horizon in [0, 1).
        floor: share of the highest rate at the end, in [0, 1].
    """

    def factor(update: int) -> float:
        remaining = _remaining(update, horizon, warmup)
        falling = floor + (1 - floor) * 0.5 * (1 - math.cos(math.pi * remaining))
        return _rise(update, horizon, warmup) * falling

    return LambdaLR(optimizer, factor)


def rounds(
    optimizer: Optimizer, *, horizon: int, num_rounds: PositiveInt = 4, scale: PositiveFloat = 0.5
) -> LambdaLR:
    """Rounds of equal length, each a line to 0 from ``scale`` times the former one's start.

    Bujimalla et al., Step 3: four rounds, scaled by 0.5 (Sch1) or 0.8 (Sch2).

    Args:
        optimizer: its learning rate is that of the first round's start.
        horizon: updates of the whole run.
        num_rounds: at least 1; not more than there are updates.
        scale: above 0.

    Raises:
        ValueError: numbers out of their range.
    """
    if not 1 <= num_rounds <= horizon or not scale > 0:
        raise ValueError(
            f"rounds need 1 <= num_rounds <= horizon and scale > 0: got {num_rounds} rounds in "
            f"{horizon} updates and {scale}"
        )
    length = -(-horizon // num_rounds)

    def factor(update: int) -> float:
        number, done = divmod(min(update, horizon), length)
        return scale**number * (1 - done / length)

    return LambdaLR(optimizer, factor)


def _rise(update: int, horizon: int, warmup: float) -> float:
    _check(horizon, warmup)
    steps = warmup * horizon
    return 1.0 if update >= steps else (update + 1) / (steps + 1)


def _remaining(update: int, horizon: int, warmup: float) -> float:
    """Share of the falling part that is still to come, 1 to 0."""
    start = warmup * horizon
    return min(1.0, max(0.0, (horizon - update) / (horizon - start)))


def _check(horizon: int, warmup: float) -> None:
    if horizon < 1 or not 0 <= warmup < 1:
        raise ValueError(
            f"a schedule needs horizon >= 1 and warmup in [0, 1): got {horizon} and {warmup}"
        )
