"""The file format of an exported captioner: settings, tokenizer and weights, without any code.

captioner.json       format, class and tokenizer of the model, versions
config.yaml          the settings that build it; `_target_` as in a run folder
model.safetensors    its weights, and those of the backbone of its features
config.json, ...     where transformers knows the model: the folder is one of its models, and
                     model.safetensors has its names; older exports have ``transformers/``
adapter/             low-rank additions, as peft has them
lists/               files of words that the settings name
README.md            the card
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from captioning.results.folder_config import paths_in, read_folder_config, show_outside
from captioning.runtime.files import read_json, write_json, write_text
from captioning.runtime.tensor_files import read_tensors, write_tensors

FORMAT = "caption-curation-captioner-1"
RECORD, CONFIG, WEIGHTS, TRANSFORMERS = (
    "captioner.json",
    "config.yaml",
    "model.safetensors",
    "transformers",
)
LISTS = "lists"
# Value of ``pretrained`` in an export's settings: the folder itself is a transformers model.
ROOT = "."
# File patterns to download from the hub; such files cannot hold programs.
FILES = ("*.json", "*.txt", "*.model", "*.jinja", "*.safetensors", CONFIG)
# Prefix, in the file, of the weights of the backbone whose features the run had cached.
FEATURES_PREFIX = "features_backbone."
# Suffix of the scale of each row of an 8-bit matrix.
SCALES = ".scales"


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """Content of an export folder.

    Attributes:
        folder: the exported folder.
        config: settings that build the model.
        captioner: model class and tokenizer, as in checkpoints.
        weights: tensors by name; None if a transformers model holds the weights.
    """

    folder: Path
    config: DictConfig
    captioner: Mapping[str, Any]
    weights: dict[str, Tensor] | None


def is_bundle(folder: Path) -> bool:
    """Whether a folder is an exported captioner."""
    return (folder / RECORD).is_file()


def transformers_folder(folder: Path) -> Path | None:
    """Return the path of the transformers model in an export, or None if it has none."""
    if (folder / "config.json").is_file():
        return folder
    return folder / TRANSFORMERS if (folder / TRANSFORMERS).is_dir() else None


def write_bundle(bundle: Bundle, versions: Mapping[str, Any]) -> None:
    """Write settings, tokenizer and weights of an export, without card and transformers model."""
    record = {"format": FORMAT, "captioner": bundle.captioner, "versions": versions}
    write_json(bundle.folder / RECORD, record)
    write_text(bundle.folder / CONFIG, OmegaConf.to_yaml(bundle.config))
    if bundle.weights is not None:
        # Tensors with shared memory are written one by one.
        tensors = {name: value.detach().clone() for name, value in bundle.weights.items()}
        write_tensors(bundle.folder / WEIGHTS, tensors, {"format": "pt"})


def read_bundle(folder: Path) -> Bundle:
    """Read an export without running any code in it, because it may be untrusted.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is damaged or has another format.
    """
    record = read_json(folder / RECORD)
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise ValueError(f"{folder / RECORD} is not of format {FORMAT}; export the run again")
    captioner = record.get("captioner")
    if not isinstance(captioner, dict) or not {"class", "tokenizer"} <= captioner.keys():
        raise ValueError(f"{folder / RECORD} lacks class or tokenizer; export the run again")
    path = folder / CONFIG
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist; export the run again")
    config = read_folder_config(path)
    show_outside(paths_in(OmegaConf.to_container(config)), folder)
    groups = ("model", "features", "search", "optimizer")
    if not all(isinstance(config.get(group), DictConfig) for group in groups):
        raise ValueError(f"{path} lacks one of {', '.join(groups)}; export the run again")
    weights = None if transformers_folder(folder) else _weights(folder / WEIGHTS)
    return Bundle(folder=folder, config=config, captioner=captioner, weights=weights)


def _weights(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist; export the run again")
    try:
        return in_full(read_tensors(path)[0])
    except ValueError as error:
        raise ValueError(f"{error}; export the run again") from error


def in_eight_bits(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Quantize a matrix ``(N, M)`` to ``int8``; return it and the scales ``(N,)`` of its rows."""
    scales = (matrix.abs().amax(1) / 127).clamp(min=torch.finfo(torch.float32).tiny)
    return (matrix / scales[:, None]).round().to(torch.int8), scales


def in_full(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors with all 8-bit matrices converted back to full precision.

    Raises:
        ValueError: an 8-bit matrix does not have one scale per row.
    """
    whole = dict(tensors)
    for name in [name for name in tensors if f"{name}{SCALES}" in tensors]:
        tensor, scales = whole[name], whole.pop(f"{name}{SCALES}")
        if tensor.dtype != torch.int8 or tensor.ndim != 2 or scales.shape != tensor.shape[:1]:
            raise ValueError(f"{name}: {tuple(scales.shape)} scales, not one per row of its matrix")
        whole[name] = tensor.float() * scales[:, None]
    return whole


def check_shapes(
    wanted: Mapping[str, Tensor], weights: Mapping[str, Tensor], *, where: Path
) -> None:
    """Raise an error if weights differ from the model's in name or shape.

    Raises:
        ValueError: the first tensor that does not match.
    """
    for name in sorted(wanted.keys() | weights.keys()):
        sizes = [tuple(t[name].shape) if name in t else None for t in (wanted, weights)]
        if sizes[0] != sizes[1]:
            raise ValueError(
                f"{where}: {name} has shape {sizes[1] or 'missing'}, config.yaml expects "
                f"{sizes[0] or 'none'}: use weights and config.yaml of the same export"
            )


def restore(module: torch.nn.Module, weights: Mapping[str, Tensor], *, where: Path) -> None:
    """Load weights into a module.

    Raises:
        ValueError: the weights do not match the module.
    """
    check_shapes(module.state_dict(), weights, where=where)
    module.load_state_dict(dict(weights))
