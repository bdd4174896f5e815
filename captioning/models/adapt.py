"""Choose the trainable parameters of a captioner: all, some, or LoRA weights of some layers.

LoRA weights (Hu et al., 2022) are exported separately, or merged into the weights of their layers.
Kinds:

- ``lora``: as published, scaled by alpha / rank;
- ``rslora``: scaled by alpha / sqrt(rank) (Kalajdzievski, 2023);
- ``dora``: with a trainable magnitude for each row of a layer's weights (Liu et al., 2024).
"""

from __future__ import annotations

import copy
import fnmatch
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MethodType
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from captioning.models.base import AbstractCaptioner
from captioning.models.layers.quantized import dense_weight, is_quantized, make_dense, weight_type
from captioning.runtime.extras import import_extra

ADAPTER = "default"  # the name that peft gives additions
LowRankKind = Literal["lora", "rslora", "dora"]


def kind_options(kind: LowRankKind | None) -> dict[str, bool]:
    """Return the options of peft's ``LoraConfig`` for a kind of LoRA; None: ``lora``."""
    return {"use_rslora": kind == "rslora", "use_dora": kind == "dora"}


def freeze(model: nn.Module, patterns: Sequence[str]) -> None:
    """Freeze parameters by name.

    Args:
        model: the captioner.
        patterns: glob patterns of parameter names, such as ``"backbone.*"``.

    Raises:
        ValueError: a pattern matches no name, or no trainable parameter would remain.
    """
    parameters = dict(model.named_parameters())
    for pattern in patterns:
        matches = fnmatch.filter(parameters, pattern)
        if not matches:
            raise ValueError(
                f"model.frozen: no parameter name matches {pattern!r}; names are "
                f"{', '.join(list(parameters)[:5])}, ..."
            )
        for name in matches:
            parameters[name].requires_grad_(False)
    if not any(parameter.requires_grad for parameter in parameters.values()):
        raise ValueError("model.frozen freezes all parameters: name fewer parameters")


def add_low_rank(
    model: AbstractCaptioner[Any],
    *,
    rank: int,
    alpha: float,
    dropout: float,
    kind: LowRankKind | None = None,
    modules: Sequence[str] | None = None,
    within: str | None = None,
) -> None:
    """Freeze the model and add trainable LoRA weights to some of its layers.

    Args:
        model: the captioner.
        rank: rank of the LoRA weights.
        alpha: scale, divided by the rank or its square root.
        dropout: dropout of the layers' inputs, at least 0 and below 1.
        kind: see `captioning.models.adapt`; None: ``lora``.
        modules: last parts of the layers' names, such as ``query``; None: all linear layers of
            the language model except its head.
        within: glob pattern that the layers' full names must match, such as
            ``"*language_model*"``; None: the language model, ``"*"``: any layer.

    Raises:
        ModuleNotFoundError: peft is not installed.
        ValueError: no layer matches.
    """
    peft = import_extra("peft", extra="vlm", purpose="model.lora")
    config = peft.LoraConfig(
        r=rank,
        lora_alpha=alpha,
        lora_dropout=dropout,
        target_modules=_layers(model, modules, within),
        **kind_options(kind),
    )
    model.requires_grad_(False)
    with warnings.catch_warnings():  # about peft's merging, which `merged_low_rank` does not need
        warnings.filterwarnings("ignore", ".*get_apply_tensor_subclass.*")
        peft.inject_adapter_in_model(config, model)
    for layer in model.modules():
        if isinstance(layer, peft.tuners.lora.Linear):
            layer.forward = MethodType(_layer_forward, layer)
    for parameter in model.parameters():
        if parameter.requires_grad:  # additions to half-precise weights would not learn small steps
            parameter.data = parameter.data.float()


def _layer_forward(layer: Any, inputs: Tensor, *args: Any, **options: Any) -> Tensor:
    """Compute peft's ``forward``, as one operation for a layer with only LoRA weights."""
    base, adapters = layer.base_layer, layer.active_adapters
    plain = not (args or options or layer.merged or layer.disable_adapters or layer.lora_variant)
    is_linear = type(base) is nn.Linear or is_quantized(base)
    if plain and len(adapters) == 1 and is_linear and not base.weight.requires_grad:
        (name,) = adapters
        first, second = layer.lora_A[name].weight, layer.lora_B[name].weight
        alike = inputs.dtype == weight_type(base) == first.dtype
        drops = layer.training and not isinstance(layer.lora_dropout[name], nn.Identity)
        if alike and not drops and not torch.is_autocast_enabled(inputs.device.type):
            return _LowRank.apply(inputs, base, base.bias, first, second, layer.scaling[name])
    return type(layer).forward(layer, inputs, *args, **options)


class _LowRank(torch.autograd.Function):
    """``x W' + b + s x A' B'`` for a frozen layer, without a second output to add.

    Quantized weights are dequantized in each pass and not stored in between.
    """

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        base: nn.Module,
        bias: Tensor | None,
        first: Tensor,
        second: Tensor,
        scale: float,
    ) -> Tensor:
        rows = inputs.reshape(-1, inputs.shape[-1])
        inner = rows @ first.t()
        outputs = functional.linear(rows, dense_weight(base), bias)
        outputs.addmm_(inner, second.t(), alpha=scale)
        ctx.save_for_backward(inputs, first, second, inner)
        ctx.base, ctx.scale = base, scale
        return outputs.view(*inputs.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        inputs, first, second, inner = ctx.saved_tensors
        rows, upper = inputs.reshape(-1, inputs.shape[-1]), outer[0].reshape(-1, len(second))
        lower = ctx.scale * (upper @ second)
        of_first, of_second = lower.t() @ rows, ctx.scale * (upper.t() @ inner)
        below = None
        if ctx.needs_input_grad[0]:
            below = (upper @ dense_weight(ctx.base)).addmm_(lower, first).view_as(inputs)
        return below, None, None, of_first, of_second, None


def _layers(
    model: AbstractCaptioner[Any], modules: Sequence[str] | None, within: str | None
) -> list[str]:
    """Return the full names of the layers that get LoRA weights."""
    linear = [name for name, layer in model.named_modules() if isinstance(layer, nn.Linear)]
    usual = model.low_rank_layers()
    if modules is None and usual is None:
        raise ValueError(
            f"model.lora.modules: {type(model).__name__} has no separate language model to "
            f"choose by default; name layers: {_listed(linear)}"
        )
    if modules is not None:
        known = {name.rpartition(".")[2] for name, _ in model.named_modules()}
        if missing := sorted(set(modules) - known):
            raise ValueError(
                f"model.lora.modules: no layer is named {', '.join(missing)}; linear layers are "
                f"named {_listed(linear)}"
            )
    names = [name for name, _ in model.named_modules()] if modules else usual or []
    if modules and within is None and usual is not None:
        within = f"{os.path.commonpath([n.replace('.', '/') for n in usual]).replace('/', '.')}.*"
    chosen = [
        name
        for name in names
        if (not modules or name.rpartition(".")[2] in modules)
        and (within is None or fnmatch.fnmatch(name, within))
    ]
    if not chosen:
        raise ValueError(
            f"model.lora.within: no layer of model.lora.modules matches {within!r}; set "
            'model.lora.within="*" to allow all of them'
        )
    return chosen


def _listed(names: Sequence[str]) -> str:
    return ", ".join(sorted({name.rpartition(".")[2] for name in names}))


@contextmanager
def without_low_rank(model: nn.Module) -> Iterator[None]:
    """Disable the LoRA weights of a model within this context.

    Args:
        model: model in which only LoRA weights are trained.

    Raises:
        ValueError: the model has no LoRA weights, or trains other parameters.
    """
    layers: list[Any] = [layer for layer in model.modules() if hasattr(layer, "get_base_layer")]
    trained = [name for name, value in model.named_parameters() if value.requires_grad]
    others = [name for name in trained if ".lora_" not in name]
    if not layers or others:
        named = f" ({others[0]}, for one)" if others else ""
        raise ValueError(
            f"the objective needs the model before training, but the run does not train LoRA "
            f"weights only{named}: set model.lora (experiment=vlm/low_rank), or "
            "objective.beta=0"
        )
    for layer in layers:
        layer.enable_adapters(False)
    try:
        yield
    finally:
        for layer in layers:
            layer.enable_adapters(True)


def merged_low_rank(network: nn.Module) -> nn.Module:
    """Copy a network with its LoRA weights merged into the layers' weights.

    Quantized weights become dense in the copy, to avoid rounding again.

    Args:
        network: network with or without peft layers; it is not modified.

    Raises:
        ValueError: a layer with LoRA weights shares its weights with another layer, which would
            change, too.
    """
    merged = copy.deepcopy(network)
    make_dense(merged)
    parts: dict[str, Any] = {
        name: part for name, part in merged.named_modules() if hasattr(part, "get_base_layer")
    }
    parameters = [parameter for _, parameter in merged.named_parameters(remove_duplicate=False)]
    for name, part in parts.items():
        base = part.get_base_layer()
        if sum(parameter is base.weight for parameter in parameters) > 1:
            raise ValueError(
                f"{name} shares its weights with another layer, so its LoRA weights cannot be "
                "merged: leave it out of model.lora.modules"
            )
        _merge(part)
        parent, _, last = name.rpartition(".")
        setattr(merged.get_submodule(parent), last, base)
    return merged


def _merge(part: Any) -> None:
    """Add LoRA weights to a layer's dense weights.

    The class for torchao's weights would quantize the sum, and needs more of its base than a sum.
    """
    peft = import_extra("peft", extra="vlm", purpose="model.lora")
    own = type(part)
    is_linear = isinstance(part, peft.tuners.lora.Linear)
    (peft.tuners.lora.Linear if is_linear else own).merge(part)


def low_rank_tensors(networks: Mapping[str, nn.Module]) -> tuple[dict[str, Tensor], list[str]]:
    """Return LoRA tensors named as in peft's files, and the layers that have them.

    Args:
        networks: parts of a model by name prefix, such as ``""``.

    Returns:
        Tensors, and ``target_modules``: last parts of names if these select the same layers,
        otherwise full names.
    """
    parts = {
        f"{before}{name}": part
        for before, network in networks.items()
        for name, part in network.named_modules()
        if name
    }
    layers = [name for name, part in parts.items() if hasattr(part, "get_base_layer")]
    tensors = {
        f"base_model.model.{name}.{_own_name(own)}": value.detach().cpu()
        for name in layers
        for own, value in parts[name].named_parameters()
        if own.startswith("lora_")
    }
    inner = tuple(f"{name}." for name in layers)
    last = {name.rpartition(".")[2] for name in layers}
    chosen = {n for n in parts if n.rpartition(".")[2] in last and not n.startswith(inner)}
    return tensors, sorted(last if chosen == {*layers} else layers)


def _own_name(name: str) -> str:
    """Rename a LoRA tensor as in peft's files; DoRA's magnitudes lose ``weight``."""
    plain = name.replace(f".{ADAPTER}", "")
    return plain.removesuffix(".weight") if plain.startswith("lora_magnitude") else plain
