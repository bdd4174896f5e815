"""Converted checkpoints, and how they are written as run folders that commands can use."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import torch
from omegaconf import OmegaConf
from torch import Tensor

from captioning.config.compose import compose_config, setting
from captioning.convert.published_tensors import read_state
from captioning.data.batches.base import AbstractBatchReader
from captioning.inference.building import CaptionerSettings, Pictures, build_model
from captioning.inference.bundle import check_shapes
from captioning.interfaces import AbstractTokenizer
from captioning.results.checkpoints import LAST
from captioning.results.versions import versions
from captioning.runtime.files import write_json, write_lines, write_text

KEYS = "keys.tsv"
MADE = "not in the checkpoint: made as the config says"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyUse:
    """Result of the conversion for one key of a checkpoint.

    Attributes:
        key: name of the tensor in the authors' checkpoint.
        into: names in this project; empty if the tensor is not used.
        note: how the tensor is used, or why it is not used.
    """

    key: str
    into: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Further inputs that a conversion may need beside the checkpoint.

    Attributes:
        vocabulary: file or folder of the authors' vocabulary.
        base: folder in transformers' format of the network that the authors started from.
        overrides: overrides of ``captioning train``, for data and features.
    """

    vocabulary: Path | None = None
    base: Path | None = None
    overrides: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """Checkpoint converted to a model of this project.

    Attributes:
        overrides: overrides of ``captioning train`` that build the model; those of `Options`
            follow.
        tokenizer: tokenizer of the checkpoint's words.
        weights: the model's whole ``state_dict``, by this project's names.
        feature_size: size D of the features that the model reads.
        keys: result of the conversion for each key of the checkpoint.
        built: further names whose values come from the config, such as embeddings of names.
    """

    overrides: tuple[str, ...]
    tokenizer: AbstractTokenizer
    weights: Mapping[str, Tensor]
    feature_size: int
    keys: tuple[KeyUse, ...]
    built: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertedNetwork:
    """Checkpoint converted to a network of transformers.

    Attributes:
        save: function that writes the network, its tokenizer and processor into a folder.
        keys: result of the conversion for each key of the checkpoint.
        use: an override that uses the folder, such as ``model.pretrained={folder}``.
    """

    save: Callable[[Path], object]
    keys: tuple[KeyUse, ...]
    use: str = field(default="model.pretrained={folder}")


def convert(kind: str, path: Path, to: Path, options: Options) -> tuple[KeyUse, ...]:
    """Convert a published checkpoint and write the result; all or nothing.

    Args:
        kind: a module of this package with a function ``convert(state, options)``.
        path: the checkpoint.
        to: a new folder.
        options: further inputs that the kind needs.

    Returns:
        Result of the conversion for each key; also in ``keys.tsv``.

    Raises:
        FileExistsError: ``to`` exists already.
        FileNotFoundError: the checkpoint or a file that it needs does not exist.
        ValueError: the checkpoint is of another kind, or its weights do not fit the model.
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
            f"{path}: the key {silent[0]!r} (and {len(silent) - 1} more) is unknown: is this a "
            "checkpoint of another model?"
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
    """Build the model without data."""
    pictures = Pictures(reader=_NoPictures(), feature_size=converted.feature_size)
    return build_model(settings, converted.tokenizer, pictures)


class _NoPictures(AbstractBatchReader):
    """Stand-in for a run's reader of photos."""

    def open(self, epoch: Any) -> Callable[..., Any] | None:
        """Raise an error, as a converted checkpoint reads no photos."""
        return self._refuse()

    def _refuse(self) -> NoReturn:
        raise RuntimeError("a converted checkpoint is built without data")
