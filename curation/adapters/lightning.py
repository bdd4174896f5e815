"""Curation for any LightningModule with a plain data loader."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytorch_lightning as pl
from torch import Tensor

from curation.adapters.curated_dataset import check_loader
from curation.adapters.curation import Curation
from curation.loop.curator import Outcome

ROWS = ("rows", "row", "indices", "index", "idx")
LOSSES = ("per_sample", "losses", "per_sample_losses", "sample_losses")
LossesOf = Callable[[Any, Any], tuple[Tensor, Tensor]]


class LightningCuration(pl.Callback):
    """Lightning callback: adds the losses of training steps and ends the epochs of `Curation`.

    The decision falls after the last training step of an epoch, before its validation, so the
    checkpoint of epoch k holds the edits of epoch k. With ``ckpt_path`` the checkpoint's state
    counts, whatever the folder holds. A checkpoint from amid an epoch needs a loader that can
    resume there, see `on_train_start`.

    Args:
        curation: the run's curation.
        losses_of: returns rows and losses, each ``(B,)``, from the result of ``training_step`` and
            from the batch. Default: rows under one of `ROWS` in the result or in the batch, losses
            under one of `LOSSES` in the result. Further measurements that `Curation.open` lists are
            taken from the result under their names.

    Examples:
        >>> import pytorch_lightning as pl
        >>> import torch
        >>> from captioning import CuratedDataset, Curation, LightningCuration
        >>> class Module(pl.LightningModule):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.weight = torch.nn.Parameter(torch.ones(1))
        ...     def training_step(self, batch, batch_idx):
        ...         losses = self.weight * batch["length"]
        ...         return {"loss": losses.mean(), "losses": losses, "rows": batch["row"]}
        ...     def configure_optimizers(self):
        ...         return torch.optim.SGD(self.parameters(), lr=0.1)
        >>> samples = [("a.jpg", "a dog"), ("b.jpg", "a cat")]
        >>> curation = Curation.open("lit", samples=samples, policy="track", first_epoch=0)
        >>> data = CuratedDataset(lambda sample: {"length": len(sample.caption)}, curation)
        >>> own = {"logger": False, "enable_checkpointing": False, "accelerator": "cpu"}
        >>> trainer = pl.Trainer(max_epochs=2, callbacks=[LightningCuration(curation)], **own)
        >>> trainer.fit(Module(), torch.utils.data.DataLoader(data))
        >>> curation.epoch
        2
    """

    def __init__(self, curation: Curation, *, losses_of: LossesOf | None = None) -> None:
        self.curation = curation
        self.losses_of = losses_of or named_losses

    def state_dict(self) -> dict[str, Any]:
        """Return the state of curation for Lightning's checkpoint; equal in all processes."""
        return self.curation.state_dict(gathered=True)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resume curation from the state in Lightning's checkpoint."""
        self.curation.load_state_dict(state_dict, mid_epoch=True)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Raise ValueError if training does not read the curated samples.

        Raises:
            ValueError: a loader over another dataset, a trainer that begins at another epoch, or
                one that begins amid an epoch with a loader from the start: Lightning takes as many
                batches as were left, which are others.
        """
        _require_whole_epoch(trainer)
        rebuilt = getattr(trainer, "reload_dataloaders_every_n_epochs", 0) == 1
        check_loader(trainer.train_dataloader, self.curation, rebuilt=rebuilt)
        if self.curation.epoch != trainer.current_epoch:
            raise ValueError(
                f"training starts at epoch {trainer.current_epoch}, but {self.curation.folder} "
                f"resumes at epoch {self.curation.epoch}: give trainer.fit the checkpoint "
                "(ckpt_path=...), or use Curation.open(first_epoch=0) to start from scratch"
            )

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Add the losses of a step; end curation's epoch after the epoch's last step."""
        if outputs is not None:  # the step was skipped
            names = self.curation.signals if isinstance(outputs, Mapping) else ()
            signals = {name: outputs[name] for name in names if name in outputs}
            self.curation.add(*self.losses_of(outputs, batch), **signals)
        if trainer.is_last_batch:
            self._close(trainer, pl_module)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """End curation's epoch here if training stopped before the epoch's last batch."""
        if self.curation.epoch == trainer.current_epoch:
            self._close(trainer, pl_module)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Write the report of curation at the end of training."""
        self.curation.finish()

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        """Release the resources of the policy after an error."""
        self.curation.close()

    def _close(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        outcome = self.curation.end_epoch()
        pl_module.log_dict(logged(outcome), on_step=False, on_epoch=True, batch_size=1)


def _require_whole_epoch(trainer: pl.Trainer) -> None:
    loop, loader = trainer.fit_loop, trainer.train_dataloader
    progress: Any = loop.epoch_loop.batch_progress
    num_done = progress.current.processed
    if not loop.restarting or progress.is_last_batch or not num_done:
        return
    if hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict"):
        return
    raise ValueError(
        f"{trainer.ckpt_path or 'the checkpoint'} was saved after batch {num_done} of epoch "
        f"{trainer.current_epoch}, and this loader can only start again, so that captions would be "
        "measured twice and others not: resume from a checkpoint of an epoch's end "
        "(ModelCheckpoint(every_n_epochs=1)), or give a loader with state_dict and "
        "load_state_dict, such as torchdata's StatefulDataLoader"
    )


def named_losses(outputs: Any, batch: Any) -> tuple[Tensor, Tensor]:
    """Return rows and losses, found under their usual names in the result or the batch.

    Raises:
        ValueError: rows or losses are missing; the message lists the names that exist.
    """
    rows = _first(outputs, ROWS)
    rows = _first(batch, ROWS) if rows is None else rows
    losses = _first(outputs, LOSSES)
    if rows is None or losses is None:
        returned = sorted(outputs) if isinstance(outputs, Mapping) else type(outputs).__name__
        raise ValueError(
            f"training_step must return a dict with 'loss', the losses (B,) under one of {LOSSES} "
            f"and the rows (B,) under one of {ROWS} (or in the batch): got {returned}; or give "
            "LightningCuration(losses_of=...)"
        )
    return rows, losses.detach()


def logged(outcome: Outcome) -> dict[str, float]:
    """Return the counts and scores of an epoch's end in the form that loggers expect."""
    values = outcome.record.items()
    return {
        f"curation/{name}": float(value) for name, value in values if isinstance(value, int | float)
    }


def _first(values: Any, names: tuple[str, ...]) -> Any:
    if not isinstance(values, Mapping):
        return None
    return next((values[name] for name in names if name in values), None)
