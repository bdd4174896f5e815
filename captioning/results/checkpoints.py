"""Find the latest checkpoint of a run folder, and check that checkpoints are intact."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch
import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from torch import Tensor

LAST = "last.ckpt"
PREEMPTED = "preempted.ckpt"
# Where a checkpoint has weights: those of the model, and beside averaged ones those in training.
WEIGHTS = ("state_dict", "current_model_state")


def latest_checkpoint(folder: Path) -> Path | None:
    """Checkpoint that a run resumes from, written at an epoch's end or within an epoch.

    The latest by content is chosen, not by file time.

    Args:
        folder: folder of checkpoints.

    Raises:
        ValueError: a checkpoint is damaged; the message names others.
    """
    paths = [path for path in (folder / LAST, folder / PREEMPTED) if path.is_file()]
    return max(paths, key=progress, default=None)


def progress(path: Path) -> tuple[int, int]:
    """Epoch and number of updates of a checkpoint.

    Raises:
        ValueError: the file is damaged or no checkpoint; the message names others.
    """
    content = _content(path)
    return content["epoch"], content["global_step"]


def config_of(path: Path) -> DictConfig | None:
    """Config of the run that wrote a checkpoint; None for a checkpoint of an older version.

    Raises:
        ValueError: the file is damaged or no checkpoint; the message names others.
    """
    text = _content(path).get("config")
    try:
        config = OmegaConf.create(text) if isinstance(text, str) and text else None
    # OmegaConf asserts that text holds settings.
    except (yaml.YAMLError, OmegaConfBaseException, ValueError, AssertionError) as error:
        raise _damaged(path, "its config cannot be read") from error
    return config if isinstance(config, DictConfig) else None


def check_intact(path: Path) -> None:
    """Verify the checksums of a checkpoint; a GiB takes about a second.

    Raises:
        ValueError: a part has changed, the file is no checkpoint, or weights are not finite; the
            message names other checkpoints.
    """
    if problem := _problem(path):
        raise _damaged(path, problem)


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Load a finished run's checkpoint onto the CPU and verify its checksums.

    Only plain values and tensors are loaded.

    Raises:
        ValueError: the file is damaged, not finite, no checkpoint of this framework, or holds
            objects that could run code.
    """
    problem = _problem(path)
    if not problem and not _is_captioner(_mapped(path).get("captioner")):
        problem = "it holds no captioner of this framework"
    if problem:
        last = path.with_name(LAST)
        remedy = "restore it from a copy, or train again with resume=never"
        if path != last and last.is_file() and not _problem(last):
            remedy = f"restore it, or move it away: then {last} (epoch {progress(last)[0]}) is used"
        raise ValueError(f"{path} is damaged ({problem}): {remedy}")
    return torch.load(path, map_location="cpu", weights_only=True)


def check_sums(path: Path) -> None:
    """Verify the checksums in a file of `torch.save`.

    Raises:
        OSError: the file cannot be opened.
        ValueError: a part does not match its checksum, or the list of parts is damaged.
    """
    with path.open("rb") as file:
        try:
            with zipfile.ZipFile(file) as parts:
                broken = parts.testzip()
        except Exception as error:  # a damaged list of parts leads to a dozen types
            raise ValueError(str(error) or type(error).__name__) from error
    if broken is not None:
        raise ValueError(f"its part {broken} does not match its checksum")


def _problem(path: Path) -> str:
    """Problem of a checkpoint that makes it unusable, or an empty text."""
    try:
        check_sums(path)
        content = _mapped(path)
    except ValueError as error:
        return str(error)
    weights = ((name, value) for key in WEIGHTS for name, value in content.get(key, {}).items())
    bad = (name for name, value in weights if isinstance(value, Tensor) and not _is_finite(value))
    name = next(bad, None)
    return "" if name is None else f"its weight {name} holds NaN or infinity"


def _is_finite(tensor: Tensor) -> bool:
    """Whether a weight is finite; minus infinity is allowed, as in masks."""
    is_number = not tensor.is_floating_point() or not tensor.numel()
    return is_number or bool(tensor.max() < torch.inf)


def _mapped(path: Path) -> dict[str, Any]:
    """Memory-mapped content of a checkpoint, whose weights are only read when used.

    Raises:
        ValueError: the checkpoint cannot be used; the message says why.
    """
    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except pickle.UnpicklingError as error:
        raise ValueError("it holds objects other than plain values and tensors") from error
    except Exception as error:  # torch raises a dozen types for files that are not its own
        raise ValueError(str(error).partition("\n")[0]) from error
    if not isinstance(content, dict):
        raise ValueError(f"it holds a {type(content).__name__}, not the state of a run")
    for key, kind in {"epoch": int, "global_step": int, "state_dict": dict}.items():
        if not isinstance(content.get(key), kind):
            raise ValueError(f"it holds no {key} of a run")
    return content


def _is_captioner(value: Any) -> bool:
    return isinstance(value, dict) and {"class", "tokenizer"} <= value.keys()


def _content(path: Path) -> dict[str, Any]:
    try:
        return _mapped(path)
    except ValueError as error:
        raise _damaged(path, str(error)) from error


def _damaged(path: Path, problem: str) -> ValueError:
    """Error for a checkpoint that training cannot resume from; it names usable ones."""
    paths = [other for other in sorted(path.parent.glob("[!.]*.ckpt")) if other != path]
    others = [other for other in paths if not _problem(other)]
    remedy = "resume=never trains from scratch"
    if others:
        best = max(others, key=progress)
        remedy = f"resume={best} resumes from epoch {progress(best)[0]}"
    return ValueError(f"{path} is damaged ({problem}): {remedy}")
