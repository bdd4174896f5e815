"""Several processes (gloo) train, edit and score as one does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from captioning.models.training_steps import shared_loss
from captioning.runtime.files import read_json
from captioning.types import CaptionLosses, Mean
from tests.captioning.training import process_run
from tests.captioning.training.process_run import PROCESSES, cases
from tests.host_syncs import simulated_device
from tests.tiny import build, make_batch

# Of sums of float32 in another order, over three epochs.
TOLERANCE = {"rtol": 1e-4, "atol": 2e-6}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    """The folder of all trainings."""
    folder = tmp_path_factory.mktemp("runs")
    environment = {"PYTHONPATH": str(repository), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, process_run.__file__, folder],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def check_equal(folder: Path, other: Path) -> None:
    ends = [torch.load(run / "end.pt", weights_only=True) for run in (folder, other)]
    torch.testing.assert_close(ends[0]["weights"], ends[1]["weights"], **TOLERANCE)
    torch.testing.assert_close(ends[0]["loss"], ends[1]["loss"], **TOLERANCE)
    journals = [(run / "curation.jsonl").read_bytes() for run in (folder, other)]
    assert journals[0] == journals[1]
    assert journals[0].count(b"\n") > 3
    scores = [read_json(run / "history.json") for run in (folder, other)]
    assert [entry["samples"] for entry in scores[0]] == [entry["samples"] for entry in scores[1]]


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "number"), [(name, number) for number in PROCESSES[1:] for name in cases(number)]
)
def test_weights_edits_and_captions_are_those_of_one(name: str, number: int, runs: Path) -> None:
    check_equal(runs / f"{name}-1", runs / f"{name}-{number}")


@pytest.mark.long
def test_a_run_goes_on_with_another_number_of_processes(runs: Path) -> None:
    check_equal(runs / "updown-1", runs / "changing")


@pytest.mark.long
def test_captions_of_all_processes_are_counted(runs: Path) -> None:
    for name in ("cic_bart", "viecap"):
        folders = [runs / f"{name}-{number}" for number in PROCESSES if name in cases(number)]
        timings = [read_json(folder / "timing.json")["epochs"] for folder in folders]
        captions = [[e["seconds"] * e["captions_per_second"] for e in run] for run in timings]
        assert all(counted == pytest.approx(captions[0]) for counted in captions[1:])


def test_one_process_adds_nothing_to_its_loss() -> None:
    losses = build("updown").losses(make_batch())
    assert shared_loss(losses, 6) == (losses.total, losses.total)


def test_means_are_over_all_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process has the same losses with other numbers of tokens."""
    total = torch.tensor([3.0, 5.0], requires_grad=True)
    means = (
        Mean(value=total[0], number=4),
        Mean(value=total[1], number=9, weights=torch.tensor([0.5, 0.0, 0.5])),
    )
    losses = CaptionLosses(total=total.sum(), per_sample=torch.ones(3), means=means)
    with_others(monkeypatch, torch.tensor([[12.0, 1.0], [12 * 7.0, 9.0]]))
    loss, logged = shared_loss(losses, 3)
    assert float(logged) == pytest.approx((4 * 3 + 12 * 7) / 16 + (5 + 9) / 2)
    loss.backward()
    assert total.grad.tolist() == pytest.approx([2 * 4 / 16, 2 * 1 / 2])


def test_a_process_whose_captions_do_not_count_has_no_gradient(monkeypatch) -> None:
    value = torch.tensor(0.0, requires_grad=True)
    mean = Mean(value=value, number=2, weights=torch.zeros(2))
    losses = CaptionLosses(total=value, per_sample=torch.ones(2), means=(mean,))
    with_others(monkeypatch, torch.tensor([[5.0], [10.0]]))
    loss, logged = shared_loss(losses, 2)
    loss.backward()
    assert (float(value.grad), float(logged)) == (0.0, 2.0)


@pytest.mark.parametrize("name", ["updown", "cos_cvae", "cic_bart"])
def test_the_sum_over_processes_does_not_wait_for_the_device(name: str, monkeypatch) -> None:
    model = build(name).train()
    with_others(monkeypatch, torch.ones(2, 1))
    with simulated_device(monkeypatch) as syncs, syncs:
        syncs.put([*model.parameters(), *model.buffers()])
        loss, _ = shared_loss(model.losses(make_batch().to("device")), 6)
        loss.backward()
    assert syncs.places == []


def with_others(monkeypatch: pytest.MonkeyPatch, sums: torch.Tensor) -> None:
    """As if there were a second process with these sums."""
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    monkeypatch.setattr(dist, "all_reduce", lambda tensor: tensor.add_(sums))
