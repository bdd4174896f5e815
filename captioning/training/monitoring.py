"""What every run logs beside its losses: rate, gradients, memory, speed, and sample captions."""

from __future__ import annotations

import importlib
import resource
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
import torch.distributed as dist
from PIL import Image
from pytorch_lightning.loggers import MLFlowLogger, TensorBoardLogger, WandbLogger
from torch.optim import Optimizer

from captioning.data.roster import Roster
from captioning.training.callbacks import CaptionEvaluation
from captioning.training.loggers import CsvLogger
from captioning.vision.photo_places import photo_exists
from captioning.vision.photos import load_rgb

MIB = 2**20
THUMBNAIL = 256  # pixels of the longer side


class Monitor(pl.Callback):
    """Logs every ``trainer.log_every_n_steps`` updates, and looks at no tensor between.

    ``train/learning_rate``; ``train/gradient_norm`` before clipping; ``speed/interval``, captions
    a second of all processes since the last time, validation left out; ``memory/process_mib`` in
    use now, and ``memory/gpu_peak_mib`` since the start.
    """

    def __init__(self) -> None:
        self._captions, self._started = 0, 0.0
        self._logged_step = -1

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Let files of curves go on from the checkpoint."""
        for logger in trainer.loggers:
            if isinstance(logger, CsvLogger):
                logger.begin(trainer.global_step)
        self._logged_step = trainer.global_step
        self._started = time.perf_counter()  # for an epoch that goes on

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Start the clock with an epoch's first batch."""
        if batch_idx == 0:
            self._captions, self._started = 0, time.perf_counter()

    def on_before_optimizer_step(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, optimizer: Optimizer
    ) -> None:
        """Log the rate and the gradient's norm of the update that is about to be made."""
        if not _is_due(trainer, trainer.global_step + 1):
            return
        pl_module.log("train/learning_rate", float(optimizer.param_groups[0]["lr"]))
        gradients = [p.grad for p in pl_module.parameters() if p.grad is not None]
        if gradients:
            pl_module.log("train/gradient_norm", torch.nn.utils.get_total_norm(gradients))

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Log speed and memory."""
        self._captions += 0 if batch.filler else len(batch)
        step = trainer.global_step
        if step == self._logged_step or not _is_due(trainer, step):
            return
        self._logged_step, now = step, time.perf_counter()
        captions = torch.full((), float(self._captions), device=pl_module.device)
        if trainer.world_size > 1:  # shares of a batch differ by a caption
            dist.all_reduce(captions)
        pl_module.log("speed/interval", captions / max(now - self._started, 1e-9))
        self._captions, self._started = 0, now
        for name, value in memory(pl_module.device).items():
            pl_module.log(f"memory/{name}", value)


def _is_due(trainer: pl.Trainer, step: int) -> bool:
    every = int(getattr(trainer, "log_every_n_steps", 0))
    return bool(trainer.loggers) and every > 0 and step % every == 0


def memory(device: torch.device) -> dict[str, float]:
    """Memory in MiB by name; asks the device nothing that it would wait for."""
    used = {"process_mib": process_bytes() / MIB}
    if device.type == "cuda":
        used["gpu_peak_mib"] = torch.cuda.max_memory_allocated(device) / MIB
    return used


def process_bytes() -> int:
    """Memory that this process has in use; where the system does not tell it, its peak."""
    path = Path("/proc/self/statm")
    if path.is_file():
        return int(path.read_text().split()[1]) * resource.getpagesize()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


class SampleCaptions(pl.Callback):
    """Shows the first validation captions beside their references after every epoch.

    TensorBoard gets a table, and the photos once; wandb a table with photos; MLflow a page. The
    CSV has none: ``history.json`` holds them.

    Args:
        evaluation: of the run; scores before this callback is called.
    """

    def __init__(self, *, evaluation: CaptionEvaluation) -> None:
        self.evaluation = evaluation
        self._photos_shown = False

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Log the samples of the epoch that was just scored."""
        history = self.evaluation.history
        if trainer.sanity_checking or not trainer.is_global_zero or not history:
            return
        roster: Roster = getattr(trainer, "datamodule").val  # noqa: B009
        samples, step = history[-1]["samples"], max(0, trainer.global_step - 1)
        rows = sample_rows(samples, roster)
        for logger in trainer.loggers:
            if isinstance(logger, TensorBoardLogger):
                logger.experiment.add_text("val/captions", markdown(rows), step)
                if not self._photos_shown:
                    _show_photos(logger, thumbnails(samples, roster), step)
            elif isinstance(logger, WandbLogger):
                _log_wandb(logger, rows, thumbnails(samples, roster))
            elif isinstance(logger, MLFlowLogger):
                page = f"captions/epoch_{trainer.current_epoch:03d}.md"
                logger.experiment.log_text(str(logger.run_id), markdown(rows), page)
        self._photos_shown = True


def sample_rows(samples: Mapping[str, str], roster: Roster) -> list[tuple[str, str, str]]:
    """Image id, caption and first reference of each sample."""
    return [
        (image_id, caption, roster.samples[roster.rows_by_image[image_id][0]].caption)
        for image_id, caption in samples.items()
    ]


def markdown(rows: Sequence[tuple[str, str, str]]) -> str:
    """A table; what captions hold is shown, not interpreted."""
    cells = [[_escaped(cell) for cell in row] for row in rows]
    lines = ["| image | caption | reference |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in cells)])


def _escaped(text: str) -> str:
    text = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;")
    for mark in "\\`*_[]|!":
        text = text.replace(mark, f"\\{mark}")
    return text


def thumbnails(samples: Mapping[str, str], roster: Roster) -> dict[str, Image.Image]:
    """Small photos by image id; those that are there."""
    small: dict[str, Image.Image] = {}
    for image_id in samples:
        path = roster.samples[roster.rows_by_image[image_id][0]].image_path
        if photo_exists(path):
            small[image_id] = load_rgb(path)
            small[image_id].thumbnail((THUMBNAIL, THUMBNAIL))
    return small


def _show_photos(logger: TensorBoardLogger, photos: Mapping[str, Image.Image], step: int) -> None:
    for image_id, photo in photos.items():
        pixels = np.asarray(photo)
        logger.experiment.add_image(f"val/{image_id}", pixels, step, dataformats="HWC")


def _log_wandb(
    logger: WandbLogger,
    rows: Sequence[tuple[str, str, str]],
    photos: Mapping[str, Image.Image],
) -> None:
    wandb: Any = importlib.import_module("wandb")
    data = [
        [row[0], photo and wandb.Image(photo), *row[1:]]
        for row in rows
        for photo in [photos.get(row[0])]
    ]
    logger.log_table("val/captions", columns=["image", "photo", "caption", "reference"], data=data)
