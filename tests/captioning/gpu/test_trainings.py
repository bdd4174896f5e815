"""Trainings on a GPU: two, and one that was stopped, end in the same bits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.captioning.training.process_run import CASES, Case, fit

ON_GPU = {"accelerator": "gpu", "deterministic": True}
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*does not have many workers",
    "ignore:.*treespec, LeafSpec",
    "ignore:Checkpoint dir",
    "ignore:GPU available",
)


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """One process."""
    for name, value in {"WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}.items():
        monkeypatch.setenv(name, value)


def ended(case: Case, folder: Path, **options) -> dict[str, torch.Tensor]:
    """The last weights, and the loss."""
    fit(case, folder, **options)
    end = torch.load(folder / "end.pt", weights_only=True, map_location="cpu")
    return {"loss": end["loss"], **end["weights"]}


@pytest.mark.parametrize("name", CASES)
def test_two_and_a_resumed_one_end_in_the_same_bits(name: str, tmp_path: Path) -> None:
    case = replace(CASES[name], trainer={**CASES[name].trainer, **ON_GPU})
    first = ended(case, tmp_path / "first")
    second = ended(case, tmp_path / "second")
    half = tmp_path / "half"
    fit(case, half, epochs=1)
    resumed = ended(case, half, resume_from=half / "last.ckpt")
    for key, values in first.items():
        assert torch.equal(second[key], values), key
        assert torch.equal(resumed[key], values), key


@pytest.mark.parametrize("name", ["updown", "blip", "cic_bart"])
def test_a_training_ends_near_that_of_a_processor(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    moved = ended(replace(case, trainer={**case.trainer, **ON_GPU}), tmp_path / "gpu", epochs=1)
    for key, values in ended(case, tmp_path / "processor", epochs=1).items():
        torch.testing.assert_close(moved[key], values, rtol=1e-2, atol=1e-3)
