"""Where a network runs, and in which precision."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any, Literal

import torch

from captioning.devices import chosen_device

Precision = Literal["auto", "float32", "float16", "bfloat16"]
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def chosen_dtype(precision: Precision, device: torch.device) -> torch.dtype:
    """``"auto"``: half precision on a GPU, bfloat16 where it has that; single on a processor.

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


@dataclass
class _Users:
    """How many threads are within `full_precision`, and what the first of them met."""

    number: int = 0
    products: str = "highest"
    others: bool = True


_users, _lock = _Users(), Lock()


@contextmanager
def full_precision() -> Iterator[None]:
    """Within it GPUs compute in ``float32`` what is in ``float32``, and not in TF32.

    For what is kept and used again: it is the same then, whatever a run's ``speed`` is. torch has
    these settings for the process: they come back when the last of several threads leaves.
    """
    with _lock:
        if not _users.number:
            _users.products = torch.get_float32_matmul_precision()
            _users.others = torch.backends.cudnn.allow_tf32
        _users.number += 1
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        with _lock:
            _users.number -= 1
            if not _users.number:
                torch.set_float32_matmul_precision(_users.products)
                torch.backends.cudnn.allow_tf32 = _users.others


class Resident:
    """A frozen network that is on its device only while it is used, so that others have room.

    Args:
        network: to be used without gradients.
        device: see `chosen_device`.
        precision: see `chosen_dtype`.
    """

    def __init__(self, network: Any, *, device: str, precision: Precision) -> None:
        self.device = chosen_device(device)
        self.dtype = chosen_dtype(precision, self.device)
        self.network = network.to(self.dtype).eval().requires_grad_(False)

    @contextmanager
    def used(self) -> Iterator[Any]:
        """The network, on its device, without gradients."""
        self.network.to(self.device)
        with torch.inference_mode():
            yield self.network

    def release(self) -> None:
        """Leave the device; the next use comes back."""
        leave(self.network, self.device)


def leave(network: torch.nn.Module, device: torch.device) -> None:
    """Bring a network to the processor, and give its device's memory to others."""
    network.to("cpu")
    if device.type == "cuda":
        torch.cuda.empty_cache()
