"""Device and precision of networks, and exact float32 arithmetic on GPUs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any, Literal, TypeVar

import torch

Precision = Literal["auto", "float32", "float16", "bfloat16"]
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
Value = TypeVar("Value")


def place_on_machine() -> int:
    """Rank of this process on its machine (local rank, from 0), as its launcher sets it."""
    return int(os.environ.get("LOCAL_RANK") or os.environ.get("SLURM_LOCALID") or 0)


_taken: list[int] = []


def take_gpu(number: int) -> None:
    """Claim a GPU for this process before anything is built on a GPU."""
    torch.cuda.set_device(number)
    _taken[:] = [number]


def own_gpu() -> int:
    """Index of the GPU that this process uses, from 0.

    This is the GPU that the process claimed (`take_gpu`), or else the current GPU if that is not
    the first. Otherwise the index is the local rank, unless the launcher shows the process one GPU.
    """
    if _taken:
        return _taken[0]
    # not asked of a driver that has not started, which would keep memory on the first GPU
    current = torch.cuda.current_device() if torch.cuda.is_initialized() else 0
    number = current or place_on_machine()
    return number if number < torch.cuda.device_count() else 0


def chosen_device(device: str | torch.device) -> torch.device:
    """Turn a device setting into a torch device: ``"auto"`` is a GPU if there is one, else the CPU.

    A GPU always gets its index: without an index, network and inputs could land on different GPUs
    if the current GPU changed in between.

    Raises:
        ValueError: this machine has no such device.
    """
    if device == "auto":
        has_gpu = torch.cuda.is_available()
        return torch.device("cuda", own_gpu()) if has_gpu else torch.device("cpu")
    chosen = torch.device(device)
    # counted without starting the driver, which would keep memory in this process
    kind: Any = getattr(torch, chosen.type, None)
    number = kind.device_count() if hasattr(kind, "device_count") else None
    if number and chosen.type == "cuda" and chosen.index is None:
        return torch.device("cuda", own_gpu())
    if number is None or (chosen.index or 0) < number:
        return chosen
    seen = f"{number} of this kind, counted from 0" if number else "none of this kind"
    raise ValueError(
        f"device={device}: torch sees {seen}. A GPU needs its driver and a torch built for it: "
        "give device=cpu or device=auto"
    )


def by_device(device: torch.device, *, processor: Value, gpu: Value) -> Value:
    """Return ``gpu`` on a GPU and ``processor`` on a CPU, for example a smaller batch size."""
    return processor if device.type == "cpu" else gpu


def chosen_dtype(precision: Precision, device: torch.device) -> torch.dtype:
    """Turn a precision setting into a dtype: ``"auto"`` is float32, or half precision on a GPU.

    Raises:
        ValueError: the setting is none of the known names.
    """
    if precision not in ("auto", *DTYPES):
        raise ValueError(f"precision must be auto or one of {tuple(DTYPES)}, got {precision}")
    if precision != "auto":
        return DTYPES[precision]
    if device.type != "cuda":
        return torch.float32
    return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16


class Resident:
    """Frozen network that occupies its device only while it is used.

    Args:
        network: network to use without gradients.
        device: see `chosen_device`.
        precision: see `chosen_dtype`; None leaves its weights as they are.
    """

    def __init__(
        self, network: Any, *, device: str | torch.device, precision: Precision | None
    ) -> None:
        self.device = chosen_device(device)
        first = next(iter(network.parameters()), torch.empty(0))
        self.dtype = first.dtype if precision is None else chosen_dtype(precision, self.device)
        placed = network if precision is None else network.to(self.dtype)
        self.network = placed.eval().requires_grad_(False)

    @contextmanager
    def used(self) -> Iterator[Any]:
        """Yield the network on its device, without gradients and in `full_precision`."""
        with torch.inference_mode(False):  # what is moved within it could never be moved outside
            self.network.to(self.device)
        with torch.inference_mode(), full_precision():
            yield self.network

    def release(self) -> None:
        """Move the network off its device; the next use moves it back."""
        leave(self.network, self.device)


def leave_device(judge: object) -> None:
    """Move a scorer or an embedder off its device, if it can; its next use moves it back."""
    leaving = getattr(judge, "release", None)
    if leaving is not None:
        leaving()


def leave(network: torch.nn.Module, device: torch.device) -> None:
    """Move a network to the CPU and release the memory of its device."""
    with torch.inference_mode(False):
        network.to("cpu")
    if device.type == "cuda":
        torch.cuda.empty_cache()


@dataclass
class _Users:
    """Number of threads within `full_precision`, and the settings to restore after the last."""

    number: int = 0
    products: str = "highest"
    others: bool = True


_users, _lock = _Users(), Lock()


@contextmanager
def full_precision() -> Iterator[None]:
    """Compute ``float32`` tensors in full ``float32`` within the block: no TF32, no autocast.

    Values computed for a cache are then the same for any ``speed`` setting and in any step. torch
    keeps its TF32 settings per process: they are restored when the last thread leaves the block.
    """
    with _lock:
        if not _users.number:
            _users.products = torch.get_float32_matmul_precision()
            _users.others = torch.backends.cudnn.allow_tf32
        _users.number += 1
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = False
    try:
        with torch.autocast("cuda", enabled=False), torch.autocast("cpu", enabled=False):
            yield
    finally:
        with _lock:
            _users.number -= 1
            if not _users.number:
                torch.set_float32_matmul_precision(_users.products)
                torch.backends.cudnn.allow_tf32 = _users.others


def computing(dtype: torch.dtype, device: torch.device) -> AbstractContextManager[Any]:
    """Compute in ``dtype`` within the block; ``float32`` means `full_precision`.

    Weights stay in ``float32``; operations that would be too inexact in ``dtype`` use it, too.
    """
    if dtype == torch.float32:
        return full_precision()
    return torch.autocast(device.type, dtype=dtype)
