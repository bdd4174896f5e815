"""Run UpDown's recurrence on a GPU as one CUDA graph.

Its time steps start some 2,300 operations per batch, 95% of a training step's operations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from captioning.models.layers.cuda_graphs import Graphed, Room, trains_on_gpu
from captioning.models.layers.on_device import on_device
from captioning.models.layers.updown_cell import CellWeights, recurrence

Recurrence = Callable[
    [Tensor, Tensor, Tensor, Tensor | None, Tensor, tuple[int, ...], CellWeights], Tensor
]


class GraphedRecurrence:
    """`recurrence` as a CUDA graph in training on a GPU, padded to the largest batch seen.

    Padding has no gradients, so results differ only by rounding.
    """

    def __init__(self) -> None:
        self._graphed = Graphed(_rectangular)
        self._room = Room()

    def __call__(self, gates_x: Tensor, *others: Any) -> Tensor:
        """Compute `recurrence`."""
        run = self.padded if trains_on_gpu(gates_x) else recurrence
        return run(gates_x, *others)

    def padded(
        self,
        gates_x: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Tensor | None,
        index: Tensor,
        sizes: tuple[int, ...],
        weights: CellWeights,
    ) -> Tensor:
        """Compute `recurrence` with padding, on any device."""
        images, regions = keys.shape[:2]
        captions, steps, all_images, all_regions = self._room.for_sizes(
            len(index), len(sizes), images, regions
        )
        places = torch.cat(
            [torch.arange(size) + step * captions for step, size in enumerate(sizes)]
        )
        places = on_device(places, gates_x.device)
        gates = gates_x.new_zeros(steps * captions, gates_x.shape[1])
        gates = gates.index_copy(0, places, gates_x)
        if mask is None:
            mask = torch.ones(keys.shape[:2], dtype=torch.bool, device=keys.device)
        missing = (0, all_regions - regions, 0, all_images - images)
        (outputs,) = self._graphed(
            gates,
            functional.pad(keys, (0, 0, *missing)),
            functional.pad(values, (0, 0, *missing)),
            functional.pad(mask, missing),
            functional.pad(index, (0, captions - len(index))),
            weights.hidden,
            weights.query,
            weights.score,
            weights.language,
            weights.bias,
        )
        return outputs.index_select(0, places)


def _rectangular(
    gates: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor,
    index: Tensor,
    hidden: Tensor,
    query: Tensor,
    score: Tensor,
    language: Tensor,
    bias: Tensor,
) -> tuple[Tensor]:
    """Compute `recurrence` for captions of equal length."""
    sizes = (len(index),) * (len(gates) // len(index))
    weights = CellWeights(hidden=hidden, query=query, score=score, language=language, bias=bias)
    return (recurrence(gates, keys, values, mask, index, sizes, weights),)
