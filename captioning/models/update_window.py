"""An update of several batches: its gradient is one mean over the captions of all of them."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.strategies import FSDPStrategy, ModelParallelStrategy
from torch import Tensor
from torch.distributed.tensor import DTensor

from captioning.models.layers.weighted_mean import LEAST
from captioning.models.shared_loss import shared_means
from captioning.types import CaptionLosses


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowLoss:
    """The loss of a batch among the batches of its update.

    Attributes:
        loss: scalar to go backward from; the trainer divides it by the number of batches.
        batch: detached loss of the batch over all processes.
        update: detached loss of the update's batches so far, over all processes.
    """

    loss: Tensor
    batch: Tensor
    update: Tensor


class UpdateWindow:
    """Keeps accumulated gradients the mean over all batches of the update so far.

    Lightning adds up the gradients of the batches' means. One mean over all batches weighs each
    batch by its share of the denominator, which is known after the last batch only. So before each
    further batch the gradient so far is scaled to its share of the larger sum. After any batch it
    is that of one large batch, also after an epoch's last, incomplete update.

    Means after the first (`CaptionLosses.means`) have denominators of their own. Their gradients
    are computed separately and kept until the update's last batch. That costs one more backward
    pass of what the means share, and memory for a gradient.

    Nothing waits for the device, and all processes scale by the same numbers.
    """

    def __init__(self) -> None:
        self._sums: Tensor | None = None  # (M,) denominators so far
        self._values: Tensor | None = None  # (M,) means so far
        self._further: dict[int, list[Tensor | None]] = {}  # gradients of means after the first

    def add(
        self, losses: CaptionLosses, number: int, trainer: pl.Trainer, batch_idx: int
    ) -> WindowLoss:
        """Scale the gradient so far, and weigh the losses of the next batch.

        Args:
            losses: of the batch, before its backward pass.
            number: of its captions.
            trainer: accumulates ``accumulate_grad_batches`` of at least 2.
            batch_idx: number of the batch in its epoch.

        Raises:
            ValueError: another number of means than in the update's first batch, or a strategy that
                does not allow separate gradients; see `check_strategy`.
        """
        per_update = trainer.accumulate_grad_batches
        is_last = not trainer.fit_loop._should_accumulate()
        if batch_idx % per_update == 0:
            self._forget()
        shared = shared_means(losses, number)
        before, values = self._sums, self._values
        if before is None or values is None:
            before, values = torch.zeros_like(shared.denominators), torch.zeros_like(shared.values)
        _check_number(len(before), len(shared.denominators))
        sums = before + shared.denominators
        divisors = sums.clamp(min=LEAST)
        kept = before / divisors
        shares = shared.num_processes * shared.own_denominators / divisors
        values = kept * values + shared.denominators / divisors * shared.values
        weighed = [share * mean for share, mean in zip(shares, shared.own, strict=True)]
        parameters = [p for o in trainer.optimizers for g in o.param_groups for p in g["params"]]
        self._scale(parameters, kept, is_first=self._sums is None, is_last=is_last)
        if not is_last:
            check_strategy(trainer, several_means=any(mean.requires_grad for mean in weighed[1:]))
            weighed = self._set_aside(weighed, kept, parameters, trainer)
        self._sums, self._values = sums, values
        if is_last:
            self._forget()
        return WindowLoss(
            loss=per_update * torch.stack(weighed).sum(),
            batch=shared.values.sum(),
            update=values.sum(),
        )

    def _forget(self) -> None:
        self._sums, self._values, self._further = None, None, {}

    def _scale(
        self, parameters: list[Tensor], kept: Tensor, *, is_first: bool, is_last: bool
    ) -> None:
        """Scale the gradients so far; before the last batch, add those that were set aside."""
        if is_first:  # gradients are of the update before, and are cleared later
            return
        if grads := [_local(p.grad) for p in parameters if p.grad is not None]:
            torch._foreach_mul_(grads, kept[0])  # pyright: ignore[reportPrivateImportUsage]
        if not is_last:
            return
        for place, gradients in self._further.items():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                if gradient is None:
                    continue
                gradient.mul_(kept[place])
                if parameter.grad is None:
                    parameter.grad = gradient
                else:
                    parameter.grad.add_(gradient)

    def _set_aside(
        self, weighed: list[Tensor], kept: Tensor, parameters: list[Tensor], trainer: pl.Trainer
    ) -> list[Tensor]:
        """Compute the gradients of the means after the first; these then have none left."""
        scaler: Any = getattr(trainer.precision_plugin, "scaler", None)
        for place, mean in enumerate(weighed[1:], 1):
            if not mean.requires_grad:
                continue
            scaled = mean if scaler is None else scaler.scale(mean)
            with torch.autocast(mean.device.type, enabled=False):
                found = torch.autograd.grad(
                    scaled, parameters, retain_graph=True, allow_unused=True
                )
            gradients = self._further.get(place, [None] * len(parameters))
            self._further[place] = [
                _sum(gradient, kept[place], new)
                for gradient, new in zip(gradients, found, strict=True)
            ]
        return [weighed[0], *(mean.detach() for mean in weighed[1:])]


def check_strategy(trainer: pl.Trainer, *, several_means: bool) -> None:
    """Refuse a strategy by which accumulated batches would not make one mean.

    Args:
        trainer: of the run.
        several_means: whether the loss is a sum of several means with gradient.

    Raises:
        ValueError: such a strategy; names the keys and the remedy.
    """
    strategy, number = trainer.strategy, trainer.accumulate_grad_batches
    keys = f"trainer.accumulate_grad_batches={number} with trainer.strategy"
    remedy = "choose trainer.strategy=ddp, or trainer.accumulate_grad_batches=1"
    if number > 1 and strategy.handles_gradient_accumulation:
        name = type(strategy).__name__
        raise ValueError(f"{keys}: {name} accumulates gradients by itself, unweighted: {remedy}")
    is_sharded = isinstance(strategy, FSDPStrategy | ModelParallelStrategy)
    if number > 1 and several_means and is_sharded:
        raise ValueError(
            f"{keys}: the loss is a sum of several means, whose gradients cannot be computed "
            f"separately from weights in shards: {remedy}"
        )


def keep_compiled_graphs() -> None:
    """Let networks that are compiled from now on go backward more than once a batch.

    By default the backward pass of a compiled network overwrites what a second one would read.
    """
    config: Any = import_module("torch._functorch.config")
    config.donated_buffer = False


def _check_number(before: int, now: int) -> None:
    if before != now:
        raise ValueError(
            f"the losses of a batch have {now} means, those of its update's first batch {before}: "
            "give as many for each batch, Mean(number=0) where one has no losses"
        )


def _local(gradient: Tensor) -> Tensor:
    """The process's own shard, in place."""
    return gradient.to_local() if isinstance(gradient, DTensor) else gradient


def _sum(gradient: Tensor | None, kept: Tensor, new: Tensor | None) -> Tensor | None:
    """``kept * gradient + new``; None stands for 0."""
    if gradient is None:
        return new
    gradient = gradient.mul_(kept)
    return gradient if new is None else gradient.add_(new)
