"""Lightning's fit of a run: what it may warn of, and how it ends when it is stopped."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytorch_lightning as pl
from pytorch_lightning.utilities.exceptions import (
    MisconfigurationException,  # pyright: ignore[reportPrivateImportUsage]
)

from captioning.data.batches.datamodule import CaptionDataModule
from captioning.models.base import AbstractCaptioner
from captioning.results.checkpoints import latest_checkpoint, progress
from captioning.training.preemption import Preemption
from captioning.training.signals import Stopped, StopSignals


def fit(
    trainer: pl.Trainer,
    model: AbstractCaptioner,
    datamodule: CaptionDataModule,
    *,
    checkpoint: Path | None,
    signals: StopSignals,
) -> None:
    """Train.

    Args:
        trainer: of the run, whose folder is its own.
        model: to train.
        datamodule: gives the batches.
        checkpoint: to go on from.
        signals: that the trainer's `Preemption` listens to.

    Raises:
        Stopped: a signal asks for it; says how to go on.
        KeyboardInterrupt: somebody stops the run; says how to go on.
        ValueError: settings that Lightning refuses.
    """
    try:
        with warnings.catch_warnings():
            quieten_loaders(datamodule)
            # Expected for a resumed run, and for one that branches.
            warnings.filterwarnings("ignore", "Checkpoint directory .* exists and is not empty")
            warnings.filterwarnings("ignore", ".*callbacks used to create .*ModelCheckpoint")
            warnings.filterwarnings("ignore", "The dirpath has changed from")
            # The data module itself begins where the checkpoint was written.
            warnings.filterwarnings("ignore", "You're resuming from a checkpoint that ended before")
            trainer.fit(model, datamodule, ckpt_path=checkpoint, weights_only=True)
        if number := _stop_at_end(trainer):
            raise Stopped("", number=number)
    except Stopped as stop:
        raise Stopped(_how_to_go_on(trainer), number=stop.number) from None
    except SystemExit as stopped:
        if not trainer.interrupted:
            raise
        raise KeyboardInterrupt(_how_to_go_on(trainer)) from stopped
    except MisconfigurationException as error:
        raise ValueError(f"trainer and callbacks do not fit together: {error}") from error
    except RuntimeError as error:
        if "conditioned on metric" not in str(error):  # as Lightning tells a score that none logs
            raise
        raise ValueError(f"callbacks.*.monitor: {error}") from error
    finally:
        signals.deferred = False
    signals.obey()


def quieten_loaders(datamodule: CaptionDataModule) -> None:
    """Silence advice on loader processes where it is wrong."""
    if not datamodule.reads_pixels:
        # Cached features are read in milliseconds: loader processes would only cost time.
        warnings.filterwarnings("ignore", ".*does not have many workers.*")
    # A loader whose processes stay is kept and not made anew, which is what can hang.
    warnings.filterwarnings("ignore", ".*persistent_workers=True.*can lead to instability.*")


def _stop_at_end(trainer: pl.Trainer) -> int:
    """The signal that came, to any process, while the last epoch ended."""
    callbacks: list[pl.Callback] = getattr(trainer, "callbacks")  # noqa: B009 - not declared
    stops = [callback.stop for callback in callbacks if isinstance(callback, Preemption)]
    return max(stops, default=0)


def _how_to_go_on(trainer: pl.Trainer) -> str:
    path = latest_checkpoint(Path(trainer.default_root_dir) / "checkpoints")
    if path is None:
        return "stopped; resume=auto goes on from the start, as no epoch had ended"
    epoch, updates = progress(path)
    return f"stopped; resume=auto goes on from {path} (epoch {epoch}, {updates} updates made)"
