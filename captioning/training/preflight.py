"""Checks before a run starts: settings, parts, data and disk space."""

from __future__ import annotations

import logging
import os
import shutil
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.utilities.exceptions import (
    MisconfigurationException,  # pyright: ignore[reportPrivateImportUsage]
)

from captioning.config.build import build_part
from captioning.config.check.check import check_config
from captioning.config.check.rules import nearest
from captioning.config.plugins import locate
from captioning.config.setting_error import SettingError
from captioning.decoding.search import AbstractSearch
from captioning.interfaces import AbstractStepper
from captioning.metrics.coco import scores_of
from captioning.metrics.evaluation import AbstractMetric
from captioning.metrics.java import JavaError, find_java
from captioning.training.loggers import need
from captioning.training.rosters import check_data
from captioning.training.settings import Features, Part, TrainSettings
from captioning.training.speed import can_fuse, uses_cuda
from captioning.training.start import check_start
from captioning.training.trainer import check_trainer, ignore_srun_advice

log = logging.getLogger(__name__)

NEEDS_JAVA = {"METEOR", "SPICE"}
# Groups of what models, curation, callbacks and Lightning log beside validation scores.
LOGGED = ("train/", "curation/", "speed/", "memory/", "lr-")
# What torch and Lightning raise where a setting makes no sense to them.
FOREIGN_ERRORS = (
    ValueError,
    TypeError,
    RuntimeError,
    OverflowError,
    AssertionError,
    KeyError,
    MisconfigurationException,
)
MIN_FREE_BYTES = 512 * 2**20


def check_run(settings: TrainSettings) -> None:
    """Raise an error for a run that is sure to fail on this machine.

    Raises:
        ValueError, OSError: see `check_settings`; or the machine lacks the devices.
    """
    check_settings(settings)
    if settings.optimizer.get("paged") and not uses_cuda(settings.accelerator):
        raise SettingError(
            "optimizer.paged",
            "got true, but this run trains on no CUDA GPU, which paging needs",
            "choose optimizer=adamw8bit, which has the same states",
        )
    _try("trainer", lambda: _build_trainer(settings.trainer))
    if NEEDS_JAVA & set(settings.metrics.test):
        try:
            find_java()
        except JavaError as error:
            log.warning(f"METEOR and SPICE will be missing: {error}")


def settings_of(config: DictConfig) -> TrainSettings:
    """Validate the config of a training on this machine and return its settings.

    Args:
        config: composed.

    Raises:
        ValueError: settings out of their ranges, see `captioning.config.check`.
    """
    config = settled(config)
    check_config(config, TrainSettings)
    return TrainSettings.of(config)


def settled(config: DictConfig) -> DictConfig:
    """Replace ``auto`` in the config of a training with values for this machine.

    ``trainer.precision`` becomes ``bf16-mixed`` where the device multiplies bfloat16 in hardware,
    else ``32-true``: a processor that has to emulate bfloat16 trains ten times slower with it than
    in full precision. ``optimizer.fused`` becomes true or is left out, see `can_fuse`.
    """
    if OmegaConf.select(config, "trainer.precision") == "auto":
        fast = fast_bfloat16(str(config.trainer.accelerator))
        chosen = {"trainer": {"precision": "bf16-mixed" if fast else "32-true"}}
        config = DictConfig(OmegaConf.merge(config, chosen))
    if OmegaConf.select(config, "optimizer.fused") == "auto":
        config = config.copy()
        if can_fuse(config.optimizer, config.trainer):
            config.optimizer.fused = True
        else:
            del config.optimizer.fused
    return config


def check_settings(settings: TrainSettings) -> None:
    """Raise an error for settings that would fail on any machine, such as one of a queue.

    Raises:
        ValueError: settings are incompatible.
        PermissionError: the run folder cannot be written.
        FileNotFoundError: the keep-list ``curation.keep`` does not exist.
        OSError: the disk has too little space for checkpoints.
    """
    _check_monitors(settings)
    check_start(settings.start_from, new_words=settings.new_words)
    _check_keep(settings.curation.keep)
    _check_pictures(settings.features)
    _check_search(settings)
    for name in {"wandb", "mlflow"} & set(settings.logger or {}):
        need(name, module=name)
    check_trainer(settings.trainer)
    _try_foreign_parts(settings)
    check_data(settings)
    _check_folder(Path(settings.run_dir))


def _check_keep(keep: str | None) -> None:
    """Raise an error if the keep-list is missing, before all features are computed."""
    if keep is not None and not Path(keep).is_file():
        raise FileNotFoundError(
            f"curation.keep={keep}: no such keep-list; save one from the page of captioning "
            "report, or set curation.keep=null"
        )


def _check_monitors(settings: TrainSettings) -> None:
    """Raise an error for a monitored score that is never logged and would end training early."""
    names = [f"val/{name}" for metric in settings.metrics.val for name in scores_of(metric)]
    names.append("val/distinct")
    validates = settings.trainer.get("limit_val_batches") != 0
    if settings.monitor != "last":
        _check_score("monitor", settings.monitor, ["last", *names], is_logged=validates)
    for name, callback in (settings.callbacks or {}).items():
        if (callback.get("patience") or 0) < 0:
            raise ValueError(
                f"callbacks.{name}.patience: must be a whole number of at least 0, got "
                f"{callback.patience}"
            )
        score = str(callback.get("monitor") or "")
        # Of what is logged beside validation scores, the groups alone are known before a run.
        of_plugin = bool(settings.plugins) and not score.startswith("val/")
        if score and not score.startswith(LOGGED) and not of_plugin:
            _check_score(f"callbacks.{name}.monitor", score, names, is_logged=validates)


def _check_score(key: str, score: str, known: Sequence[str], *, is_logged: bool) -> None:
    if score not in known:
        raise ValueError(
            f"{key}: must be one of {', '.join(known)} (by metrics.val), got {score}"
            f"{nearest(score, known)}"
        )
    if not is_logged:
        raise ValueError(
            f"{key}: {score} is never logged with trainer.limit_val_batches=0; leave one of the "
            "two out" + (", or set monitor=last" if key == "monitor" else "")
        )


def _check_pictures(chosen: Features) -> None:
    """Raise an error for features without a kind, a reader or imported features."""
    if not (chosen.imported or chosen.reader or chosen.kind):
        raise ValueError(
            "features.kind: must be grid or regions where features.reader is not set, got null"
        )


def _check_search(settings: TrainSettings) -> None:
    search = build_part(settings.search)
    model = locate(str(settings.model.module.get("_target_")))
    # What a function builds is checked once it is built.
    if isinstance(model, type) and issubclass(model, AbstractStepper):
        check_search(search, model)
    for name, part in (settings.extra_metrics or {}).items():
        metric = locate(str(part.get("_target_")))
        if isinstance(metric, type) and issubclass(metric, AbstractMetric):
            _check_number(str(name), metric.min_captions, search)


def _check_number(metric: str, least: int, search: AbstractSearch) -> None:
    if search.captions_per_image < least:
        raise ValueError(
            f"extra_metrics={metric} needs {least} captions or more of each image: this search "
            f"returns {search.captions_per_image}; raise search.num_captions, or choose "
            f"extra_metrics=[{metric}] in captioning evaluate run=RUN"
        )


def check_search(search: AbstractSearch, model: type[AbstractStepper]) -> None:
    """Raise an error for a search that a run's own validation and test cannot use.

    Raises:
        ValueError: the search needs constraints, or a part that the model lacks.
    """
    if search.needs_machines:
        raise ValueError(
            f"search: {type(search).__name__} needs words for each image, and validation and test "
            "of a training have none; train with search=beam_nocaps, then: captioning evaluate "
            "run=RUN search=constrained constraints=NAME"
        )
    search.check_model(model)


def _try_foreign_parts(settings: TrainSettings) -> None:
    """Build objects of torch and Lightning, as only their own code checks their arguments."""
    number = torch.nn.Parameter(torch.zeros(1))
    _try("optimizer", lambda: build_part(settings.optimizer)([number]))
    for name, callback in (settings.callbacks or {}).items():
        if str(callback.get("_target_")).startswith("pytorch_lightning."):
            _try(f"callbacks.{name}", partial(build_part, callback))


def _build_trainer(trainer: Part) -> None:
    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
    without = {"logger": False, "enable_checkpointing": False, "enable_model_summary": False}
    with warnings.catch_warnings():
        ignore_srun_advice()
        build_part(trainer, **without)


def _try(key: str, build: Callable[[], Any]) -> None:
    try:
        build()
    except FOREIGN_ERRORS as error:
        raise ValueError(f"{key}: {str(error).splitlines()[0]}") from error


def fast_bfloat16(accelerator: str) -> bool:
    """Whether the device of a Lightning ``accelerator`` multiplies bfloat16 in hardware."""
    if accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available():
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if accelerator not in ("auto", "cpu"):
        return False
    # Older versions of torch cannot tell.
    known = getattr(torch.cpu, "get_capabilities", dict)()
    return any(known.get(name) for name in ("avx512_bf16", "amx_bf16", "bf16"))


def _check_folder(folder: Path) -> None:
    parent = folder
    while not parent.exists():
        parent = parent.parent
    if not os.access(parent, os.W_OK | os.X_OK) or not parent.is_dir():
        raise PermissionError(
            f"run_dir={folder} cannot be written ({parent} is not writable); "
            "choose another run_dir= or set paths.runs="
        )
    free = shutil.disk_usage(parent).free
    if free < MIN_FREE_BYTES:
        raise OSError(
            f"only {free / 2**20:.0f} MiB are free where {folder} lies, a run needs "
            f"{MIN_FREE_BYTES / 2**20:.0f}; free space or choose another run_dir="
        )
