"""Rank of this process, and a check that all processes decided on the same edits."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor

# What launchers set before processes have met: torchrun, Slurm, Lightning.
RANKS = ("RANK", "SLURM_PROCID", "LOCAL_RANK")


def is_writer() -> bool:
    """Return whether this process is the one that writes files (rank 0)."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank() == 0
    ranks = (os.environ.get(name, "") for name in RANKS)
    return next((int(rank) for rank in ranks if rank.isdecimal()), 0) == 0


def wait_for_all() -> None:
    """Wait until all processes reach this call."""
    if dist.is_available() and dist.is_initialized():
        dist.barrier()


def summed(values: Tensor) -> Tensor:
    """Sum a tensor over all processes and return it on the CPU; all processes must call this."""
    if dist.is_available() and dist.is_initialized():
        values = values.clone()
        dist.all_reduce(values)
    return values.cpu()


def check_agreement(lines: Iterable[str], device: torch.device, epoch: int) -> None:
    """Raise RuntimeError if processes decided on different edits.

    Args:
        lines: lines of the journal, in order.
        device: the device that the processes communicate through.
        epoch: the epoch of the decision.

    Raises:
        RuntimeError: the lines differ between processes.
    """
    if not (dist.is_available() and dist.is_initialized()):
        return
    digest = 0
    for line in lines:
        digest = zlib.crc32(line.encode(), digest)
    ends = torch.tensor([digest, -digest], dtype=torch.int64, device=device)
    dist.all_reduce(ends, op=dist.ReduceOp.MAX)
    if int(ends[0]) != -int(ends[1]):
        raise RuntimeError(
            f"processes decided on different edits at the end of epoch {epoch}: give all "
            "processes the same samples in the same order, and the same policy, seed and folder"
        )
