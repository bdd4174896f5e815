"""Which parameters of a captioner train: all, some, or low-rank additions to some."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence

from omegaconf import DictConfig
from torch import nn

from captioning.extras import import_extra


def freeze(model: nn.Module, patterns: Sequence[str]) -> None:
    """Stop the training of parameters by name.

    Args:
        model: the captioner.
        patterns: shell patterns of parameters' names, such as ``"backbone.*"``.

    Raises:
        ValueError: a pattern that no name matches, or nothing would be left to train.
    """
    parameters = dict(model.named_parameters())
    for pattern in patterns:
        matches = fnmatch.filter(parameters, pattern)
        if not matches:
            raise ValueError(
                f"model.frozen: no parameter is named like {pattern!r}; there are "
                f"{', '.join(list(parameters)[:5])}, ..."
            )
        for name in matches:
            parameters[name].requires_grad_(False)
    if not any(parameter.requires_grad for parameter in parameters.values()):
        raise ValueError("model.frozen leaves nothing to train: name fewer parameters")


def add_low_rank(model: nn.Module, settings: DictConfig) -> None:
    """Freeze the model and train low-rank additions to some of its layers (Hu et al., 2022).

    Args:
        model: the captioner.
        settings: ``rank``, ``alpha``, ``dropout``; ``modules``: last parts of the layers' names,
            such as ``query``; and ``within``: a shell pattern of complete names, such as
            ``"*language_model*"``, which the layers' names must match; None for all.

    Raises:
        ModuleNotFoundError: peft is not installed.
        ValueError: no layer has such a name.
    """
    peft = import_extra("peft", extra="vlm", purpose="model.lora")
    names = list(settings.modules)
    known = {name.rpartition(".")[2] for name, _ in model.named_modules()}
    if missing := sorted(set(names) - known):
        layers = [name for name, layer in model.named_modules() if isinstance(layer, nn.Linear)]
        linear = {name.rpartition(".")[2] for name in layers}
        raise ValueError(
            f"model.lora.modules: no layer is named {', '.join(missing)}; linear layers are named "
            f"{', '.join(sorted(linear))}"
        )
    config = peft.LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules=_complete_names(model, names, settings.get("within")),
    )
    model.requires_grad_(False)
    peft.inject_adapter_in_model(config, model)
    for parameter in model.parameters():
        if parameter.requires_grad:  # additions to half-precise weights would not learn small steps
            parameter.data = parameter.data.float()


def _complete_names(model: nn.Module, names: Sequence[str], within: str | None) -> list[str]:
    """The layers' names as peft takes them: their last parts, or complete ones."""
    if within is None:
        return list(names)
    complete = [
        name
        for name, _ in model.named_modules()
        if name.rpartition(".")[2] in names and fnmatch.fnmatch(name, within)
    ]
    if not complete:
        raise ValueError(f"model.lora.within: no layer of model.lora.modules is in {within!r}")
    return complete


def adapt(model: nn.Module, settings: DictConfig) -> None:
    """Carry out ``model.lora`` and ``model.frozen``, where the config has them.

    Args:
        model: the captioner.
        settings: the config group ``model``.
    """
    if settings.get("lora"):
        add_low_rank(model, settings.lora)
    if settings.get("frozen"):
        freeze(model, settings.frozen)
