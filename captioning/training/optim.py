"""Learning-rate schedules over updates or epochs, and an 8-bit optimiser."""

from __future__ import annotations

import math
from collections.abc import Iterable

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from captioning.config.loadable import loadable
from captioning.config.ranges import (
    DropRate,
    Fraction,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
)
from captioning.config.setting_error import SettingError
from captioning.runtime.extras import import_extra


@loadable
def adamw8bit(
    parameters: Iterable[nn.Parameter],
    *,
    lr: NonNegativeFloat,
    weight_decay: NonNegativeFloat = 0.01,
    paged: bool = False,
) -> Optimizer:
    """AdamW of bitsandbytes with 8-bit states: one byte per weight and mean instead of four.

    Blocks of 256 values share a scale. Tensors of fewer than 4,096 weights keep means in 32 bits.

    Args:
        parameters: parameters to train.
        lr: learning rate.
        weight_decay: weight decay, multiplied by the learning rate at each update.
        paged: keep the means in memory that the driver moves between a GPU and the host.

    Raises:
        ModuleNotFoundError: bitsandbytes is not installed.
        SettingError: weights are sharded over processes.
    """
    purpose = f"optimizer={'paged_' * paged}adamw8bit"
    library = import_extra("bitsandbytes.optim", extra="quantize", purpose=purpose)
    chosen = list(parameters)
    if any(hasattr(parameter, "full_tensor") for parameter in chosen):
        raise SettingError(
            "optimizer",
            "means in 8 bits cannot be divided among processes",
            "choose optimizer=adamw, or another trainer than fsdp",
        )
    kind = library.PagedAdamW8bit if paged else library.AdamW8bit
    return kind(chosen, lr=lr, weight_decay=weight_decay)


class EpochLR(LambdaLR):
    """Learning-rate schedule that changes per epoch, not per update."""

    interval = "epoch"


@loadable
def linear(
    optimizer: Optimizer,
    *,
    horizon: int,
    warmup: DropRate = 0.0,
    warmup_steps: PositiveInt | None = None,
    may_end_rising: bool = False,
) -> LambdaLR:
    """Linear schedule: the rate rises over the first updates, then falls linearly to 0.

    Args:
        optimizer: its learning rate is the highest one.
        horizon: updates of the whole run.
        warmup: share of the horizon in [0, 1) over which the rate rises.
        warmup_steps: updates over which the rate rises, below the horizon; replaces ``warmup``.
        may_end_rising: the horizon may be shorter than ``warmup_steps``, as in transformers: the
            run then ends before it reaches the highest rate.
    """
    cut = may_end_rising and warmup_steps is not None and warmup_steps >= horizon
    rise = float(warmup_steps or 0) if cut else _rise_in(horizon, warmup, warmup_steps)

    def factor(update: int) -> float:
        return _rise(update, rise) * (1.0 if cut else _remaining(update, horizon, rise))

    return LambdaLR(optimizer, factor)


@loadable
def cosine(
    optimizer: Optimizer,
    *,
    horizon: int,
    warmup: DropRate = 0.0,
    warmup_steps: PositiveInt | None = None,
    floor: Fraction = 0.0,
) -> LambdaLR:
    """Cosine schedule: the rate rises over the first updates, then falls to ``floor``.

    Args:
        optimizer: its learning rate is the highest one.
        horizon: updates of the whole run.
        warmup: share of the horizon in [0, 1) over which the rate rises.
        warmup_steps: updates over which the rate rises, below the horizon; replaces ``warmup``.
        floor: share of the highest rate at the end, in [0, 1].
    """
    rise = _rise_in(horizon, warmup, warmup_steps)

    def factor(update: int) -> float:
        remaining = _remaining(update, horizon, rise)
        falling = floor + (1 - floor) * 0.5 * (1 - math.cos(math.pi * remaining))
        return _rise(update, rise) * falling

    return LambdaLR(optimizer, factor)


@loadable
def cosine_by_epoch(
    optimizer: Optimizer, *, horizon: int, num_epochs: PositiveInt, floor: Fraction = 0.0
) -> LambdaLR:
    """Cosine schedule with one rate per epoch, whatever the epoch's number of updates.

    BLIP's fine-tuning uses it: the last of five epochs has a tenth of the first epoch's rate.

    Args:
        optimizer: its learning rate is the first epoch's.
        horizon: updates of the whole run; unused, so that samples removed by curation do not change
            an epoch's rate.
        num_epochs: number of epochs of the whole run.
        floor: share of the highest rate after the last epoch, in [0, 1].
    """
    del horizon

    def factor(epoch: int) -> float:
        return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * min(epoch / num_epochs, 1)))

    return EpochLR(optimizer, factor)


@loadable
def rounds(
    optimizer: Optimizer, *, horizon: int, num_rounds: PositiveInt = 4, scale: PositiveFloat = 0.5
) -> LambdaLR:
    """Schedule of equal rounds, each linear to 0 from ``scale`` times the former round's start.

    Bujimalla et al., Step 3: four rounds, scaled by 0.5 (Sch1) or 0.8 (Sch2).

    Args:
        optimizer: its learning rate is the initial rate of the first round.
        horizon: updates of the whole run.
        num_rounds: at least 1; not more than there are updates.
        scale: above 0.

    Raises:
        ValueError: a number is out of its range.
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


def _rise_in(horizon: int, warmup: float, warmup_steps: int | None) -> float:
    """Number of updates over which the rate rises; a share may give a fractional number.

    Raises:
        ValueError: a number is out of its range.
    """
    if horizon < 1 or not 0 <= warmup < 1:
        raise ValueError(
            f"a schedule needs horizon >= 1 and warmup in [0, 1): got {horizon} and {warmup}"
        )
    if warmup_steps is None:
        return warmup * horizon
    if not 0 < warmup_steps < horizon:
        raise ValueError(
            f"schedule.warmup_steps must be below the {horizon} updates of the run: got "
            f"{warmup_steps}; lower it, or set schedule.warmup_steps=null and schedule.warmup"
        )
    return float(warmup_steps)


def _rise(update: int, steps: float) -> float:
    return 1.0 if update >= steps else (update + 1) / (steps + 1)


def _remaining(update: int, horizon: int, start: float) -> float:
    """Remaining share of the decay after the warm-up, from 1 to 0."""
    return min(1.0, max(0.0, (horizon - update) / (horizon - start)))
