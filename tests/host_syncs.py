"""Finds where a program waits for its device, on a machine that has none.

Tensors of the processor play those of a device: weights, batches that were moved, and whatever is
computed from them. To ask for their values (`item`, `tolist`, `bool`), or for a shape that depends
on them (`nonzero`, masks as indices), is to wait.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from captioning.training.finite_loss import HostCopy
from captioning.types import Batch

# By the name of torch's operation: each gives values, or shapes that depend on them.
WAITING = (
    "_local_scalar_dense",
    "nonzero",
    "masked_select",
    "repeat_interleave",
    "_unique2",
    "unique_consecutive",
    "unique_dim",
    "is_nonzero",
    "equal",
    "bincount",
    "_pack_padded_sequence",
)
READING = ("tolist", "cpu", "numpy")


class HostSyncs(TorchDispatchMode):
    """Within it, every wait for a tensor of the simulated device is kept in ``places``."""

    def __init__(self) -> None:
        super().__init__()
        self.places: list[str] = []
        # Kept alive, so that no other tensor gets their memory.
        self._on_device: dict[int, Tensor] = {}

    def put(self, tensors: Iterable[Any]) -> None:
        """These tensors are on the device from now on."""
        for tensor in tensors:
            if isinstance(tensor, Tensor) and tensor.untyped_storage().data_ptr():
                self._on_device[tensor.untyped_storage().data_ptr()] = tensor

    def holds(self, tensor: Any) -> bool:
        """Whether a tensor is on the device."""
        return isinstance(tensor, Tensor) and tensor.untyped_storage().data_ptr() in self._on_device

    def note(self, what: str) -> None:
        """Keep the place of a wait."""
        frames = [f for f in traceback.extract_stack() if "site-packages/torch" not in f.filename]
        place = next(f for f in reversed(frames) if f.filename != __file__)
        self.places.append(f"{what} at {place.filename}:{place.lineno}")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        inputs = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        on_device = [tensor for tensor in inputs if self.holds(tensor)]
        name = func.overloadpacket.__name__
        if on_device and (_waits(name, on_device, inputs, kwargs or {})):
            self.note(name)
        outputs = func(*args, **(kwargs or {}))
        if on_device:
            # the sizes of packed batches stay on the host
            packed = name == "_pack_padded_sequence"
            self.put(outputs[:1] if packed else tree_leaves(outputs))
            self.put(inputs[:1] if name.endswith("_") else ())
        return outputs


def _waits(name: str, on_device: list[Tensor], inputs: list[Tensor], kwargs: dict) -> bool:
    if name == "repeat_interleave":
        return kwargs.get("output_size") is None
    if name in ("index", "index_put", "index_put_", "_index_put_impl_"):
        return any(tensor.dtype in (torch.bool, torch.uint8) for tensor in inputs[1:])
    if name == "_pack_padded_sequence":
        return any(tensor is inputs[1] for tensor in on_device)
    return name in WAITING


@contextmanager
def simulated_device(monkeypatch: pytest.MonkeyPatch) -> Iterator[HostSyncs]:
    """Batches that are moved, and copies to the host, behave as with a device."""
    syncs = HostSyncs()

    def moved(batch: Batch, device: Any) -> Batch:
        copy = batch._map(torch.clone)
        syncs.put(tree_leaves([getattr(copy, name) for name in ("extras", *copy.__slots__)]))
        object.__setattr__(copy, "_host", batch)
        return copy

    def arrived(self: HostCopy, tensor: Tensor) -> None:
        with torch.utils._python_dispatch._disable_current_modes():
            self._values, self._arrived = tensor.detach().clone(), None

    monkeypatch.setattr(Batch, "to", moved)
    monkeypatch.setattr(HostCopy, "__init__", arrived)
    for name in READING:
        monkeypatch.setattr(Tensor, name, _watched(getattr(Tensor, name), syncs, name))
    yield syncs


def _watched(method: Any, syncs: HostSyncs, name: str) -> Any:
    def read(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
        if syncs.holds(tensor) and torch.utils._python_dispatch._get_current_dispatch_mode():
            syncs.note(name)
        return method(tensor, *args, **kwargs)

    return read
