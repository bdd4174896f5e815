"""The checkpoints of a run folder: which of them is the latest, and whether they are intact."""

from __future__ import annotations

import pickle
import zipfile
import zlib
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

LAST = "last.ckpt"
PREEMPTED = "preempted.ckpt"


def latest_checkpoint(folder: Path) -> Path | None:
    """The checkpoint that a run goes on from: of an epoch's end, or of its midst.

    What they hold decides, not when they were written.

    Args:
        folder: of checkpoints.

    Raises:
        ValueError: one of them is damaged; names others.
    """
    paths = [path for path in (folder / LAST, folder / PREEMPTED) if path.is_file()]
    return max(paths, key=progress, default=None)


def progress(path: Path) -> tuple[int, int]:
    """Epoch and number of updates of a checkpoint.

    Raises:
        ValueError: the file is damaged or no checkpoint; names others of its folder.
    """
    content = _content(path)
    return int(content["epoch"]), int(content["global_step"])


def config_of(path: Path) -> DictConfig | None:
    """The config of the run that wrote a checkpoint; None for one of an older version.

    Raises:
        ValueError: the file is damaged or no checkpoint; names others of its folder.
    """
    text = _content(path).get("config")
    config = OmegaConf.create(str(text)) if text else None
    return config if isinstance(config, DictConfig) else None


def _content(path: Path) -> dict[str, Any]:
    try:
        # mapped: of the weights nothing is read
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        return {"epoch": content["epoch"], "global_step": content["global_step"], **content}
    except (pickle.UnpicklingError, RuntimeError, EOFError, KeyError, TypeError) as error:
        raise damaged(path, str(error).partition("\n")[0]) from error


def check_intact(path: Path) -> None:
    """Read a checkpoint against the sums that are in it; a GiB takes about a second.

    Raises:
        ValueError: a part of it has changed; names other checkpoints.
    """
    try:
        with zipfile.ZipFile(path) as parts:
            broken = parts.testzip()
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError) as error:
        raise damaged(path, str(error)) from error
    if broken is not None:
        raise damaged(path, f"its part {broken} does not match its sum")


def damaged(path: Path, problem: str) -> ValueError:
    """The error of a checkpoint that cannot be used, with what can be."""
    others = [other for other in sorted(path.parent.glob("*.ckpt")) if _is_usable(other, path)]
    remedy = "resume=never trains anew"
    if others:
        best = max(others, key=progress)
        remedy = f"resume={best} goes on from epoch {progress(best)[0]}"
    return ValueError(f"{path} is damaged ({problem}): {remedy}")


def _is_usable(path: Path, other: Path) -> bool:
    if path == other or path.name.startswith("."):
        return False
    try:
        with zipfile.ZipFile(path) as parts:
            return parts.testzip() is None and "epoch" in torch.load(
                path, map_location="cpu", weights_only=True, mmap=True
            )
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, RuntimeError):
        return False
    except pickle.UnpicklingError:
        return False
