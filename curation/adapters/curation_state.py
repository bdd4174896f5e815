"""Save and load the state of curation as a file of tensors and JSON, without pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from captioning.runtime.tensor_files import read_tensors, write_tensors

FILE_NAME = "state.safetensors"
_KEY = "curation"


def write_state(path: Path, state: Mapping[str, Any]) -> None:
    """Write the result of `Curator.state_dict` to a file atomically."""
    tensors: dict[str, Tensor] = {}
    plain = _without_tensors(state, "", tensors)
    write_tensors(path, tensors, {_KEY: json.dumps(plain)})


def read_state(path: Path) -> dict[str, Any]:
    """Read the state of curation from a file.

    Raises:
        ValueError: the file is damaged or holds no state of curation.
    """
    try:
        tensors, texts = read_tensors(path)
        state = json.loads(texts[_KEY])
        for name, tensor in tensors.items():
            _put(state, name.split("."), tensor)
    except (KeyError, ValueError, TypeError, OSError) as error:
        raise ValueError(
            f"{path} is not a readable state of curation ({error}); restore the file, or start "
            "from scratch with first_epoch=0"
        ) from error
    return state


def state_before(state: Mapping[str, Any], epoch: int) -> dict[str, Any]:
    """Return the state at the start of ``epoch``, without later edits and losses."""
    journal = [line for line in state["journal"] if json.loads(line)["epoch"] < epoch]
    return {
        **state,
        "journal": journal,
        "records": [record for record in state["records"] if record["epoch"] < epoch],
        "ledger": _ledger_before(state["ledger"], epoch),
        "signals": {
            name: _ledger_before(ledger, epoch) for name, ledger in state["signals"].items()
        },
    }


def _ledger_before(ledger: Mapping[str, Any], epoch: int) -> dict[str, Any]:
    epochs = [number for number in ledger["epochs"] if number < epoch]
    return {
        "sum": torch.zeros_like(ledger["sum"]),
        "count": torch.zeros_like(ledger["count"]),
        "history": ledger["history"][: len(epochs)],
        "epochs": epochs,
    }


def _without_tensors(value: Any, prefix: str, tensors: dict[str, Tensor]) -> Any:
    """Return only the plain values; move tensors into ``tensors`` under their dotted names."""
    if not isinstance(value, Mapping):
        return value
    plain: dict[str, Any] = {}
    for key, content in value.items():
        if isinstance(content, Tensor):
            tensors[f"{prefix}{key}"] = content
        else:
            plain[key] = _without_tensors(content, f"{prefix}{key}.", tensors)
    return plain


def _put(state: dict[str, Any], names: list[str], tensor: Tensor) -> None:
    for name in names[:-1]:
        state = state[name]
    state[names[-1]] = tensor
