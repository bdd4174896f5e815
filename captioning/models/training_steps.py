"""Methods that Lightning calls in training: steps, optimizer and learning-rate schedule.

The loss of a batch is a mean over the captions of all processes (`shared_loss`) and all batches
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
    """The M means of a loss over all processes.

    Attributes:
        own: M scalars of this process, with gradient.
        own_denominators: ``(M,) float32`` denominators of this process.
        values: ``(M,) float32`` means over all processes, detached.
        denominators: ``(M,) float32`` denominators over all processes.
        num_processes: number of processes, which average their gradients.
    """

    own: tuple[Tensor, ...]
    own_denominators: Tensor
    values: Tensor
    denominators: Tensor
    num_processes: int


def shared_means(losses: CaptionLosses, number: int) -> SharedMeans:
    """Compute the means of a loss over all processes, weighted by their denominators.

    Args:
        losses: losses of this process's captions.
        number: number of these captions.
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
    """Return the tensor to back-propagate, and the batch's loss over all processes.

    Processes average their gradients. The gradient of a mean of means differs from the gradient of
    one mean, because processes may have different numbers of tokens. Each of the loss's means is
    therefore scaled by the number of processes times its share of the denominator. This costs one
    small sum over the processes, for which a GPU run does not wait.

    Args:
        losses: losses of this process's captions.
        number: number of these captions.

    Returns:
        Both are ``losses.total`` with a single process.
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
    """The loss of a batch, weighted among the batches of its update.

    Attributes:
        loss: scalar to back-propagate; the trainer divides it by the number of batches.
        batch: detached loss of the batch over all processes.
        update: detached loss of the update's batches so far, over all processes.
    """

    loss: Tensor
    batch: Tensor
    update: Tensor


class UpdateWindow:
    """Keep accumulated gradients equal to the mean over all batches of the update so far.

    Lightning adds up the gradients of the batches' means. One mean over all batches weights each
    batch by its share of the denominator, known only after the last batch. Before each
    further batch, the gradient so far is therefore scaled to its share of the larger sum. After any
    batch it equals the gradient of one large batch, also after an epoch's incomplete last update.

    Means after the first (`CaptionLosses.means`) have their own denominators. Their gradients are
    computed separately and stored until the update's last batch. This costs one more backward pass
    of the part that the means share, and memory for a gradient.

    Nothing waits for the device, and all processes use the same scales.
    """

    def __init__(self) -> None:
        self._sums: Tensor | None = None  # (M,) denominators so far
        self._values: Tensor | None = None  # (M,) means so far
        self._further: dict[int, list[Tensor | None]] = {}  # gradients of means after the first

    def add(
        self, losses: CaptionLosses, number: int, trainer: pl.Trainer, batch_idx: int
    ) -> WindowLoss:
        """Scale the gradient so far, and weight the losses of the next batch.

        Args:
            losses: losses of the batch, before its backward pass.
            number: number of its captions.
            trainer: trainer with ``accumulate_grad_batches`` of at least 2.
            batch_idx: number of the batch in its epoch.

        Raises:
            ValueError: a different number of means than in the update's first batch, or a strategy
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
        """Scale the gradients so far; before the last batch, add the stored gradients."""
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
        """Compute and store the gradients of the means after the first, then detach these means."""
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
    """Raise an error if a strategy cannot average accumulated batches correctly.

    Args:
        trainer: the run's trainer.
        several_means: whether the loss is a sum of several means with gradient.

    Raises:
        ValueError: an unsupported strategy; the message names keys and remedy.
    """
    strategy, number = trainer.strategy, trainer.accumulate_grad_batches
    keys = f"trainer.accumulate_grad_batches={number} with trainer.strategy"
    remedy = "choose trainer.strategy=ddp, or trainer.accumulate_grad_batches=1"
    if number > 1 and strategy.handles_gradient_accumulation:
        name = type(strategy).__name__
        raise ValueError(f"{keys}: {name} accumulates gradients itself, unweighted: {remedy}")
    is_sharded = isinstance(strategy, FSDPStrategy | ModelParallelStrategy)
    if number > 1 and several_means and is_sharded:
        raise ValueError(
            f"{keys}: the loss is a sum of several means, whose gradients cannot be separated "
            f"with sharded weights: {remedy}"
        )


def keep_compiled_graphs() -> None:
    """Let networks compiled from now on run several backward passes per batch.

    By default the backward pass of a compiled network overwrites tensors that a second pass would
    read.
    """
    config: Any = import_module("torch._functorch.config")
    config.donated_buffer = False


def _check_number(before: int, now: int) -> None:
    if before != now:
        raise ValueError(
            f"the losses of a batch have {now} means, but its update's first batch has {before}: "
            "return the same number for each batch, with Mean(number=0) for a mean without losses"
        )


def _local(gradient: Tensor) -> Tensor:
    """Return the process's own shard of a gradient, in place."""
    return gradient.to_local() if isinstance(gradient, DTensor) else gradient


def _sum(gradient: Tensor | None, kept: Tensor, new: Tensor | None) -> Tensor | None:
    """Return ``kept * gradient + new``; None means 0."""
    if gradient is None:
        return new
    gradient = gradient.mul_(kept)
    return gradient if new is None else gradient.add_(new)


def check_losses(losses: Any, number: int, *, by: object) -> None:
    """Raise an error unless losses have the shapes of a batch loss and caption losses.

    Args:
        losses: losses of a batch.
        number: number of captions B.
        by: captioner or objective that returned them, for the message.

    Raises:
        ValueError: not a `CaptionLosses`, or a field of another shape.
    """
    name = type(by).__qualname__
    if not isinstance(losses, CaptionLosses):
        raise ValueError(
            f"{name} must return captioning.types.CaptionLosses with a loss of each caption: "
            f"got {shown(losses)}"
        )
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("per_sample", "nll", "smoothed"), (number,))
    for part, shape in {"total": (), **shapes}.items():
        value = getattr(losses, part)
        is_left_out = value is None and part in ("nll", "smoothed")
        if not is_left_out and (not isinstance(value, Tensor) or tuple(value.shape) != shape):
            wanted = "a single value" if part == "total" else f"one value per caption, {shape}"
            raise ValueError(f"{name}: {part} of its losses must be {wanted}: got {shown(value)}")


Captioner: TypeAlias = Any  # an AbstractCaptioner, whose module names this one to type checkers
CaptionerT = TypeVar("CaptionerT", bound=nn.Module)


class TrainingSteps(pl.LightningModule):
    """Lightning methods behind a captioner's class in `trainable`, which a model may override."""

    _window: UpdateWindow

    def training_step(self: Captioner, batch: Batch, batch_idx: int) -> dict[str, Tensor]:
        """Run one batch; return rows, per-caption losses for callbacks, and the update's loss."""
        if self.objective is None:
            losses = self.losses(batch)
        else:
            losses = self.objective(self, batch, batch_idx)
        size = len(batch)
        check_losses(losses, size, by=self.objective or self)
        shared = self._shared_loss(losses, size, batch_idx)
        # Not with prog_bar=True, which makes Lightning wait for the device in every step.
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
        """Return the batch's loss over all processes, weighted among the batches of its update."""
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
        """Make one update per batch, or several if the objective reuses its samples.

        Each update computes the batch's losses again. Counters and schedule count batches, so a run
        resumes between batches, when no samples are pending.
        """
        for _ in range(self._updates_a_batch):
            optimizer.step(closure=optimizer_closure)

    def validation_step(self: Captioner, batch: Batch, batch_idx: int) -> Any:
        """Return a `Prediction` for each image of the batch, for a callback that scores them.

        Raises:
            ValueError: in the sanity check, the decoder returns no valid log-probabilities.
        """
        if self._trainer is not None and self._trainer.sanity_checking:
            device = batch.rows.device
            request = request_of(self, self.tokenizer, batch.image_ids, device=device)
            check_stepper(self, self.start(batch), request)
        return self.generate(batch)

    def test_step(self: Captioner, batch: Batch, batch_idx: int) -> Any:
        """Return all `candidates` of each image of the batch, because some metrics need several."""
        return self.candidates(batch)

    def on_fit_start(self: Captioner) -> None:
        """Enable dropout: pretrained networks are loaded in evaluation mode.

        Raises:
            ValueError: a strategy that cannot average accumulated batches correctly.
        """
        several = self.several_means or getattr(self.objective, "several_means", False)
        check_strategy(self.trainer, several_means=several)
        batches, updates = self.trainer.accumulate_grad_batches, self._updates_a_batch
        if updates > 1 and batches > 1:
            raise ValueError(
                f"objective.num_updates={updates} with trainer.accumulate_grad_batches={batches}: "
                "several updates reuse the samples of one batch, so gradients cannot be "
                "accumulated over batches; set one of the two to 1"
            )
        if several and self.compiled and self.trainer.accumulate_grad_batches > 1:
            keep_compiled_graphs()
        self.train()

    def configure_optimizers(self: Captioner) -> Any:
        """Return the optimizer, and its schedule stepped once per update or per epoch."""
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
    """Turn a captioner into a Lightning module, which a trainer accepts.

    Its class becomes a class of the same name derived from the model's class and `TrainingSteps`.
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
