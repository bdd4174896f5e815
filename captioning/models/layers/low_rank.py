"""Low-rank additions (Hu et al., 2022): merged into the weights of their layers, or alone."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

ADAPTER = "default"  # the name that peft gives additions


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


def low_rank_tensors(networks: Mapping[str, nn.Module]) -> tuple[dict[str, Tensor], list[str]]:
    """Low-rank additions under the names of peft's files, and the layers that have them.

    Args:
        networks: parts of a model by what stands before their names there, such as ``""``.

    Returns:
        Tensors, and ``target_modules``: last parts of names where these choose the same layers,
        complete names otherwise.
    """
    parts = {
        f"{before}{name}": part
        for before, network in networks.items()
        for name, part in network.named_modules()
        if name
    }
    layers = [name for name, part in parts.items() if hasattr(part, "get_base_layer")]
    tensors = {
        f"base_model.model.{name}.{own.replace(f'.{ADAPTER}', '')}": value.detach().cpu()
        for name in layers
        for own, value in parts[name].named_parameters()
        if own.startswith("lora_")
    }
    inner = tuple(f"{name}." for name in layers)
    last = {name.rpartition(".")[2] for name in layers}
    chosen = {n for n in parts if n.rpartition(".")[2] in last and not n.startswith(inner)}
    return tensors, sorted(last if chosen == {*layers} else layers)
