"""The estimate of a run's energy on its card."""

from __future__ import annotations

from pathlib import Path

import pytest

from captioning.export.energy import CardFacts, energy
from captioning.runtime.files import write_json

TRAINER = {"accelerator": "auto", "devices": 2, "num_nodes": 1}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Two hours of training."""
    write_json(tmp_path / "timing.json", {"epochs": [{"seconds": 3600.0}, {"seconds": 3600.0}]})
    write_json(tmp_path / "versions.json", {"gpu": "one of these", "threads": 4})
    return tmp_path


def test_given_numbers_are_used(run: Path) -> None:
    text = energy(run, TRAINER, CardFacts(watts=50, grid=100))
    assert text.startswith("About 0.1 kWh and 10 g of CO2 equivalent.")
    assert "2 hours of training at 50 W (as given), and 100 g a kWh" in text


def test_what_is_assumed_is_said(run: Path) -> None:
    text = energy(run, TRAINER, CardFacts())
    assert text.startswith("About 1.2 kWh and 523 g of CO2")
    assert "at 600 W (assumed: 300 W for each of 2 GPUs), and 436 g a kWh" in text
    on_processor = {"accelerator": "cpu"}
    assert "40 W (assumed: 10 W for each of 4 threads)" in energy(run, on_processor, CardFacts())


def test_a_run_without_times_has_no_estimate(tmp_path: Path) -> None:
    assert energy(tmp_path, TRAINER, CardFacts()) == "Not known: the run kept no times."
