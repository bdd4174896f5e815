"""Loader processes: how many, and how they hand batches over."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import DataLoader

from captioning.data.batches.dataset import CaptionDataset
from captioning.data.batches.settings import LoaderSettings
from captioning.runtime.cores import num_cores

MOST = 8  # more of them seldom help, and each holds batches in memory


def build_loader(
    dataset: CaptionDataset,
    sampler: Any,
    settings: LoaderSettings,
    *,
    reads_pixels: bool,
    num_processes: int = 1,
    pin: bool = False,
    keep: bool = False,
) -> DataLoader[Any]:
    """A loader of complete batches.

    Args:
        dataset: makes batches.
        sampler: gives it the positions of each.
        settings: see `LoaderSettings`.
        reads_pixels: whether photos are read, for which ``"auto"`` starts processes.
        num_processes: training processes on this machine, which share its cores.
        pin: put batches into page-locked memory, from which a GPU copies beside its other work.
        keep: let the processes live after a pass, for a loader that is used again.
    """
    number = settings.num_workers
    if not isinstance(number, int):
        number = auto_workers(num_processes) if reads_pixels else 0
    options: dict[str, Any] = {}
    if number:
        options = {
            "prefetch_factor": settings.prefetch_factor,
            "multiprocessing_context": settings.multiprocessing_context,
            "persistent_workers": keep,
        }
    return DataLoader(
        dataset, sampler=sampler, batch_size=None, num_workers=number, pin_memory=pin, **options
    )


def auto_workers(num_processes: int = 1) -> int:
    """Loader processes for each training process: its cores but one, at most `MOST`."""
    return max(0, min(MOST, num_cores() // num_processes - 1))


def pins_memory(trainer: Any) -> bool:
    """Whether batches go to a GPU: the trainer's device, or without one any that is there."""
    if trainer is None:
        return torch.cuda.is_available()
    return trainer.strategy.root_device.type == "cuda"
