"""Probes measure the losses that curation reads, in training steps or in an extra pass."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities.seed import isolate_rng
from torch import Tensor

from captioning.types import CAPTION_REWARD, REWARD
from curation.loop.ledger import LossLedger, TokenLosses


class AbstractProbe(ABC):
    """Fills the loss ledger, and the ledgers of additional measurements.

    Attributes:
        signals: names of its further measurements; each gets its own ledger.
    """

    signals: tuple[str, ...] = ()

    @abstractmethod
    def observe(self, ledger: LossLedger, outputs: Any) -> None:
        """Called after every training step with the result of ``training_step``."""

    @abstractmethod
    def finish(
        self,
        ledger: LossLedger,
        signals: Mapping[str, LossLedger],
        trainer: pl.Trainer,
        module: pl.LightningModule,
    ) -> None:
        """Called once after the last training step of the epoch."""


class OnlineProbe(AbstractProbe):
    """Records the losses that training computes anyway, without a second forward pass.

    The losses are those of training mode, each taken when its sample was trained on. In the first
    epoch, where the loss falls fast, samples seen early look worse than they are: begin to act
    later (``schedule.from_epoch``), or use `RescoreProbe`.
    """

    def observe(self, ledger: LossLedger, outputs: Any) -> None:
        """Add the losses of a step to the ledger.

        Raises:
            ValueError: the step did not return rows and per-sample losses.
        """
        record(ledger, outputs)

    def finish(
        self,
        ledger: LossLedger,
        signals: Mapping[str, LossLedger],
        trainer: pl.Trainer,
        module: pl.LightningModule,
    ) -> None:
        """Do nothing: all losses were recorded during training."""


class RescoreProbe(AbstractProbe):
    """Scores all live samples at the epoch's end with the current parameters (paper, 3.1).

    In eval mode and without random changes of photos, which the paper does not mention. Every loss
    is then of the same weights, at the price of one more forward pass over the set.
    ``trainer.datamodule.probe_dataloader()`` gives the batches; with several processes it may give
    each its share, and a sample that more than one of them scores counts with the mean. It calls
    the module's ``probe_step(batch) -> (rows, per_sample)`` if there is one, else
    ``losses(batch)``; a third value is the loss summed over the caption's tokens, for
    ``curation.score.loss=sum``.

    Args:
        smoothed: the sums have the label smoothing that the model trains with, as the losses of
            BLIP's code, which the paper starts from; not for modules with a ``probe_step``.
    """

    def __init__(self, *, smoothed: bool = False) -> None:
        self.smoothed = smoothed

    def observe(self, ledger: LossLedger, outputs: Any) -> None:
        """Ignore the losses of training."""

    def finish(
        self,
        ledger: LossLedger,
        signals: Mapping[str, LossLedger],
        trainer: pl.Trainer,
        module: pl.LightningModule,
    ) -> None:
        """Score the batches of the probe loader.

        Raises:
            ValueError: the data module has no ``probe_dataloader``, or the module no way to score.
        """
        with measuring(trainer, module) as batches:
            for batch in batches():
                ledger.add(*score(module, batch, smoothed=self.smoothed))


def datamodule_of(trainer: pl.Trainer) -> Any:
    """Return a trainer's data module, or None; Lightning declares no such attribute."""
    return getattr(trainer, "datamodule", None)


def score(
    module: pl.LightningModule, batch: Any, *, smoothed: bool = False
) -> tuple[Tensor, Tensor, Tensor | None, TokenLosses | None]:
    """Return rows, per-sample losses, their token sums, and the token losses.

    By ``probe_step`` or ``losses``. The sums, and the losses of tokens, are None where the module
    gives none. ``smoothed``: the sums have label smoothing.

    Raises:
        ValueError: the module has neither, or no smoothed sums.
    """
    probe_step: Any = getattr(module, "probe_step", None)
    losses: Any = getattr(module, "losses", None)
    if probe_step is not None and smoothed:
        raise ValueError(
            f"curation.probe.smoothed=true asks {type(module).__name__}.losses, but its "
            "probe_step(batch) gives the sums itself: set curation.probe.smoothed=false"
        )
    if probe_step is not None:
        rows, per_sample, *sums = probe_step(batch)
        return rows, per_sample, sums[0] if sums else None, None
    if losses is not None:
        result = losses(batch)
        if smoothed and result.smoothed is None:
            raise ValueError(
                f"curation.probe.smoothed=true needs {type(module).__name__}.losses to give "
                "CaptionLosses.smoothed, which it does not: set curation.probe.smoothed=false"
            )
        numbers = getattr(batch, "token_sentences", None)
        numbers = None if numbers is None else numbers[:, 1:]
        sums = result.smoothed if smoothed else result.nll
        return batch.rows, result.per_sample, sums, token_losses(result.token_nll, numbers)
    raise ValueError(
        f"{type(module).__name__} cannot be rescored: give it probe_step(batch) -> "
        "(rows, per_sample), or use OnlineProbe"
    )


def record(ledger: LossLedger, outputs: Any) -> None:
    """Add the result of a training step to the ledger.

    Raises:
        ValueError: the step did not return rows and per-sample losses.
    """
    if not outputs:  # the step was skipped
        return
    if not isinstance(outputs, Mapping) or not {"rows", "per_sample"} <= outputs.keys():
        returned = sorted(outputs) if isinstance(outputs, Mapping) else type(outputs).__name__
        raise ValueError(
            "training_step must return a dict with 'loss', 'rows' (B,) and 'per_sample' (B,) "
            f"for curation: got {returned}"
        )
    tokens = token_losses(outputs.get("token_nll"), outputs.get("token_sentences"))
    ledger.add(outputs["rows"], outputs["per_sample"], outputs.get("per_sample_sum"), tokens)


def record_rewards(signals: Mapping[str, LossLedger], outputs: Any) -> None:
    """Add the rewards that a training step returned, if rewards are measured."""
    for name in (REWARD, CAPTION_REWARD):
        if name in signals and outputs:
            signals[name].add(outputs["rows"], outputs[name])


def token_losses(nll: Tensor | None, sentences: Tensor | None) -> TokenLosses | None:
    """Return token losses with their sentences; None if either is missing.

    Raises:
        ValueError: the losses and the sentences have different shapes.
    """
    if nll is None or sentences is None:
        return None
    if nll.shape != sentences.shape:
        raise ValueError(
            f"token_nll {tuple(nll.shape)} must have a loss for each token of the captions but the "
            f"first: got captions {tuple(sentences.shape)}"
        )
    return TokenLosses(nll=nll, sentences=sentences)


@contextmanager
def measuring(
    trainer: pl.Trainer, module: pl.LightningModule
) -> Iterator[Callable[[], Iterator[Any]]]:
    """Context manager for a pass over the live samples: eval mode, no gradients, same precision.

    Gives a function that makes the batches, on the device.

    Raises:
        ValueError: the data module has no ``probe_dataloader``.
    """
    build = getattr(datamodule_of(trainer), "probe_dataloader", None)
    if build is None:
        raise ValueError(
            "this probe needs trainer.datamodule.probe_dataloader(), an unshuffled loader over "
            "view.samples(): add it, or use OnlineProbe"
        )
    with undisturbed(trainer, module):
        yield lambda: (trainer.strategy.batch_to_device(batch) for batch in build())


@contextmanager
def undisturbed(trainer: pl.Trainer, module: pl.LightningModule) -> Iterator[None]:
    """Context manager for passes that leave training's state and random numbers unchanged.

    The random numbers that training draws are not shifted.
    """
    with (
        isolate_rng(),
        torch.no_grad(),
        _eval_mode(module),
        trainer.precision_plugin.forward_context(),
    ):
        yield


@contextmanager
def _eval_mode(module: torch.nn.Module) -> Iterator[None]:
    """Context manager: eval mode inside, and each module's earlier mode afterwards."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training
