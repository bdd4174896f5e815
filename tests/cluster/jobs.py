"""Small trainings as jobs of a `LocalSlurm`, which wait at chosen updates for a signal."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from tests.captioning.conftest import SMALL
from tests.cluster.slurm import LocalSlurm, wait_for

REPOSITORY = Path(__file__).parents[2]
SETTINGS = (
    *SMALL,
    "loader.batch_size=10",
    "num_epochs=3",
    "steps=[plant_swap20]",
    "trainer.enable_progress_bar=false",
    "plugins=[tests.cluster.hold]",
)
PYTHON = f"{sys.executable} -m captioning train"
PATIENCE = 150.0  # seconds for a program that may have to share two cores with others
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
COMPARED = (
    *("metrics.json", "predictions.json", "history.json", "curation.jsonl"),
    *("curation/epochs.json", "curation/losses.npz", "curation/detection.json"),
    "curation/report.html",
)


def job_environment() -> dict[str, str]:
    """What trainings need of the environment."""
    # The nodes are no machines, so their names are no addresses.
    address = {"MASTER_ADDR": "127.0.0.1"}
    return {"PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1", **address}


@dataclass(kw_only=True)
class Job:
    """A training in a folder of its own.

    Args:
        slurm: whose queue it is in.
        base: parent of all runs, with the cache that they share.
        name: of the run.
        holds: updates (``EPOCH-BATCH``) at which it waits for a signal.
        overrides: further settings of the training.
        options: of ``sbatch``.
    """

    slurm: LocalSlurm
    base: Path
    name: str
    holds: Sequence[str] = ()
    overrides: Sequence[str] = ("curation=remove", "curation.select.ratio=0.1")
    options: Sequence[str] = ("--ntasks-per-node=1",)
    number: str = ""

    @property
    def folder(self) -> Path:
        """Of the run."""
        return self.base / "runs" / self.name

    @property
    def output(self) -> str:
        """All that its programs have printed."""
        path = self.base / f"{self.name}.out"
        return path.read_text() if path.is_file() else ""

    def settings(self) -> list[str]:
        """Overrides of the training."""
        own = [f"run_dir={self.folder}", f"paths.cache={self.base / 'cache'}"]
        return [*SETTINGS, *own, hold(self.base / "holds" / self.name, self.holds), *self.overrides]

    def submit(self) -> Job:
        """Queue it."""
        arguments = " ".join(f"'{setting}'" for setting in self.settings())
        exports = "".join(f"export {key}={value}\n" for key, value in job_environment().items())
        script = f"#!/bin/bash\n{exports}exec srun --kill-on-bad-exit=1 {PYTHON} {arguments}\n"
        options = ("--requeue", "--open-mode=append", f"--output={self.base / self.name}.out")
        self.number = self.slurm.submit(script, *options, *self.options, cwd=self.base)
        return self

    def wait_at(self, place: str) -> None:
        """Until it holds there."""
        file = self.base / "holds" / self.name / place
        try:
            wait_for(lambda: self._hurry() or file.exists(), seconds=PATIENCE)
        except TimeoutError as error:
            raise TimeoutError(f"{self.name} never came to {place}:\n{self.output}") from error

    def wait_until_ended(self) -> str:
        """The state in which it ended."""
        state = wait_for(lambda: self._hurry() or self._ended(), seconds=PATIENCE)
        return str(state)

    def wait_until_stopped(self) -> None:
        """Until it is queued anew, or has ended."""
        wait_for(lambda: self.slurm.state(self.number) in ("PENDING", *ENDED), seconds=60)

    def signal(self, name: str) -> None:
        """Send its programs a signal, as ``#SBATCH --signal`` does."""
        assert self.slurm.ask("scancel", f"--signal={name}", self.number) is not None

    def _ended(self) -> str:
        state = self.slurm.state(self.number)
        return state if state in ENDED else ""

    def _hurry(self) -> None:
        """Slurm lets a job that is queued anew wait for two minutes: tests do not."""
        fields = self.slurm.fields(self.number)
        if fields.get("JobState") == "PENDING" and fields.get("Reason") == "BeginTime":
            self.slurm.ask("scontrol", "update", f"JobId={self.number}", "StartTime=now")


def hold(folder: Path, places: Sequence[str]) -> str:
    """The override that adds `tests.cluster.hold.Hold`."""
    listed = ", ".join(f'"{place}"' for place in places)
    target = "_target_: tests.cluster.hold.Hold"
    return f'+callbacks.hold={{{target}, folder: "{folder}", places: [{listed}]}}'


def assert_same(first: Path, second: Path) -> None:
    """Two runs ended with the same bits."""
    for name in COMPARED:
        assert (first / name).read_bytes() == (second / name).read_bytes(), name
    for name in ("last.ckpt", "best.ckpt"):
        one, other = (
            torch.load(run / "checkpoints" / name, weights_only=True) for run in (first, second)
        )
        for key in ("state_dict", "current_model_state", "optimizer_states"):
            torch.testing.assert_close(one[key], other[key], rtol=0, atol=0)
    assert not (second / "checkpoints" / "preempted.ckpt").exists()


def launch_environment(slurm: LocalSlurm) -> dict[str, str]:
    """For a program that queues jobs itself."""
    return {**slurm.environment, **job_environment(), "PATH": os.environ["PATH"]}
