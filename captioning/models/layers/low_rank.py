"""Low-rank additions (Hu et al., 2022) made part of the weights that they were trained beside."""

from __future__ import annotations

import copy
from typing import Any

from torch import nn


def merged_low_rank(network: nn.Module) -> nn.Module:
    """A copy without additions, that computes the same: each is added to its layer's weights.

    Args:
        network: with layers of peft among its parts, or without any; it stays as it is.

    Raises:
        ValueError: a layer with an addition shares its weights with another one, which would
            change, too.
    """
    merged = copy.deepcopy(network)
    parts: dict[str, Any] = {
        name: part for name, part in merged.named_modules() if hasattr(part, "get_base_layer")
    }
    every = [parameter for _, parameter in merged.named_parameters(remove_duplicate=False)]
    for name, part in parts.items():
        base = part.get_base_layer()
        if sum(parameter is base.weight for parameter in every) > 1:
            raise ValueError(
                f"{name} shares its weights with another layer, so that its low-rank additions "
                "cannot be merged: leave it out of model.lora.modules"
            )
        part.merge()
        parent, _, last = name.rpartition(".")
        setattr(merged.get_submodule(parent), last, base)
    return merged
