"""Training callbacks: caption metrics, per-step seeds, speed and memory logs, sample captions.

`Speed`, `Monitor` and `SampleCaptions` log rate, gradients, memory, speed and sample captions
beside the losses.
"""

from __future__ import annotations

import importlib
import logging
import resource
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
import torch.distributed as dist
from PIL import Image
from pytorch_lightning.callbacks import RichProgressBar
from pytorch_lightning.callbacks.early_stopping import EarlyStoppingReason
from pytorch_lightning.loggers import MLFlowLogger, TensorBoardLogger, WandbLogger
from pytorch_lightning.utilities.seed import isolate_rng
from torch.optim import Optimizer

from captioning.data.roster import Roster
from captioning.metrics.bootstrap import Bootstrap
from captioning.metrics.coco import MetricResult
from captioning.metrics.evaluation import AbstractMetric, evaluate_all, with_further
from captioning.results.coco_results import write_captions
from captioning.results.run_folder import UNSCORED
from captioning.runtime.files import read_json, write_json
from captioning.runtime.sharing import by_first
from captioning.training.loggers import CsvLogger
from captioning.types import Prediction
from captioning.vision.photo_places import photo_exists
from captioning.vision.photos import load_rgb

log = logging.getLogger(__name__)

# Captions have collapsed where fewer than this share of them differ; fewer images say nothing.
MIN_IMAGES, MIN_DISTINCT_SHARE = 20, 0.05
LOSS = "train/loss"
START_NAME = "start.json"  # scores of what a run begins with
MIB = 2**20
THUMBNAIL = 256  # pixels of the longer side


class ProgressBar(RichProgressBar):
    """Lightning's progress bar with loss and score, without ``v_num``, the name of the log folder.

    During training the values are updated every ``trainer.log_every_n_steps`` steps, as reading
    them waits for the device.

    Args:
        transient: erase the bar when training or the test ends.
        **settings: arguments of Lightning's bar.
    """

    def __init__(self, *, transient: bool = False, **settings: Any) -> None:
        super().__init__(**settings)
        self._transient = transient
        self._shown: dict[str, int | str | float | dict[str, float]] = {}

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Start the progress bar of training."""
        super().on_train_start(trainer, pl_module)
        self._erase_at_end()

    def on_test_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Start the progress bar of the test."""
        super().on_test_start(trainer, pl_module)
        self._erase_at_end()

    def _erase_at_end(self) -> None:
        if self.progress is not None and self._transient:
            self.progress.live.transient = True

    def get_metrics(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule
    ) -> dict[str, int | str | float | dict[str, float]]:
        """Values shown beside the progress bar."""
        if not _is_between_logs(trainer):
            shown = super().get_metrics(trainer, pl_module)
            shown |= {n: v.item() for n, v in trainer.callback_metrics.items() if n == LOSS}
            self._shown = {name: value for name, value in shown.items() if name != "v_num"}
        return self._shown


def _is_between_logs(trainer: pl.Trainer) -> bool:
    """Whether a training step is running whose values are not logged."""
    progress = trainer.fit_loop.epoch_loop.batch_progress
    if not trainer.training or progress.is_last_batch:
        return False
    every: Any = getattr(trainer, "log_every_n_steps", 1)  # Lightning declares no such attribute
    return progress.current.ready % max(1, every) != 0


class StepSeed(pl.Callback):
    """Seed torch's global generator (source of dropout) at each batch from seed, epoch and batch.

    A resumed run then draws the same numbers as one that was never stopped. The seed is set at
    every batch, as Lightning skips ``on_train_epoch_start`` in the first epoch after resuming.

    All processes draw the same numbers, from which `captioning.runtime.sample_dropout` makes masks
    by sample. Only random draws on GPUs differ.

    Args:
        seed: the run's seed.
    """

    def __init__(self, *, seed: int) -> None:
        self.seed = seed

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Seed the step."""
        parts = (self.seed, trainer.current_epoch, batch_idx)
        torch.manual_seed(_seed_of((*parts, 0)))
        if trainer.global_rank and torch.cuda.is_available():
            torch.cuda.manual_seed(_seed_of((*parts, trainer.global_rank)))


def _seed_of(parts: tuple[int, ...]) -> int:
    return int(np.random.SeedSequence(parts).generate_state(1)[0])


class StayStopped(pl.Callback):
    """End a resumed run at once if early stopping had already ended it.

    Lightning restores an `EarlyStopping` callback, but first trains another epoch.
    """

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Stop training if a restored callback had stopped it before."""
        reasons = [callback.stopping_reason for callback in trainer.early_stopping_callbacks]
        if any(reason != EarlyStoppingReason.NOT_STOPPED for reason in reasons):
            trainer.should_stop = True


class GradientNorm(pl.Callback):
    """Log ``train/gradient_norm``, the Euclidean norm of all gradients before clipping."""

    def on_before_optimizer_step(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, optimizer: Optimizer
    ) -> None:
        """Log the gradient norm of the coming update."""
        gradients = [p.grad for p in pl_module.parameters() if p.grad is not None]
        pl_module.log("train/gradient_norm", torch.nn.utils.get_total_norm(gradients))


class CaptionEvaluation(pl.Callback):
    """Compute metrics of the captions generated in validation and test.

    Validation uses the metrics and tokenizer that need no Java, and logs ``val/CIDEr-D`` and the
    like, and ``val/distinct``, the share of different captions; it warns where all images get the
    same few captions. The test uses all of ``metrics``. The run folder gets ``history.json`` after
    every epoch. After the test it gets ``predictions.json`` (COCO results format),
    ``references.json`` (COCO's captions with the same ids), ``metrics.json``, and
    ``candidates.json`` where the search gives several captions of an image. Captions and standard
    scores are written before the further metrics, whose errors end the run.

    Args:
        folder: the run's folder.
        metrics: names for the test, see `captioning.metrics.coco.evaluate_captions`.
        val_metrics: names for validation.
        tokenizer: tokenizer of the test's metrics, ``"ptb"`` or ``"python"``.
        extra: further metrics of the test by name, see `captioning.metrics.extra`.
        decoding: settings of the search, kept beside the test's scores.
        num_shown: number of sample captions that ``history.json`` holds of every epoch.
        plugins: packages of the user's own that the run names, for the advice after an error.
    """

    def __init__(
        self,
        *,
        folder: Path,
        metrics: Sequence[str],
        val_metrics: Sequence[str] = ("BLEU", "CIDEr-D"),
        tokenizer: str = "ptb",
        extra: Mapping[str, AbstractMetric] | None = None,
        decoding: Mapping[str, Any] | None = None,
        num_shown: int = 8,
        plugins: Sequence[str] = (),
    ) -> None:
        self.folder = Path(folder)
        self.val_metrics = tuple(val_metrics)
        self._test_options = {
            "metrics": list(metrics),
            "tokenizer": tokenizer,
            "decoding": decoding,
            "bootstrap": Bootstrap(),
        }
        self._extra = dict(extra or {})
        self.num_shown = num_shown
        self._plugins = tuple(plugins)
        self.history: list[dict[str, Any]] = []
        self.result: MetricResult | None = None
        self._groups: list[list[Prediction]] = []  # an image's captions, the best first

    def state_dict(self) -> dict[str, Any]:
        """Scores of the epochs so far, as plain values for the checkpoint."""
        return {"history": self.history}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the scores of earlier epochs from a checkpoint."""
        self.history = list(state_dict["history"])

    def on_validation_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Clear the captions of the last validation."""
        self._groups = []

    on_test_epoch_start = on_validation_epoch_start

    def on_validation_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Collect the batch's captions."""
        self._groups.extend([prediction] for prediction in outputs)

    def on_test_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Collect all captions generated for the batch's images."""
        self._groups.extend(outputs)

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Compute and log the metrics of the validation captions."""
        if trainer.sanity_checking:
            return
        predictions = [group[0] for group in gathered(self._groups)]
        if not predictions:
            return
        datamodule: Any = getattr(trainer, "datamodule", None)
        result = score(predictions, datamodule.val, metrics=self.val_metrics, tokenizer="python")
        for name, value in result.corpus.items():
            pl_module.log(f"val/{name}", value, prog_bar=name == "CIDEr-D")
        pl_module.log("val/distinct", distinct_share(predictions, epoch=trainer.current_epoch))
        shown = {p.image_id: p.caption for p in predictions[: self.num_shown]}
        entry = {"epoch": trainer.current_epoch, "step": trainer.global_step, **result.corpus}
        self.history = [*self.history, {**entry, "samples": shown}]
        if trainer.is_global_zero:
            write_json(self.folder / "history.json", self.history)

    def on_test_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Compute the metrics of the test captions and write the run's results."""
        groups = gathered(self._groups)
        datamodule: Any = getattr(trainer, "datamodule", None)
        # One process: METEOR and SPICE are programs of gigabytes, which a machine would start for
        # each of its GPUs.
        result = by_first(partial(self._tested, groups, datamodule.test))
        pl_module.log_dict({f"test/{name}": value for name, value in result.corpus.items()})
        self.result = result

    def _tested(self, groups: Sequence[Sequence[Prediction]], roster: Roster) -> MetricResult:
        """Score the test captions; write captions and scores as soon as each is computed."""
        write_captions(self.folder, groups, roster.samples)
        captions = {group[0].image_id: [p.caption for p in group] for group in groups}
        result = evaluate_all(captions, roster, **self._test_options)
        write_scores(self.folder, result, self.history, unscored=list(self._extra))
        options = {"extra": self._extra, "bootstrap": self._test_options["bootstrap"]}
        try:
            result = with_further(result, captions, roster, **options)
        except Exception:
            named = f" plugins=[{','.join(self._plugins)}]" if self._plugins else ""
            log.warning(
                f"{self.folder} keeps the captions and the standard scores; compute further "
                f"metrics with: captioning evaluate run={self.folder} "
                f"extra_metrics=[{','.join(self._extra)}]{named}"
            )
            raise
        if self._extra:
            write_scores(self.folder, result, self.history)
        return result


def gathered(groups: Sequence[Sequence[Prediction]]) -> list[list[Prediction]]:
    """Gather the captions of all processes by image id, one group per image."""
    parts: list[Any] = [groups]
    if dist.is_available() and dist.is_initialized():
        parts = [None] * dist.get_world_size()
        dist.all_gather_object(parts, groups)
    by_image = {group[0].image_id: list(group) for part in parts for group in part}
    return [by_image[image_id] for image_id in sorted(by_image)]


def distinct_share(predictions: Sequence[Prediction], *, epoch: int) -> float:
    """Number of different captions per image, in (0, 1]; warn of a collapse if it is low."""
    captions = [prediction.caption for prediction in predictions]
    number = len(set(captions))
    share = number / len(captions)
    if len(captions) >= MIN_IMAGES and share < MIN_DISTINCT_SHARE:
        log.warning(
            f"COLLAPSED? epoch {epoch}: {len(captions)} validation images got {number} different "
            f"captions, such as {captions[0]!r}. In a first epoch this may pass; if it persists, "
            f"the "
            "captioner does not look at the images: try another optimizer.lr, and check features="
        )
    return share


def score(predictions: Sequence[Prediction], roster: Roster, **options: Any) -> MetricResult:
    """Compute metrics of the predictions against the references of exactly these images."""
    return evaluate_all({p.image_id: [p.caption] for p in predictions}, roster, **options)


def write_scores(
    folder: Path,
    result: MetricResult,
    history: Sequence[dict[str, Any]] = (),
    *,
    unscored: Sequence[str] = (),
) -> None:
    """Write the test scores to ``metrics.json``; keep the scores of other splits.

    Args:
        folder: the run's folder.
        result: the scores.
        history: history of validation.
        unscored: further metrics still to be computed; the run is unfinished until then.
    """
    path = folder / "metrics.json"
    content = read_json(path, dict) if path.is_file() else {}
    content["test"] = result.to_dict()
    content.pop(UNSCORED, None)
    if history:
        content["val_history"] = [
            {name: value for name, value in entry.items() if name != "samples"} for entry in history
        ]
    if unscored:
        content[UNSCORED] = list(unscored)
    write_json(path, content)


class StartScore(pl.Callback):
    """Compute validation metrics of the initial model, before the first epoch.

    It runs if the initial weights come from ``start_from`` or a pretrained captioner. The scores
    are logged as ``start/CIDEr-D`` and the like, and written to ``start.json``, which a resumed run
    reads. It does not change the training: other callbacks are not called, and random state and
    modules' modes are restored.

    Args:
        folder: the run's folder.
        name: the value of ``start_from``; None: the model knows whether it was pretrained.
        metrics: names, see `captioning.metrics.coco.evaluate_captions`.
    """

    def __init__(self, *, folder: Path, name: str | None, metrics: Sequence[str]) -> None:
        self.path = Path(folder) / START_NAME
        self._name, self._metrics = name, tuple(metrics)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Compute, log and write the scores, unless the run resumes from a checkpoint."""
        name = self._name or getattr(pl_module, "begins_with", "")
        if not name or trainer.global_step or trainer.current_epoch or not _validates(trainer):
            return
        entry = by_first(self._kept)
        if entry is None:
            with isolate_rng(), _as_in_validation(pl_module):
                entry = self._scored(trainer, pl_module, name)
        scores = {f"start/{metric}": value for metric, value in entry["scores"].items()}
        for logger in trainer.loggers:
            logger.log_metrics(scores, 0)
        if trainer.is_global_zero:
            write_json(self.path, entry)
            told = ", ".join(f"{metric} {value:.4f}" for metric, value in entry["scores"].items())
            log.info(f"before training, {entry['num_images']} validation images ({name}): {told}")

    def _kept(self) -> dict[str, Any] | None:
        return read_json(self.path, dict) if self.path.is_file() else None

    def _scored(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, name: str
    ) -> dict[str, Any]:
        datamodule: Any = getattr(trainer, "datamodule", None)
        loader, groups = datamodule.val_dataloader(), []
        for number, batch in enumerate(islice(loader, _num_validated(trainer, len(loader)))):
            outputs: Any = trainer.strategy.validation_step(batch.to(pl_module.device), number)
            groups.extend([prediction] for prediction in outputs)
        predictions = [group[0] for group in gathered(groups)]
        result = score(predictions, datamodule.val, metrics=self._metrics, tokenizer="python")
        return {"begins_with": name, "num_images": len(predictions), "scores": result.corpus}


def _validates(trainer: pl.Trainer) -> bool:
    return bool(getattr(trainer, "limit_val_batches", 1.0))


def _num_validated(trainer: pl.Trainer, batches: int) -> int:
    """Number of validation batches, which Lightning limits by a number or a fraction."""
    limit: Any = getattr(trainer, "limit_val_batches", 1.0)
    return min(batches, limit) if isinstance(limit, int) else max(1, int(batches * limit))


@contextmanager
def _as_in_validation(module: torch.nn.Module) -> Iterator[None]:
    """Run without gradients in evaluation mode; restore each module's mode afterwards."""
    modes = {part: part.training for part in module.modules()}
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part, mode in modes.items():
            part.training = mode


class Speed(pl.Callback):
    """Record seconds, captions per second and number of updates of every training epoch.

    The seconds exclude validation. They are written to ``timing.json``, not ``metrics.json``, as
    times differ between runs.

    Args:
        folder: the run's folder.
    """

    def __init__(self, *, folder: Path) -> None:
        self.path = Path(folder) / "timing.json"
        self.epochs: list[dict[str, float]] = []
        self._seconds, self._captions, self._started = 0.0, 0, 0.0

    def state_dict(self) -> dict[str, Any]:
        """Times of the finished epochs and of the current one."""
        return {"epochs": self.epochs, "seconds": self._seconds, "captions": self._captions}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the times of earlier epochs from a checkpoint."""
        self.epochs = list(state_dict["epochs"])
        self._seconds = float(state_dict.get("seconds", 0.0))
        self._captions = int(state_dict.get("captions", 0))

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Set the clock of a resumed epoch to the seconds already spent."""
        self._started = time.perf_counter() - self._seconds

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Start the clock at the epoch's first batch."""
        if batch_idx == 0:
            self._started, self._captions = time.perf_counter(), 0

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Count captions; stop the clock at the last batch, before validation begins."""
        self._captions += 0 if batch.filler else len(batch)
        self._seconds = time.perf_counter() - self._started

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Write the epoch's training speed."""
        captions = torch.tensor(float(self._captions), device=pl_module.device)
        captions = float(trainer.strategy.reduce(captions, reduce_op="sum"))
        rate = captions / max(self._seconds, 1e-9)
        epoch = {"seconds": self._seconds, "captions_per_second": rate}
        self.epochs = [*self.epochs, epoch | {"updates": trainer.global_step}]
        pl_module.log("speed/captions_per_second", rate)
        if trainer.is_global_zero:
            write_json(self.path, {"epochs": self.epochs})


class Monitor(pl.Callback):
    """Log rate, gradient norm, speed and memory every ``trainer.log_every_n_steps`` updates.

    ``train/learning_rate``; ``train/gradient_norm`` before clipping; ``speed/interval``, captions
    a second of all processes since the last time, validation left out; ``memory/process_mib`` in
    use now, and ``memory/gpu_peak_mib`` since the start.
    """

    def __init__(self) -> None:
        self._captions, self._started = 0, 0.0
        self._logged_step = -1

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Continue the curve files from the checkpoint."""
        for logger in trainer.loggers:
            if isinstance(logger, CsvLogger):
                logger.begin(trainer.global_step)
        self._logged_step = trainer.global_step
        self._started = time.perf_counter()  # for a resumed epoch

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Start the clock at an epoch's first batch."""
        if batch_idx == 0:
            self._captions, self._started = 0, time.perf_counter()

    def on_before_optimizer_step(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, optimizer: Optimizer
    ) -> None:
        """Log the learning rate and the gradient norm of the coming update."""
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
        """Log training speed and memory."""
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
    """Memory in MiB by name, read without waiting for the device."""
    used = {"process_mib": process_bytes() / MIB}
    if device.type == "cuda":
        used["gpu_peak_mib"] = torch.cuda.max_memory_allocated(device) / MIB
    return used


def process_bytes() -> int:
    """Bytes of memory in use by this process; its peak where the system does not report usage."""
    path = Path("/proc/self/statm")
    if path.is_file():
        return int(path.read_text().split()[1]) * resource.getpagesize()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


class SampleCaptions(pl.Callback):
    """Log the first validation captions beside their references after every epoch.

    TensorBoard gets a table, and the photos once; wandb a table with photos; MLflow a page. The CSV
    logger gets no samples, as ``history.json`` holds them.

    Args:
        evaluation: the run's evaluation, which scores before this callback is called.
    """

    def __init__(self, *, evaluation: CaptionEvaluation) -> None:
        self.evaluation = evaluation
        self._photos_shown = False

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Log the sample captions of the epoch that was just scored."""
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
    """Format rows as a Markdown table, with special characters of captions escaped."""
    cells = [[_escaped(cell) for cell in row] for row in rows]
    lines = ["| image | caption | reference |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in cells)])


def _escaped(text: str) -> str:
    text = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;")
    for mark in "\\`*_[]|!":
        text = text.replace(mark, f"\\{mark}")
    return text


def thumbnails(samples: Mapping[str, str], roster: Roster) -> dict[str, Image.Image]:
    """Small versions of the photos that exist, by image id."""
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
