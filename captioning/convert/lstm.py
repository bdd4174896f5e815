"""Weights of `torch.nn.LSTMCell` in the order of this project's cells."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from captioning.convert.converted import KeyUse


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
    """Tensors under other names, and what is said about their keys."""
    weights = {ours: state[theirs] for theirs, ours in names.items()}
    return weights, [KeyUse(key=theirs, into=(ours,)) for theirs, ours in names.items()]
