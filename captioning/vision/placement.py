"""Where a network runs, and in which precision."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch

from captioning.devices import chosen_device, full_precision, leave

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


class Resident:
    """A frozen network that is on its device only while it is used, so that others have room.

    Args:
        network: to be used without gradients.
        device: see `chosen_device`.
        precision: see `chosen_dtype`.
    """

    def __init__(self, network: Any, *, device: str | torch.device, precision: Precision) -> None:
        self.device = chosen_device(device)
        self.dtype = chosen_dtype(precision, self.device)
        self.network = network.to(self.dtype).eval().requires_grad_(False)

    @contextmanager
    def used(self) -> Iterator[Any]:
        """The network, on its device, without gradients, in `full_precision`."""
        self.network.to(self.device)
        with torch.inference_mode(), full_precision():
            yield self.network

    def release(self) -> None:
        """Leave the device; the next use comes back."""
        leave(self.network, self.device)
