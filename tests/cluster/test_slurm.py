"""Trainings under a real Slurm: stopped, queued anew, cancelled, and on nodes that die."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.cluster.jobs import (
    PATIENCE,
    SETTINGS,
    Job,
    assert_same,
    hold,
    job_environment,
    launch_environment,
)
from tests.cluster.slurm import LocalSlurm, wait_for

PLACES = ("0-3", "1-5", "2-2")  # in the first, a middle and the last epoch


@pytest.fixture(scope="module")
def straight(slurm: LocalSlurm, base: Path) -> Path:
    """An undisturbed run."""
    job = Job(slurm=slurm, base=base, name="straight").submit()
    assert job.wait_until_ended() == "COMPLETED", job.output
    return job.folder


def test_signal_and_preemption_in_every_epoch_change_no_bit(slurm, base, straight) -> None:
    warned = Job(
        slurm=slurm, base=base, name="warned", holds=PLACES, options=("--nodelist=one",)
    ).submit()
    preempted = Job(
        slurm=slurm, base=base, name="preempted", holds=PLACES, options=("--nodelist=two",)
    ).submit()
    for place in PLACES:
        warned.wait_at(place)
        warned.signal("USR1")
        preempted.wait_at(place)
        urgent = ("--partition=high", "--nodelist=two", "--exclusive", "--output=/dev/null")
        other = slurm.submit("#!/bin/sh\nsleep 1\n", *urgent, cwd=base)
        preempted.wait_until_stopped()
        wait_for(lambda other=other: slurm.state(other) == "COMPLETED", seconds=60)
    for job in (warned, preempted):
        assert job.wait_until_ended() == "COMPLETED", job.output
        assert slurm.fields(job.number)["Restarts"] == "3"
        assert job.output.count("is queued again") == 3
        assert_same(straight, job.folder)


def test_a_run_that_is_terminated_goes_on_when_it_is_submitted_again(slurm, base, straight) -> None:
    job = Job(slurm=slurm, base=base, name="terminated", holds=PLACES)
    for place in PLACES:
        job.submit().wait_at(place)
        job.signal("TERM")
        assert job.wait_until_ended() == "FAILED"
        assert slurm.fields(job.number)["ExitCode"] == "143:0"
    assert job.submit().wait_until_ended() == "COMPLETED", job.output
    assert job.output.count("stopped; resume=auto resumes from") == 3
    assert_same(straight, job.folder)


def test_a_cancelled_run_is_saved_and_does_not_come_back(slurm, base, straight) -> None:
    job = Job(slurm=slurm, base=base, name="cancelled", holds=("1-5",)).submit()
    job.wait_at("1-5")
    slurm.ask("scancel", job.number)
    assert job.wait_until_ended() == "CANCELLED"
    wait_for(lambda: "stopped; resume=auto resumes from" in job.output)
    assert "is queued again" not in job.output
    accounted = ("sacct", "-nXP", "-o", "State", "-j", job.number)
    wait_for(lambda: (slurm.ask(*accounted) or "").startswith("CANCELLED"))
    assert job.submit().wait_until_ended() == "COMPLETED", job.output
    assert_same(straight, job.folder)


def test_two_processes_stop_at_the_same_update(slurm, base) -> None:
    settings = {
        "overrides": (
            *("curation=remove", "curation.select.ratio=0.1"),
            *("trainer.devices=2", "trainer.strategy=ddp"),
        ),
        "options": ("--ntasks-per-node=2",),
    }
    alone = Job(slurm=slurm, base=base, name="two", **settings).submit()
    stopped = Job(slurm=slurm, base=base, name="two_stopped", holds=("1-2",), **settings).submit()
    stopped.wait_at("1-2")
    stopped.signal("USR1")
    for job in (alone, stopped):
        assert job.wait_until_ended() == "COMPLETED", job.output
    assert slurm.fields(stopped.number)["Restarts"] == "1"
    assert_same(alone.folder, stopped.folder)


def test_a_run_whose_node_dies_goes_on_elsewhere(slurm, base, straight) -> None:
    overrides = ("curation=remove", "curation.select.ratio=0.1", "checkpoint_minutes=0.0001")
    job = Job(slurm=slurm, base=base, name="died", holds=("1-5",), overrides=overrides).submit()
    job.wait_at("1-5")
    node = slurm.fields(job.number)["NodeList"]
    slurm.kill_node(node)
    try:
        assert job.wait_until_ended() == "COMPLETED", job.output
    finally:
        slurm.start_node(node)
    fields = slurm.fields(job.number)
    assert (fields["Restarts"], fields["NodeList"]) == ("1", "two" if node == "one" else "one")
    assert "resuming from" in job.output
    assert "preempted.ckpt" in job.output
    assert_same(straight, job.folder)


def test_an_array_of_ratios_is_warned_and_cancelled(slurm, base, straight) -> None:
    """Hydra's launcher: its handler queues a warned job anew, after the run has saved."""
    runs, holds = base / "array", base / "holds" / "array"
    settings = [
        *SETTINGS,
        *(f"paths.cache={base / 'cache'}", f"paths.runs={runs}", "curation=remove"),
        hold(holds / "${curation.select.ratio}", ["1-5"]),
        *("hydra/launcher=slurm", "hydra.launcher.mem_gb=1", "hydra.launcher.timeout_min=30"),
        *("run_name=ratio_${curation.select.ratio}", "curation.select.ratio=0.1,0.2"),
    ]
    command = [sys.executable, "-m", "captioning", "train", "-m", *settings]
    with (base / "array.out").open("w") as output:
        launcher = subprocess.Popen(
            command, env=launch_environment(slurm), stdout=output, stderr=output, cwd=base
        )
    try:
        for ratio in ("0.1", "0.2"):
            wait_for((holds / ratio / "1-5").exists, seconds=PATIENCE)
        listed = slurm.ask("squeue", "-hr", "-o", "%i") or ""
        first, second = sorted(listed.split())
        slurm.ask("scancel", second)
        slurm.ask("scancel", "--signal=USR2", first)
        warned = Job(slurm=slurm, base=base, name="", number=first)
        assert warned.wait_until_ended() == "COMPLETED"
        assert launcher.wait(timeout=PATIENCE) != 0
    finally:
        launcher.kill()
    assert slurm.fields(first)["Restarts"] == "1"
    assert second in (base / "array.out").read_text()
    assert_same(straight, runs / "ratio_0.1" / "seed0")
    assert (runs / "ratio_0.2" / "seed0" / "checkpoints" / "preempted.ckpt").exists()


def test_runs_of_a_paper_are_queued_after_those_they_need(slurm, base, straight) -> None:
    """As ``captioning paper FILE --slurm | sh``; the training is warned, and goes on."""
    held = Job(slurm=slurm, base=base, name="held", holds=("1-5",))
    skipped = ("run_dir=", "seed=")  # the paper's run has its own
    settings = [word for word in held.settings() if not word.startswith(skipped)]
    paper = {
        "title": "A paper",
        "citation": "Somebody (2024)",
        "scales": {"miniworld": "in small"},
        "runs": {
            "ours": {"miniworld": {"steps": [shlex.join(["train", *settings])], "hours": 0.1}},
            "again": {"miniworld": {"steps": ["evaluate run={run:ours} split=val out={run}"]}},
        },
        "items": {
            "table1": {
                "page": 1,
                "title": "Both",
                "columns": [{"name": "C", "metric": "CIDEr-D"}],
                "rows": [{"name": name, "run": name} for name in ("ours", "again")],
            }
        },
    }
    file, runs = base / "mine.yaml", base / "paper_runs"
    file.write_text(yaml.safe_dump(paper), encoding="utf-8")
    words = ["paper", file, "--scale", "miniworld", "--seeds", "0", "--runs", runs, "--slurm"]
    environment = {**launch_environment(slurm), **job_environment()}
    printed = subprocess.run(
        [sys.executable, "-m", "captioning", *map(str, words)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    queued = subprocess.run(
        ["sh"], input=printed.stdout, env=environment, capture_output=True, text=True, check=True
    )
    first, second = (line.split()[0] for line in queued.stdout.splitlines())
    held.number = first
    held.wait_at("1-5")
    assert slurm.fields(second)["Reason"] == "Dependency"
    held.signal("USR1")
    again = Job(slurm=slurm, base=base, name="", number=second)
    assert held.wait_until_ended() == "COMPLETED"
    assert slurm.fields(first)["Restarts"] == "1"
    assert again.wait_until_ended() == "COMPLETED"
    folder = runs / "papers" / "mine-miniworld"
    assert_same(straight, folder / "ours" / "seed0")
    assert (folder / "again" / "seed0" / "metrics.json").is_file()
