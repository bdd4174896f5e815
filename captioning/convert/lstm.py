"""Weights of `torch.nn.LSTMCell` in the order of this project's cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from captioning.convert.converted import KeyUse

PARTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


def cell_names(*cells: str) -> list[str]:
    """Names of all tensors of LSTM cells, by the cells' prefixes."""
    return [f"{cell}{part}" for cell in cells for part in PARTS]


def cell_weights(state: Mapping[str, Tensor], cell: str) -> dict[str, Tensor]:
    """Tensors of a cell by `PARTS`, in our order of the gates."""
    return {part: our_gates(state[f"{cell}{part}"]) for part in PARTS}


def cell_keys(into: Mapping[str, Sequence[tuple[str, ...]]]) -> list[KeyUse]:
    """The outcomes for cells' keys, whose `PARTS` went into these names of this project."""
    return [
        KeyUse(key=f"{cell}{part}", into=names, note="gates in our order")
        for cell, targets in into.items()
        for part, names in zip(PARTS, targets, strict=True)
    ]


def our_gates(weight: Tensor) -> Tensor:
    """``(4H, ...)`` in torch's order (input, forget, candidate, output), the last two exchanged."""
    enter, forget, candidate, leave = weight.chunk(4)
    return torch.cat([enter, forget, leave, candidate])


def twin(layer: str, parameter: str) -> tuple[str, str]:
    """Names of a parameter and its twin; see `captioning.models.layers.twins`."""
    place = f"{layer}.parametrizations.{parameter}"
    return f"{place}.original", f"{place}.0.second"


def renamed(
    state: Mapping[str, Tensor], names: Mapping[str, str]
) -> tuple[dict[str, Tensor], list[KeyUse]]:
    """Tensors under other names, and the outcomes for their keys."""
    weights = {ours: state[theirs] for theirs, ours in names.items()}
    return weights, [KeyUse(key=theirs, into=(ours,)) for theirs, ours in names.items()]
