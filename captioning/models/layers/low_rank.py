"""Low-rank additions (Hu et al., 2022) merged into the weights of their layers."""

from __future__ import annotations

import copy
from typing import Any

from torch import nn


def merged_low_rank(network: nn.Module) -> nn.Module:
    """A copy that computes the same without additions: each is added to its layer's weights.

    Args:
        network: with or without layers of peft; it is not changed.

    Raises:
        ValueError: a layer with an addition shares its weights with another layer, which would
            change too.
    """
    merged = copy.deepcopy(network)
    parts: dict[str, Any] = {
        name: part for name, part in merged.named_modules() if hasattr(part, "get_base_layer")
    }
    parameters = [parameter for _, parameter in merged.named_parameters(remove_duplicate=False)]
    for name, part in parts.items():
        base = part.get_base_layer()
        if sum(parameter is base.weight for parameter in parameters) > 1:
            raise ValueError(
                f"{name} shares its weights with another layer, so that its low-rank additions "
                "cannot be merged: leave it out of model.lora.modules"
            )
        part.merge()
        parent, _, last = name.rpartition(".")
        setattr(merged.get_submodule(parent), last, base)
    return merged
