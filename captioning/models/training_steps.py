"""What Lightning calls while it trains a captioner: steps of an epoch, optimiser and schedule."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeAlias, TypeVar

import pytorch_lightning as pl
from torch import Tensor, nn

from captioning.decoding.words_to_tokens import check_stepper, request_of, shown
from captioning.models.shared_loss import shared_loss
from captioning.models.update_window import (
    UpdateWindow,
    WindowLoss,
    check_strategy,
    keep_compiled_graphs,
)
from captioning.types import Batch, CaptionLosses


def check_losses(losses: Any, number: int, *, by: object) -> None:
    """Refuse what is no loss of a batch and of each of its captions. Shapes alone are looked at.

    Args:
        losses: of a batch.
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
            outputs["token_nll"] = losses.token_nll[counted]
            outputs["token_sentences"] = batch.token_sentences[counted, 1:]
        return outputs

    def _shared_loss(
        self: Captioner, losses: CaptionLosses, number: int, batch_idx: int
    ) -> WindowLoss:
        """The loss of the batch over all processes, among the batches of its update."""
        if self._trainer is not None and self._trainer.accumulate_grad_batches > 1:
            return self._window.add(losses, number, self._trainer, batch_idx)
        loss, total = shared_loss(losses, number)
        return WindowLoss(loss=loss, batch=total, update=total.detach())

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
