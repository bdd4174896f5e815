"""What a run needs is checked before it starts."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

import torch
from omegaconf import DictConfig, OmegaConf

from captioning.metrics.java import JavaError, find_java
from captioning.training.rosters import check_data

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
    if not isinstance(config.num_epochs, int) or config.num_epochs < 1:
        raise ValueError(
            f"num_epochs must be a whole number of at least 1: got {config.num_epochs!r}"
        )
    if config.ema_decay is not None and not 0 < config.ema_decay < 1:
        raise ValueError(f"ema_decay must lie between 0 and 1, or be null: got {config.ema_decay}")
    check_data(config)
    _check_folder(Path(config.run_dir))
    if NEEDS_JAVA & set(config.metrics.test):
        try:
            find_java()
        except JavaError as error:
            log.warning(f"METEOR and SPICE will be missing: {error}")


def with_precision(config: DictConfig) -> DictConfig:
    """The config with ``trainer.precision=auto`` replaced by what suits this machine.

    ``bf16-mixed`` where the device multiplies bfloat16 in hardware, else ``32-true``: a processor
    that has to emulate bfloat16 trains ten times slower with it than in full precision.
    """
    if config.trainer.precision != "auto":
        return config
    fast = fast_bfloat16(str(config.trainer.accelerator))
    chosen = {"trainer": {"precision": "bf16-mixed" if fast else "32-true"}}
    return DictConfig(OmegaConf.merge(config, chosen))


def fast_bfloat16(accelerator: str) -> bool:
    """Whether the device of a Lightning ``accelerator`` has instructions for bfloat16 products."""
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
            f"run_dir={folder} cannot be written ({parent} is not ours to write); "
            "choose another run_dir= or set paths.runs="
        )
    free = shutil.disk_usage(parent).free
    if free < MIN_FREE_BYTES:
        raise OSError(
            f"only {free / 2**20:.0f} MiB are free where {folder} lies, a run wants "
            f"{MIN_FREE_BYTES / 2**20:.0f}; free space or choose another run_dir="
        )
