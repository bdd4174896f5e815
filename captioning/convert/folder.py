"""Writes a converted checkpoint: a run folder, which everything that takes runs can use."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import torch
from omegaconf import OmegaConf

from captioning.config.compose import compose_config, setting
from captioning.convert.converted import Converted, ConvertedNetwork, KeyUse, Options
from captioning.convert.published_tensors import read_state
from captioning.data.batches.base import AbstractBatchReader
from captioning.inference.building import CaptionerSettings, Pictures, build_model
from captioning.inference.bundle import check_shapes
from captioning.results.checkpoints import LAST
from captioning.results.versions import versions
from captioning.runtime.files import write_json, write_lines, write_text

KEYS = "keys.tsv"
MADE = "not in the checkpoint: made as the config says"


def convert(kind: str, path: Path, to: Path, options: Options) -> tuple[KeyUse, ...]:
    """Write a published checkpoint as this project's; all or nothing.

    Args:
        kind: a module of this package with a function ``convert(state, options)``.
        path: the checkpoint.
        to: a new folder.
        options: what else the kind needs.

    Returns:
        What became of each of its keys; also in ``keys.tsv``.

    Raises:
        FileExistsError: ``to`` is there already.
        FileNotFoundError: the checkpoint or something that it needs is not there.
        ValueError: not a checkpoint of this kind, or weights that do not fit the model.
    """
    if to.exists():
        raise FileExistsError(f"{to} is there already; give a new folder")
    state = read_state(path)
    module: Any = import_module(f"captioning.convert.{kind}")
    converted = module.convert(state, options)
    _check_keys(state, converted.keys, path)
    to.parent.mkdir(parents=True, exist_ok=True)
    part = to.with_name(f".{secrets.token_hex(6)}.convert")
    try:
        part.mkdir()
        keys = converted.keys
        if isinstance(converted, ConvertedNetwork):
            converted.save(part)
        else:
            _write_run(converted, options, part, to)
            keys += tuple(KeyUse(key="-", into=(name,), note=MADE) for name in converted.built)
        write_lines(part / KEYS, [_line(key) for key in keys])
        part.rename(to)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    return keys


def _line(key: KeyUse) -> str:
    return "\t".join([key.key, " ".join(key.into) or "-", key.note])


def _check_keys(state: Mapping[str, Any], keys: tuple[KeyUse, ...], path: Path) -> None:
    silent = sorted(set(state) - {key.key for key in keys})
    if silent:
        raise ValueError(
            f"{path}: what becomes of {silent[0]!r} (and {len(silent) - 1} more) is not known: is "
            "it a checkpoint of another model?"
        )


def _write_run(converted: Converted, options: Options, folder: Path, name: Path) -> None:
    overrides = [*converted.overrides, "monitor=last", *options.overrides]
    config = compose_config("train", [*overrides, setting("run_dir", name.resolve())])
    model = _built(CaptionerSettings.of(config), converted)
    ours = model.state_dict()
    weights = {key: ours[key] for key in converted.built if key in ours} | {**converted.weights}
    check_shapes(ours, weights, where=name)
    checkpoint: dict[str, Any] = {
        "epoch": 0,
        "global_step": 0,
        "state_dict": {key: value.contiguous() for key, value in weights.items()},
        "config": OmegaConf.to_yaml(config, resolve=True),
    }
    model.on_save_checkpoint(checkpoint)
    (folder / "checkpoints").mkdir()
    torch.save(checkpoint, folder / "checkpoints" / LAST)
    write_text(folder / "config.yaml", OmegaConf.to_yaml(config, resolve=True))
    write_json(folder / "versions.json", versions())


def _built(settings: CaptionerSettings, converted: Converted) -> Any:
    """The model, without data."""
    pictures = Pictures(reader=_NoPictures(), feature_size=converted.feature_size)
    return build_model(settings, converted.tokenizer, pictures)


class _NoPictures(AbstractBatchReader):
    """Stands where pictures are read in a run."""

    def open(self, epoch: Any) -> Callable[..., Any] | None:
        """Never asked for."""
        return self._refuse()

    def _refuse(self) -> NoReturn:
        raise RuntimeError("a converted checkpoint is built without data")
