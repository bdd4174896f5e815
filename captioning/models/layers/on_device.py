"""Copy small tensors from the CPU to the device without waiting."""

from __future__ import annotations

import torch
from torch import Tensor


def on_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a CPU tensor to ``device`` without waiting for running work."""
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)
