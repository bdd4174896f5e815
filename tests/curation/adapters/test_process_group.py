"""Two processes decide what one does, and one of them writes."""

from __future__ import annotations

import os
import subprocess
import sys

import plain_run
import pytest
import torch

from curation.adapters.process_group import RANKS, is_writer


@pytest.mark.parametrize("name", ["RANK", "SLURM_PROCID", "LOCAL_RANK"])
def test_a_launcher_tells_who_writes(monkeypatch, name):
    for other in RANKS:
        monkeypatch.delenv(other, raising=False)
    assert is_writer()
    monkeypatch.setenv(name, "1")
    assert not is_writer()


@pytest.mark.long
def test_two_processes_give_the_edits_of_one(tmp_path, repository):
    folders = [tmp_path / "one", tmp_path / "two"]
    plain_run.main(str(folders[0]), 1)
    paths = os.pathsep.join(map(str, (repository, repository / "tests" / "curation")))
    done = subprocess.run(
        [sys.executable, plain_run.__file__, folders[1], "2"],
        env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    )
    for name in ("curation/losses.npz", "curation/report.html"):
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes()
    lines = (folders[0] / "curation.jsonl").read_text().splitlines()[1:]
    assert len(lines) > 4
    for rank in (0, 1):
        assert torch.load(folders[1] / f"journal-{rank}.pt", weights_only=True) == lines
    for rank in (0, 1):
        assert f"rank {rank}: processes decided on different edits at the end of epoch 3" in (
            done.stdout
        )
