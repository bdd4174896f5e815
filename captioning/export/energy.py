"""Estimate of the energy and emissions of a run's training, with its assumptions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from captioning.config.ranges import Name, NonNegativeFloat, PositiveFloat
from captioning.runtime.files import read_json

WATTS_OF_A_GPU, WATTS_OF_A_CORE = 300.0, 10.0
# Grams of CO2 equivalent a kWh, world average of 2022: Ember, Global Electricity Review 2023.
GRID = 436.0


@dataclass(frozen=True, kw_only=True)
class CardFacts:
    """Facts for a model card that the run does not record.

    Attributes:
        terms: terms of use of the data, as their owners state them.
        watts: power that the machines drew while they trained; None: assumed from devices or
            threads.
        grid: grams of CO2 equivalent per kWh at the place of training.
    """

    terms: Name | None = None
    watts: PositiveFloat | None = None
    grid: NonNegativeFloat = GRID


def energy(run: Path, trainer: Mapping[str, Any], facts: CardFacts) -> str:
    """Paragraph on energy and emissions for the model card.

    Args:
        run: folder of the run, with ``timing.json`` and ``versions.json``.
        trainer: Lightning's arguments in the run: ``accelerator``, ``devices``, ``num_nodes``.
        facts: known facts on the machines.

    Raises:
        ValueError: a file is damaged.
    """
    path = run / "timing.json"
    epochs = read_json(path, dict).get("epochs", []) if path.is_file() else []
    if not epochs:
        return "Not known: the run kept no times."
    hours = sum(float(epoch["seconds"]) for epoch in epochs) / 3600
    watts, how = facts.watts, "as given"
    if watts is None:
        watts, how = _assumed(run, trainer)
    used = hours * watts / 1000
    return (
        f"About {_number(used)} kWh and {_number(used * facts.grid)} g of CO2 equivalent. "
        f"Estimated: {_number(hours)} hours of training at {watts:g} W ({how}), and "
        f"{facts.grid:g} g a kWh. "
        "Validation, features, earlier runs, cooling and the making of the machines are not in it."
    )


def _assumed(run: Path, trainer: Mapping[str, Any]) -> tuple[float, str]:
    path = run / "versions.json"
    versions: dict[str, Any] = read_json(path, dict) if path.is_file() else {}
    if versions.get("gpu") and trainer.get("accelerator") != "cpu":
        devices, nodes = trainer.get("devices", 1), trainer.get("num_nodes", 1)
        count = devices * nodes if isinstance(devices, int) and devices > 0 else nodes
        return count * WATTS_OF_A_GPU, f"assumed: {WATTS_OF_A_GPU:g} W for each of {count} GPUs"
    threads = int(versions.get("threads") or 1)
    return (
        threads * WATTS_OF_A_CORE,
        f"assumed: {WATTS_OF_A_CORE:g} W for each of {threads} threads",
    )


def _number(value: float) -> str:
    return f"{value:.2g}" if value < 10 else f"{value:,.0f}"
