"""How a finished run of ViECap finds the entities of photos, where it is not as in training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig

from captioning.models.base import AbstractCaptioner
from captioning.models.viecap import ViECap
from captioning.text.entities import read_photo_names
from captioning.training.parts import build_part


def entity_changes(
    config: DictConfig, data: DictConfig | None, chosen: Mapping[str, Any]
) -> dict[str, Any]:
    """What is published for a data set, or chosen, and is not as in a run's training.

    Args:
        config: of the run.
        data: the data set that is captioned; its ``entities`` count if the run's
            ``model.entities_of_data`` says so. None: the run's own, which changes nothing.
        chosen: ``photo_names``, ``threshold``, ``num_entities`` and ``temperature``, which count
            before the data set's; None for any: not chosen.

    Raises:
        ValueError: something is chosen for a run whose model has no entities, or a list without
            names.
        FileNotFoundError: no such list of names.
    """
    chosen = {name: value for name, value in chosen.items() if value is not None}
    module = config.model.get("module") or {}
    if not module.get("entities"):
        if chosen:
            raise ValueError(
                f"entities.{next(iter(chosen))}: the run's model ({config.model.name}) finds no "
                "entities in photos; leave it out"
            )
        return {}
    follows_data = data is not None and config.model.get("entities_of_data", False)
    published = (data.get("entities") or {}) if data is not None and follows_data else {}
    as_trained = {**module, "photo_names": config.model.get("photo_names")}
    changes = {
        name: value
        for name, value in {**published, **chosen}.items()
        if value is not None and value != as_trained.get(name)
    }
    if "photo_names" in changes:  # before photos are read
        read_photo_names(changes["photo_names"])
    return changes


def use_entities(
    model: AbstractCaptioner, config: DictConfig, changes: Mapping[str, Any]
) -> AbstractCaptioner:
    """Let a run's model find entities with the changes of `entity_changes`."""
    if changes and isinstance(model, ViECap):
        numbers = {name: value for name, value in changes.items() if name != "photo_names"}
        names = changes.get("photo_names")
        index = build_part(config.model.module.entities, photo_names=names) if names else None
        model.use_entities(index, **numbers)
    return model
