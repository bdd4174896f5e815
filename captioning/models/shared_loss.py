"""The loss of a batch that several processes share, each of which has some of its captions."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from captioning.models.layers.weighted_mean import LEAST
from captioning.types import CaptionLosses, Mean


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
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return losses.total, losses.total
    means = losses.means or (Mean(value=losses.total, number=number),)
    own = torch.stack([mean.denominator for mean in means])
    values = torch.stack([mean.value.float() for mean in means])
    sums = torch.stack([own, own * values.detach()])
    dist.all_reduce(sums)
    shares = own / sums[0].clamp(min=LEAST)
    total = (sums[1] / sums[0].clamp(min=LEAST)).sum()
    return dist.get_world_size() * (shares * values).sum(), total
