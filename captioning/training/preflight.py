"""What a run needs is checked before it starts."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

from omegaconf import DictConfig

from captioning.metrics.java import JavaError, find_java

log = logging.getLogger(__name__)

NEEDS_JAVA = {"METEOR", "SPICE"}
MIN_FREE_BYTES = 512 * 2**20


def check_run(config: DictConfig) -> None:
    """Refuse a run that could not end well.

    Raises:
        ValueError: a setting out of its range.
        PermissionError: the run folder cannot be written.
        OSError: too little space for checkpoints.
    """
    if config.num_epochs < 1:
        raise ValueError(f"num_epochs must be at least 1: got {config.num_epochs}")
    if config.ema_decay is not None and not 0 < config.ema_decay < 1:
        raise ValueError(f"ema_decay must lie between 0 and 1, or be null: got {config.ema_decay}")
    if config.limit_images is not None and config.limit_images < 1:
        raise ValueError(f"limit_images must be at least 1, or null: got {config.limit_images}")
    _check_folder(Path(config.run_dir))
    if NEEDS_JAVA & set(config.metrics.test):
        try:
            find_java()
        except JavaError as error:
            log.warning(f"METEOR and SPICE will be missing: {error}")


def _check_folder(folder: Path) -> None:
    parent = folder
    while not parent.exists():
        parent = parent.parent
    if not os.access(parent, os.W_OK | os.X_OK) or not parent.is_dir():
        raise PermissionError(
            f"run_dir={folder} cannot be written ({parent} is not ours to write); "
            "choose another run_dir= or set paths.runs="
        )
    free = shutil.disk_usage(parent).free
    if free < MIN_FREE_BYTES:
        raise OSError(
            f"only {free / 2**20:.0f} MiB are free where {folder} lies, a run wants "
            f"{MIN_FREE_BYTES / 2**20:.0f}; free space or choose another run_dir="
        )
