"""The loss of a batch that several processes share, each of which has some of its captions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from captioning.models.layers.weighted_mean import LEAST
from captioning.types import CaptionLosses, Mean


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedMeans:
    """The M means of a loss, over all processes.

    Attributes:
        own: M scalars with gradient, of this process.
        own_denominators: ``(M,) float32``, of this process.
        values: ``(M,) float32``, detached, of all processes.
        denominators: ``(M,) float32``, of all processes.
        num_processes: at least 1; they average their gradients.
    """

    own: tuple[Tensor, ...]
    own_denominators: Tensor
    values: Tensor
    denominators: Tensor
    num_processes: int


def shared_means(losses: CaptionLosses, number: int) -> SharedMeans:
    """The means of a loss, to be weighed by their denominators.

    Args:
        losses: of this process's captions.
        number: of these captions.
    """
    means = losses.means or (Mean(value=losses.total, number=number),)
    own = torch.stack([mean.denominator for mean in means])
    values = torch.stack([mean.value.detach().float() for mean in means])
    sums = torch.stack([own, own * values])
    if is_shared := _is_shared():
        dist.all_reduce(sums)
    return SharedMeans(
        own=tuple(mean.value for mean in means),
        own_denominators=own,
        values=sums[1] / sums[0].clamp(min=LEAST),
        denominators=sums[0],
        num_processes=dist.get_world_size() if is_shared else 1,
    )


def shared_loss(losses: CaptionLosses, number: int) -> tuple[Tensor, Tensor]:
    """What to go backward from, and the loss of the batch over all processes.

    Processes average their gradients. That of the mean of means is not that of one mean, as one
    process may have more tokens than another. So each of the loss's means is scaled by the number
    of processes times its share of the denominator. This costs one small sum over the processes,
    for which the program does not wait where there is a GPU.

    Args:
        losses: of this process's captions.
        number: of these captions.

    Returns:
        Both are ``losses.total`` where there is one process.
    """
    if not _is_shared():
        return losses.total, losses.total
    means = shared_means(losses, number)
    shares = means.own_denominators / means.denominators.clamp(min=LEAST)
    values = torch.stack([value.float() for value in means.own])
    return means.num_processes * (shares * values).sum(), means.values.sum()


def _is_shared() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
