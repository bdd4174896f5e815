"""How a finished run of ViECap finds the entities of photos, where it is not as in training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig

from captioning.models.base import AbstractCaptioner
from captioning.models.viecap import ViECap
from captioning.training.parts import build_part


def use_entities(
    model: AbstractCaptioner,
    config: DictConfig,
    data: DictConfig | None,
    chosen: Mapping[str, Any],
) -> dict[str, Any]:
    """Let a run's model find entities in the way that is published for a data set, or chosen.

    Args:
        model: of the run.
        config: of the run.
        data: the data set that is captioned; its ``entities`` count if the run's
            ``model.entities_of_data`` says so. None: the run's own, which changes nothing.
        chosen: ``photo_names``, ``threshold``, ``num_entities`` and ``temperature``, which count
            before the data set's; None for any: not chosen.

    Returns:
        What is not as in training.

    Raises:
        ValueError: something is chosen for a run whose model has no entities.
        FileNotFoundError: no such list of names.
    """
    chosen = {name: value for name, value in chosen.items() if value is not None}
    if not isinstance(model, ViECap) or model.entities is None:
        if chosen:
            raise ValueError(
                f"entities.{next(iter(chosen))}: the run's model ({config.model.name}) finds no "
                "entities in photos; leave it out"
            )
        return {}
    published = data.get("entities") if data is not None else None
    follows_data = config.model.get("entities_of_data", False)
    settings = {**(published if published and follows_data else {}), **chosen}
    as_trained = {**config.model.module, "photo_names": config.model.get("photo_names")}
    changes = {
        name: value
        for name, value in settings.items()
        if value is not None and value != as_trained.get(name)
    }
    names = changes.get("photo_names")
    index = build_part(config.model.module.entities, photo_names=names) if names else None
    numbers = {name: value for name, value in changes.items() if name != "photo_names"}
    model.use_entities(index, **numbers)
    return changes
