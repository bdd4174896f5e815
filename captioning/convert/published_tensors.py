"""Read only the tensors of a published checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from captioning.runtime.model_folder import load_plain

WRAPPERS = ("state_dict", "model", "model_state_dict")  # under which authors put the tensors


def read_state(path: str | Path) -> dict[str, Tensor]:
    """Read tensors by name onto the CPU.

    Args:
        path: a file of `torch.save` (tensors, plain values) or of safetensors.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is damaged, holds no tensors, or holds objects, which could run code.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    if path.suffix == ".safetensors":
        try:
            return load_file(path)
        except (SafetensorError, ValueError) as error:
            raise ValueError(f"{path}: not a safetensors file ({error})") from error
    return _tensors(load_plain(path), path)


def _tensors(content: Any, path: Path) -> dict[str, Tensor]:
    for name in WRAPPERS:
        if isinstance(content, Mapping) and isinstance(content.get(name), Mapping):
            content = content[name]
    state = {}
    if isinstance(content, Mapping):
        state = {str(name): value for name, value in content.items() if isinstance(value, Tensor)}
        state = state or _nested(content, "")
    if not state:
        raise ValueError(f"{path}: holds no tensors by name")
    return state


def _nested(content: Mapping[Any, Any], prefix: str) -> dict[str, Tensor]:
    """Flatten nested mappings of tensors; names are joined by dots."""
    state: dict[str, Tensor] = {}
    for name, value in content.items():
        if isinstance(value, Mapping):
            state |= _nested(value, f"{prefix}{name}.")
        elif isinstance(value, Tensor):
            state[f"{prefix}{name}"] = value
    return state


def without_prefix(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Remove a prefix that all names share, such as ``module.`` of training on several GPUs."""
    if not all(name.startswith(prefix) for name in state):
        return dict(state)
    return {name.removeprefix(prefix): value for name, value in state.items()}


def require(state: Mapping[str, Tensor], names: Iterable[str], kind: str) -> None:
    """Raise an error if a state lacks required names.

    Raises:
        ValueError: a name is missing; the message gives the first.
    """
    missing = [name for name in names if name not in state]
    if missing:
        there = ", ".join(list(state)[:5])
        raise ValueError(
            f"not a checkpoint of {kind}: {missing[0]!r} is missing (of {len(missing)}); it begins "
            f"with {there}"
        )
