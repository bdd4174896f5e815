"""Methods that Lightning calls during training: steps of an epoch, optimiser and schedule.

The loss of a batch is a mean over the captions of all processes (`shared_loss`) and of all batches
of an update (`UpdateWindow`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, TypeAlias, TypeVar

import pytorch_lightning as pl
import torch
import torch.distributed as dist
from pytorch_lightning.strategies import FSDPStrategy, ModelParallelStrategy
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from captioning.decoding.words_to_tokens import check_stepper, request_of, shown
from captioning.models.layers.weighted_mean import LEAST
from captioning.types import Batch, CaptionLosses, Mean


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedMeans:
    """The M means of a loss, over all processes.

    Attributes:
        own: M scalars with gradient, of this process.
        own_denominators: ``(M,) float32``, of this process.
        values: ``(M,) float32``, detached, of all processes.
        denominators: ``(M,) float32``, of all processes.
        num_processes: at least 1; they average their gradients.
    """

    own: tuple[Tensor, ...]
    own_denominators: Tensor
    values: Tensor
    denominators: Tensor
    num_processes: int


def shared_means(losses: CaptionLosses, number: int) -> SharedMeans:
    """The means of a loss, to be weighed by their denominators.

    Args:
        losses: losses of this process's captions.
        number: of these captions.
    """
    means = losses.means or (Mean(value=losses.total, number=number),)
    own = torch.stack([mean.denominator for mean in means])
    values = torch.stack([mean.value.detach().float() for mean in means])
    sums = torch.stack([own, own * values])
    if is_shared := _is_shared():
        dist.all_reduce(sums)
    return SharedMeans(
        own=tuple(mean.value for mean in means),
        own_denominators=own,
        values=sums[1] / sums[0].clamp(min=LEAST),
        denominators=sums[0],
        num_processes=dist.get_world_size() if is_shared else 1,
    )


def shared_loss(losses: CaptionLosses, number: int) -> tuple[Tensor, Tensor]:
    """The tensor to back-propagate, and the loss of the batch over all processes.

    Processes average their gradients. The gradient of a mean of means differs from the gradient of
    one mean, as processes may have different numbers of tokens. So each of the loss's means is
    scaled by the number of processes times its share of the denominator. This costs one small sum
    over the processes, for which the program does not wait where there is a GPU.

    Args:
        losses: losses of this process's captions.
        number: of these captions.

    Returns:
        Both are ``losses.total`` where there is one process.
    """
    if not _is_shared():
        return losses.total, losses.total
    means = shared_means(losses, number)
    shares = means.own_denominators / means.denominators.clamp(min=LEAST)
    values = torch.stack([value.float() for value in means.own])
    return means.num_processes * (shares * values).sum(), means.values.sum()


def _is_shared() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


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
    equals the gradient of one large batch, also after an epoch's last, incomplete update.

    Means after the first (`CaptionLosses.means`) have their own denominators. Their gradients are
    computed separately and kept until the update's last batch. This costs one more backward pass of
    the part that the means share, and memory for a gradient.

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
            losses: losses of the batch, before its backward pass.
            number: number of its captions.
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
        trainer: the run's trainer.
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

    By default the backward pass of a compiled network overwrites tensors that a second one would
    read.
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


def check_losses(losses: Any, number: int, *, by: object) -> None:
    """Refuse values whose shapes are not a batch's loss and the losses of its captions.

    Args:
        losses: losses of a batch.
        number: B, of its captions.
        by: the captioner or objective that gave them.

    Raises:
        ValueError: no `CaptionLosses`, or a part of another shape.
    """
    name = type(by).__qualname__
    if not isinstance(losses, CaptionLosses):
        raise ValueError(
            f"{name} must give captioning.types.CaptionLosses, which has a loss of each caption: "
            f"got {shown(losses)}"
        )
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("per_sample", "nll", "smoothed"), (number,))
    for part, shape in {"total": (), **shapes}.items():
        value = getattr(losses, part)
        is_left_out = value is None and part in ("nll", "smoothed")
        if not is_left_out and (not isinstance(value, Tensor) or tuple(value.shape) != shape):
            wanted = "a single value" if part == "total" else f"one value a caption, {shape}"
            raise ValueError(f"{name}: {part} of its losses must be {wanted}: got {shown(value)}")


Captioner: TypeAlias = Any  # an AbstractCaptioner, whose module names this one to type checkers
CaptionerT = TypeVar("CaptionerT", bound=nn.Module)


class TrainingSteps(pl.LightningModule):
    """Behind a captioner's own class in that of `trainable`, so a model may override each."""

    _window: UpdateWindow

    def training_step(self: Captioner, batch: Batch, batch_idx: int) -> dict[str, Tensor]:
        """One batch; returns rows and per-caption losses for callbacks, and its update's loss."""
        if self.objective is None:
            losses = self.losses(batch)
        else:
            losses = self.objective(self, batch, batch_idx)
        size = len(batch)
        check_losses(losses, size, by=self.objective or self)
        shared = self._shared_loss(losses, size, batch_idx)
        # Not with prog_bar=True, for which Lightning waits for the device in every step.
        self.log("train/loss", shared.batch, batch_size=size)
        for name, value in losses.parts.items():
            self.log(f"train/{name}", value, batch_size=size)
        counted = slice(0, 0 if batch.filler else size)
        rows, per_sample = batch.rows[counted], losses.per_sample[counted].detach()
        outputs = {"loss": shared.loss, "rows": rows, "per_sample": per_sample}
        outputs["update_loss"] = shared.update
        if losses.nll is not None:
            outputs["per_sample_sum"] = losses.nll[counted].detach()
        if batch.token_sentences is not None and losses.token_nll is not None:
            outputs["token_nll"] = losses.token_nll[counted].detach()
            outputs["token_sentences"] = batch.token_sentences[counted, 1:]
        outputs |= {name: value[counted] for name, value in losses.recorded.items()}
        return outputs

    def _shared_loss(
        self: Captioner, losses: CaptionLosses, number: int, batch_idx: int
    ) -> WindowLoss:
        """The loss of the batch over all processes, among the batches of its update."""
        if self._trainer is not None and self._trainer.accumulate_grad_batches > 1:
            return self._window.add(losses, number, self._trainer, batch_idx)
        loss, total = shared_loss(losses, number)
        return WindowLoss(loss=loss, batch=total, update=total.detach())

    @property
    def _updates_a_batch(self: Captioner) -> int:
        return getattr(self.objective, "num_updates", 1)

    def optimizer_step(
        self: Captioner, epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Any = None
    ) -> None:
        """Make one update by a batch, or as many as the objective makes by its draws.

        Each takes the batch's losses again. Counters and the schedule go by batches, so that a run
        resumes between batches, when no draws are left.
        """
        for _ in range(self._updates_a_batch):
            optimizer.step(closure=optimizer_closure)

    def validation_step(self: Captioner, batch: Batch, batch_idx: int) -> Any:
        """A `Prediction` for each of the batch's images; a callback scores them.

        Raises:
            ValueError: a batch that is tried before training shows a decoder that gives no
                log-probabilities.
        """
        if self._trainer is not None and self._trainer.sanity_checking:
            device = batch.rows.device
            request = request_of(self, self.tokenizer, batch.image_ids, device=device)
            check_stepper(self, self.start(batch), request)
        return self.generate(batch)

    def test_step(self: Captioner, batch: Batch, batch_idx: int) -> Any:
        """All `candidates` of each of the batch's images, as some metrics want several."""
        return self.candidates(batch)

    def on_fit_start(self: Captioner) -> None:
        """Train with dropout: pretrained networks are read in evaluation mode, and would stay.

        Raises:
            ValueError: a strategy by which accumulated batches would not make one mean.
        """
        several = self.several_means or getattr(self.objective, "several_means", False)
        check_strategy(self.trainer, several_means=several)
        batches, updates = self.trainer.accumulate_grad_batches, self._updates_a_batch
        if updates > 1 and batches > 1:
            raise ValueError(
                f"objective.num_updates={updates} with trainer.accumulate_grad_batches={batches}: "
                "several updates use the draws of one batch, so gradients of batches cannot be "
                "accumulated; set one of both to 1"
            )
        if several and self.compiled and self.trainer.accumulate_grad_batches > 1:
            keep_compiled_graphs()
        self.train()

    def configure_optimizers(self: Captioner) -> Any:
        """The optimiser, and its schedule stepped once an update, or an epoch where it says so."""
        optimizer = self._optimizer(p for p in self.parameters() if p.requires_grad)
        if self._schedule is None:
            return optimizer
        scheduler = self._schedule(optimizer, horizon=self.horizon)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {
                "scheduler": scheduler,
                "interval": getattr(scheduler, "interval", "step"),
            },
        }


def trainable(model: CaptionerT) -> CaptionerT:
    """The same captioner as a module of Lightning, which a trainer takes.

    Its class becomes one of the same name that derives from the model's and `TrainingSteps`.
    """
    if isinstance(model, pl.LightningModule):
        return model
    lightning = TrainingSteps()
    for name, value in vars(lightning).items():
        vars(model).setdefault(name, value)
    vars(model).update(_device=model.device, _window=UpdateWindow())
    model.__class__ = _trained_class(type(model))
    return model


@cache
def _trained_class(plain: type) -> type:
    names = {"__module__": plain.__module__, "__qualname__": plain.__qualname__}
    return type(plain)(plain.__name__, (plain, TrainingSteps), names | {"__doc__": plain.__doc__})
