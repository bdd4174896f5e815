"""The commands ``train``, ``evaluate`` and ``augment`` as functions of Python."""

from __future__ import annotations

import logging
import os
import re
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from captioning.commands.augmentation import AUGMENT
from captioning.commands.command import HydraCommand, as_value
from captioning.commands.evaluation import EVALUATE
from captioning.commands.training import TRAIN, TrainedRun

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from captioning.evaluation.run import Evaluation

_KEY = re.compile(r"[A-Za-z_][\w./@-]*", re.ASCII)
# Logging stays as the calling program has set it up.
_LOGGING = ("hydra/job_logging=none", "hydra/hydra_logging=none")
_TYPES = "None, bool, int, float, str, Path, and lists and dicts of these"
# Written by trainings, and read by the next one.
_ENVIRONMENT = ("PL_GLOBAL_SEED", "PL_SEED_WORKERS", "CUBLAS_WORKSPACE_CONFIG", "WANDB_DATA_DIR")


def train(
    photos: str | Path | None = None, *, overrides: Sequence[str] = (), **settings: Any
) -> TrainedRun:
    """Train a captioner, test it, and leave a run folder, as ``captioning train`` does.

    Random generators and settings of Python, NumPy and torch are afterwards as they were before.

    Args:
        photos: folder of your own photos with captions; None: the dataset that ``data`` names.
        overrides: overrides as on the command line, such as ``"curation/select=sigma"``.
        **settings: overrides by key, such as ``num_epochs=3`` and ``model="updown_small"``; a dict
            sets the keys below: ``optimizer={"lr": 1e-3}``.

    Returns:
        Folder, test scores and checkpoint of the run. A finished run is not trained again.

    Raises:
        ValueError: an unknown key or choice, with the nearest ones; a value out of its range; or
            the run folder holds a run of other settings.
        TypeError: a value of a type that no override can hold.
        OSError: data are missing, or the run folder cannot be written.
        KeyboardInterrupt, captioning.training.signals.Stopped: Ctrl+C or a signal stopped the run;
            the same call resumes the run.

    Examples:
        >>> from captioning import train
        >>> run = train("my_photos", model="updown_tiny", num_epochs=1, run_dir="my_run")
        >>> (run.folder / "metrics.json").is_file()
        True
    """
    return _call(TRAIN, photos, overrides, settings)[0]


def evaluate(
    run: str | Path | None = None, /, *, overrides: Sequence[str] = (), **settings: Any
) -> Evaluation:
    """Caption a dataset and score the captions, as ``captioning evaluate`` does.

    Args:
        run: run folder, or a JSON file of captions in COCO's format; None: ``model`` names the
            captioner.
        overrides: overrides as on the command line, such as ``"search.beam_size=5"``.
        **settings: overrides by key, such as ``model="shipped"``, ``data="flickr8k"`` and
            ``split="val"``; a dict sets the keys below.

    Returns:
        Scores, captions and the folder with the files.

    Raises:
        ValueError: an unknown key or choice, with the nearest ones; a value out of its range; or
            no dataset or captions to score.
        TypeError: a value of a type that no override can hold.
        OSError: a file or folder is missing, or the results cannot be written.

    Examples:
        >>> from captioning import evaluate, train
        >>> run = train("my_photos", model="updown_tiny", num_epochs=1, run_dir="my_run")
        >>> evaluated = evaluate(run.folder, split="val", metrics="fast")
        >>> evaluated.folder
        PosixPath('my_run/evaluation/own-val')
    """
    return _call(EVALUATE, run, overrides, settings)[0]


def augment(
    *, method: str, out: str | Path, overrides: Sequence[str] = (), **settings: Any
) -> Path:
    """Make new pairs of photo and caption, or new captions, as ``captioning augment`` does.

    Args:
        method: ``"cutswap"``, ``"novel_objects"``, ``"ssa"``, ``"toca"`` or another choice of
            ``configs/method``.
        out: folder to write; an unfinished set in the folder is continued.
        overrides: overrides as on the command line, such as ``"steps=[take_detections]"``.
        **settings: overrides by key, such as ``data="miniworld"`` and ``max_pairs=100``; a dict
            sets the keys below.

    Returns:
        The written folder, which ``data=augmented data.root=FOLDER`` reads.

    Raises:
        ValueError: an unknown key or choice, with the nearest ones; a value out of its range; or
            the folder holds another set.
        TypeError: a value of a type that no override can hold.
        OSError: data are missing, or the folder cannot be written.

    Examples:
        >>> from captioning import augment
        >>> data = {"data": "own", "data.root": "my_photos"}
        >>> folder = augment(method="toca", out="my_captions", max_pairs=5, **data)
        >>> len((folder / "captions.txt").read_text().splitlines())
        5
    """
    settings |= {"method": method, "out": out}
    return Path(_call(AUGMENT, None, overrides, settings)[1]["out"])


def as_overrides(settings: Mapping[str, Any]) -> list[str]:
    """Settings as overrides in Hydra's grammar; a dict becomes an override for each key below.

    Raises:
        ValueError: a key that Hydra cannot read.
        TypeError: a value of a type that no override can hold.
    """
    _check_keys(settings)
    found: list[str] = []
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            found += as_overrides({f"{key}.{name}": below for name, below in value.items()})
        else:
            found.append(f"{key}={_text(value, key)}")
    return found


def _check_keys(settings: Mapping[str, Any]) -> None:
    for key in settings:
        if not _KEY.fullmatch(str(key)):
            raise ValueError(f"{key!r}: a key may contain only letters, digits and _ . / @ -")


def _text(value: Any, key: str) -> str:
    """A value in Hydra's grammar."""
    value = value.value if isinstance(value, Enum) else value
    if getattr(value, "shape", None) == ():  # a scalar of NumPy or torch
        value = value.item()
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Integral):
        return str(int(value))
    if isinstance(value, Real):
        return str(float(value))
    if isinstance(value, str):
        return as_value(str(value))
    if isinstance(value, os.PathLike):
        return as_value(_path(value, key))
    if isinstance(value, Mapping):
        _check_keys(value)
        return f"{{{','.join(f'{name}:{_text(item, key)}' for name, item in value.items())}}}"
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return f"[{','.join(_text(item, key) for item in value)}]"
    raise TypeError(f"{key}: must be one of {_TYPES}; got {value!r} ({type(value).__name__})")


def _path(value: Any, key: str) -> str:
    """A path as text; one that a config would read otherwise is refused."""
    if not isinstance(value, str | os.PathLike):
        raise TypeError(f"{key} must be a str or a Path; got {value!r} ({type(value).__name__})")
    text = os.fsdecode(value)
    if "${" in text or text == "???":
        raise ValueError(f"{key}: a config cannot hold the path {text!r}; rename the folder")
    return text


def _call(
    command: HydraCommand,
    place: str | Path | None,
    overrides: Sequence[str],
    settings: Mapping[str, Any],
) -> tuple[Any, dict[str, Any]]:
    """Run a command; see `captioning.commands.hydra_command.perform` for the result."""
    from hydra.errors import HydraException

    from captioning.commands.hydra_command import explained, perform
    from captioning.config.compose import VERSION_BASE, search_user_folder
    from captioning.config.hydra_bends import call_main

    given = _arguments(command, place, overrides, settings)
    results: list[tuple[Any, dict[str, Any]]] = []
    errors: list[Exception] = []

    def task(composed: DictConfig) -> None:
        try:
            _refuse_sweep(command.name)
            with _computing_undisturbed():
                results.append(perform(command, composed))
        except Exception as error:  # noqa: BLE001 - Hydra would print it; raised below
            errors.append(error)

    with _undisturbed():
        search_user_folder()
        try:
            arguments = [*_LOGGING, *given]
            call_main(task, arguments, config=command.config, version_base=VERSION_BASE)
        except (HydraException, ValueError, OSError) as error:
            kind = ValueError if isinstance(error, HydraException | ValueError) else OSError
            raise kind(explained(error, command, given)) from error
    if errors:
        raise errors[0]
    return results[0]


def _arguments(
    command: HydraCommand,
    place: str | Path | None,
    overrides: Sequence[str],
    settings: Mapping[str, Any],
) -> list[str]:
    """All overrides as Hydra takes them.

    Raises:
        TypeError: ``overrides`` is a text.
        ValueError: an option of the command line, or a key that is set twice.
    """
    if isinstance(overrides, str):
        raise TypeError(f"overrides must be a list: got {overrides!r}; write [{overrides!r}]")
    given = [*overrides, *as_overrides(settings)]
    for text in given:
        if not isinstance(text, str) or text[:1] == "-" or ("=" not in text and text[:1] != "~"):
            raise ValueError(f"overrides: must be KEY=VALUE or ~KEY; got {text!r}")
    if place is None or command.words is None:
        return [command.with_key(text) for text in given]
    placed = command.words([_path(place, "the folder")])
    keys = {text.partition("=")[0] for text in placed}
    if twice := [text for text in given if text.partition("=")[0] in keys]:
        raise ValueError(f"{twice[0]}: {place} already sets this; leave one of them out")
    return [*placed, *map(command.with_key, given)]


def _refuse_sweep(name: str) -> None:
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    if HydraConfig.get().mode == RunMode.MULTIRUN:
        raise ValueError(f"hydra.mode: sweeps run by the command alone: captioning {name} -m")


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Leave logging, warnings and Hydra of the calling program as they were.

    A program that has not set up logging sees messages on standard error meanwhile.
    """
    from hydra.core.hydra_config import HydraConfig
    from hydra.core.utils import JobRuntime

    from captioning.config.compose import own_hydra

    root, lightning = logging.getLogger(), logging.getLogger("pytorch_lightning")
    handlers, levels = list(root.handlers), (root.level, lightning.level)
    config, job = HydraConfig.instance(), JobRuntime.instance()
    chosen, names = config.cfg, job.conf
    if not handlers:
        console = logging.StreamHandler(sys.stderr)
        console.setFormatter(logging.Formatter("%(message)s"))
        root.addHandler(console)
        root.setLevel(logging.INFO)
    try:
        with own_hydra(), warnings.catch_warnings():
            yield
    finally:
        config.cfg, job.conf = chosen, names
        root.handlers[:] = handlers
        root.setLevel(levels[0])
        lightning.setLevel(levels[1])


@contextmanager
def _computing_undisturbed() -> Iterator[None]:
    """Compute with torch's defaults; restore the caller's random generators and torch settings."""
    import random  # noqa: TID251 - the caller's

    import numpy as np
    import torch

    environment = {key: os.environ[key] for key in _ENVIRONMENT if key in os.environ}
    python, tensors, threads = random.getstate(), torch.get_rng_state(), torch.get_num_threads()
    arrays = np.random.get_state()  # noqa: NPY002
    gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    tf32, benchmark = torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark
    dtype = torch.get_default_dtype()
    exact, products = torch.get_deterministic_debug_mode(), torch.get_float32_matmul_precision()
    torch.set_default_dtype(torch.float32)
    try:
        with torch.inference_mode(False), torch.enable_grad():
            yield
    finally:
        torch.set_default_dtype(dtype)
        torch.set_num_threads(threads)
        torch.set_deterministic_debug_mode(exact)
        torch.set_float32_matmul_precision(products)
        torch.backends.cudnn.allow_tf32 = tf32
        torch.backends.cudnn.benchmark = benchmark
        random.setstate(python)
        np.random.set_state(arrays)  # noqa: NPY002
        torch.set_rng_state(tensors)
        torch.cuda.set_rng_state_all(gpus)
        for key in _ENVIRONMENT:
            os.environ.pop(key, None)
        os.environ.update(environment)
