"""Convert weights of `torch.nn.LSTMCell` to this project's LSTM cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from captioning.convert.converted import KeyUse

PARTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


def cell_names(*cells: str) -> list[str]:
    """Names of all tensors of LSTM cells with these prefixes."""
    return [f"{cell}{part}" for cell in cells for part in PARTS]


def cell_weights(state: Mapping[str, Tensor], cell: str) -> dict[str, Tensor]:
    """Tensors of a cell by `PARTS`, with the gates in this project's order."""
    return {part: our_gates(state[f"{cell}{part}"]) for part in PARTS}


def cell_keys(into: Mapping[str, Sequence[tuple[str, ...]]]) -> list[KeyUse]:
    """Results of the conversion for cells' keys, whose `PARTS` got these names."""
    return [
        KeyUse(key=f"{cell}{part}", into=names, note="gates in our order")
        for cell, targets in into.items()
        for part, names in zip(PARTS, targets, strict=True)
    ]


def our_gates(weight: Tensor) -> Tensor:
    """Reorder gates ``(4H, ...)`` from torch's order: exchange candidate and output."""
    enter, forget, candidate, leave = weight.chunk(4)
    return torch.cat([enter, forget, leave, candidate])


def twin(layer: str, parameter: str) -> tuple[str, str]:
    """Names of a parameter and its copy; see `captioning.models.layers.twins`."""
    place = f"{layer}.parametrizations.{parameter}"
    return f"{place}.original", f"{place}.0.second"


def renamed(
    state: Mapping[str, Tensor], names: Mapping[str, str]
) -> tuple[dict[str, Tensor], list[KeyUse]]:
    """Rename tensors; return them and the result for each key."""
    weights = {ours: state[theirs] for theirs, ours in names.items()}
    return weights, [KeyUse(key=theirs, into=(ours,)) for theirs, ours in names.items()]
