"""Where a network runs, in which precision, and how exactly GPUs compute."""

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
    """The rank of this process on its machine, from 0, as its launcher sets it."""
    return int(os.environ.get("LOCAL_RANK") or os.environ.get("SLURM_LOCALID") or 0)


_taken: list[int] = []


def take_gpu(number: int) -> None:
    """Make a GPU this process's own, before anything is built for it."""
    torch.cuda.set_device(number)
    _taken[:] = [number]


def own_gpu() -> int:
    """The number of the GPU that is this process's own, from 0.

    This is the GPU that it took (`take_gpu`), or a GPU other than the first that it has made
    current. Else each process of a machine has its own, unless its launcher shows it one GPU alone.
    """
    if _taken:
        return _taken[0]
    # not asked of a driver that has not started, which would keep memory on the first GPU
    current = torch.cuda.current_device() if torch.cuda.is_initialized() else 0
    number = current or place_on_machine()
    return number if number < torch.cuda.device_count() else 0


def chosen_device(device: str | torch.device) -> torch.device:
    """``"auto"`` takes a GPU if there is one; a GPU has its number in any case.

    Without a number a network would be on the GPU that was current when it was moved, and its
    inputs on the one that is current when they are.

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
        f"device={device}: torch sees {seen} (a GPU needs its driver, and a torch that was built "
        "for it); give device=cpu, or device=auto"
    )


def by_device(device: torch.device, *, processor: Value, gpu: Value) -> Value:
    """Choose a value for the device, such as a batch size: a processor takes little at once."""
    return processor if device.type == "cpu" else gpu


def chosen_dtype(precision: Precision, device: torch.device) -> torch.dtype:
    """``"auto"``: half precision on a GPU, bfloat16 where it has that; single on a CPU.

    Raises:
        ValueError: another name.
    """
    if precision not in ("auto", *DTYPES):
        raise ValueError(f"precision must be auto or one of {tuple(DTYPES)}: got {precision!r}")
    if precision != "auto":
        return DTYPES[precision]
    if device.type != "cuda":
        return torch.float32
    return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16


class Resident:
    """A frozen network that is on its device only while it is used, so that others have room.

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
        """The network, on its device, without gradients, in `full_precision`."""
        with torch.inference_mode(False):  # what is moved within it could never be moved outside
            self.network.to(self.device)
        with torch.inference_mode(), full_precision():
            yield self.network

    def release(self) -> None:
        """Leave the device; the next use comes back."""
        leave(self.network, self.device)


def leave_device(judge: object) -> None:
    """Have a scorer or an embedder leave its device, if it can; its next use comes back."""
    leaving = getattr(judge, "release", None)
    if leaving is not None:
        leaving()


def leave(network: torch.nn.Module, device: torch.device) -> None:
    """Bring a network to the processor, and give its device's memory to others."""
    with torch.inference_mode(False):
        network.to("cpu")
    if device.type == "cuda":
        torch.cuda.empty_cache()


@dataclass
class _Users:
    """How many threads are within `full_precision`, and what the first of them met."""

    number: int = 0
    products: str = "highest"
    others: bool = True


_users, _lock = _Users(), Lock()


@contextmanager
def full_precision() -> Iterator[None]:
    """Within it, ``float32`` tensors are computed in ``float32``: not in TF32, nor by autocast.

    For cached values that are reused: they are then the same for any ``speed`` of a run and in any
    step. torch has the settings of TF32 for the process: they come back when the last of several
    threads leaves.
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
    """`full_precision` for ``float32``; else operations that are exact enough in ``dtype`` use it.

    Weights stay in single precision.
    """
    if dtype == torch.float32:
        return full_precision()
    return torch.autocast(device.type, dtype=dtype)
