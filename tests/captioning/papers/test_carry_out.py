"""Carrying out runs of papers: with programs that stand for the commands, and for Slurm's queue."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from captioning.papers import carry_out as carrying
from captioning.papers.carry_out import DEVICES, THREADS, carry_out, script_lines
from captioning.papers.cells import Results
from captioning.papers.steps import Task, tasks_of
from captioning.runtime.cores import num_cores
from tests.captioning.papers.conftest import paper_of

# Writes down what it was called with; fails where FAIL names the command and a word of its own.
COMMAND = """#!/bin/sh
shift 2
echo "began $* gpu=${CUDA_VISIBLE_DEVICES-} threads=${OMP_NUM_THREADS-}" >> "$LOG"
echo "says $1"
case "$*" in "augment out="*) [ -e "${2#out=}" ] && exit 4;; esac  # some commands want a new folder
case "$*" in ${FAIL-none}*) exit 3;; esac
sleep "${SECONDS_EACH-0}"
echo "ended $*" >> "$LOG"
"""
# Ends by a signal alone, as a training that saves where it is.
PATIENT = """#!/bin/sh
trap 'echo "saved" >> "$LOG"; exit 143' TERM USR1
echo began >> "$LOG"
while true; do sleep 0.05; done
"""
SBATCH = """#!/bin/sh
for word in "$@"; do echo "$word"; done > "$LOG.$(ls "$LOG".* 2>/dev/null | wc -l)"
echo "$(ls "$LOG".* | wc -l)7;cluster"
"""


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the commands wrote down."""
    monkeypatch.setenv("LOG", str(tmp_path / "log.txt"))
    for name in (DEVICES, THREADS):
        monkeypatch.delenv(name, raising=False)
    stand_in(tmp_path, monkeypatch, COMMAND)
    return tmp_path / "log.txt"


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Take a script for Python, and so for every command."""
    path = folder / "command"
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    monkeypatch.setattr(carrying.sys, "executable", str(path))


def tasks_in(folder: Path, content: dict[str, Any], *seeds: int) -> list[Task]:
    return tasks_of(
        paper_of(folder, content), ["ours"], "flickr8k", seeds, Results(folder / "runs")
    )


def commands(log: Path, word: str) -> list[str]:
    """The first two words of what began or ended."""
    lines = log.read_text(encoding="utf-8").splitlines()
    return [line.split()[1] for line in lines if line.startswith(word)]


def test_a_stopped_run_goes_on_with_the_command_that_failed(tmp_path, content, log, monkeypatch):
    tasks = tasks_in(tmp_path, content, 0)
    monkeypatch.setenv("FAIL", "evaluate")
    with pytest.raises(RuntimeError, match="ours, seed 0: captioning evaluate ended with 3"):
        carry_out(tasks)
    monkeypatch.delenv("FAIL")
    carry_out(tasks)
    carry_out(tasks)
    assert commands(log, "began") == ["augment", "train", "evaluate", "evaluate"]


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_run_that_fails_ends_only_those_that_need_it(
    tmp_path, content, log, monkeypatch, capsys, jobs
):
    tasks = tasks_in(tmp_path, content, 0, 1)
    monkeypatch.setenv("FAIL", f"train added={tasks[0].folder} name=s0")
    with pytest.raises(RuntimeError, match="ours, seed 0: captioning train ended with 3"):
        carry_out(tasks, jobs)
    assert [task.is_done for task in tasks] == [True, False, True]
    # Of several jobs each says at once how it ended.
    assert ("ended with 3; its output: " in capsys.readouterr().out) == (jobs > 1)
    (tmp_path / "other").mkdir()
    tasks = tasks_in(tmp_path / "other", content, 0, 1)
    monkeypatch.setenv("FAIL", "augment")
    with pytest.raises(RuntimeError) as error:
        carry_out(tasks, jobs)
    lost = [f"ours, seed {seed}: not started, as it needs a run that failed" for seed in (0, 1)]
    assert str(error.value).splitlines()[1:3] == lost
    assert not any(task.is_done for task in tasks)


def test_how_far_it_is_and_how_long_it_takes(tmp_path, content, log, monkeypatch, capsys):
    began = iter([0.0])
    tasks = tasks_in(tmp_path, content, 0, 1)
    carry_out(tasks[:1])  # what was done before is no measure
    monkeypatch.setattr(carrying.time, "monotonic", lambda: next(began, 5400.0))
    capsys.readouterr()
    carry_out(tasks)
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("#")]
    assert told == [
        "# 1 of 3 runs ended",
        "# 2 of 3 runs ended, about 1.5 h left at this pace",
        "# 3 of 3 runs ended",
    ]


def test_what_needs_a_run_that_was_not_begun_is_not_begun(tmp_path, content, log, monkeypatch):
    content["runs"]["base"] = {"flickr8k": {"steps": ["train x=1"]}}
    content["runs"]["pairs"]["flickr8k"]["steps"] = ["augment of={run:base}"]
    tasks = tasks_in(tmp_path, content, 0)
    monkeypatch.setenv("FAIL", "train x=1")
    with pytest.raises(RuntimeError) as error:
        carry_out(tasks)
    assert [line.split(":")[0] for line in str(error.value).splitlines()[:3]] == [
        "base, seed 0",
        "pairs, seed 0",
        "ours, seed 0",
    ]


def test_several_jobs_run_at_a_time_after_what_they_need(tmp_path, content, log, monkeypatch):
    monkeypatch.setenv("SECONDS_EACH", "0.5")
    tasks = tasks_in(tmp_path, content, 0, 1)
    carry_out(tasks, 2)
    lines = log.read_text(encoding="utf-8").splitlines()
    assert [line.split()[:2] for line in lines[:4]] == [
        ["began", "augment"],
        ["ended", "augment"],
        ["began", "train"],
        ["began", "train"],
    ], "both trainings wait for the pairs, and none for the other"
    assert f"threads={max(1, num_cores() // 2)}" in lines[0]
    output = tasks[1].folder.with_name("seed0.txt")
    assert output.read_text(encoding="utf-8").split() == ["says", "train", "says", "evaluate"]


def test_every_job_has_a_gpu_of_its_own(tmp_path, content, log, monkeypatch):
    monkeypatch.setenv("SECONDS_EACH", "0.5")
    monkeypatch.setenv(DEVICES, "3,5")
    tasks = tasks_in(tmp_path, content, 0, 1)
    carry_out(tasks, 2)
    lines = log.read_text(encoding="utf-8").splitlines()
    began = [line for line in lines if line.startswith("began train")]
    assert {line.split()[-2] for line in began} == {"gpu=3", "gpu=5"}
    with pytest.raises(ValueError, match="--jobs 3: this machine has 2 GPUs.*use --jobs 2"):
        carry_out(tasks, 3)


def test_jobs_may_share_a_gpu(tmp_path, content, log, monkeypatch):
    monkeypatch.setenv("SECONDS_EACH", "0.5")
    monkeypatch.setenv(DEVICES, "3")
    carry_out(tasks_in(tmp_path, content, 0, 1), 2, per_gpu=2)
    lines = log.read_text(encoding="utf-8").splitlines()
    began = [line.split() for line in lines if line.startswith("began train")]
    assert [line[-2] for line in began] == ["gpu=3", "gpu=3"]
    assert {line[-1] for line in began} == {f"threads={max(1, num_cores() // 2)}"}
    trained = [line.split()[:2] for line in lines if line.split()[1] == "train"]
    assert trained[:2] == [["began", "train"]] * 2, "both train at a time"
    with pytest.raises(ValueError, match="--jobs 3: .* use --jobs 2, or a larger --per-gpu"):
        carry_out(tasks_in(tmp_path, content, 0), 3, per_gpu=2)


@pytest.mark.parametrize("hidden", ["", "-1"])
def test_where_gpus_are_hidden_jobs_share_the_cores(tmp_path, content, log, monkeypatch, hidden):
    monkeypatch.setenv(DEVICES, hidden)
    carry_out(tasks_in(tmp_path, content, 0, 1), 2)
    lines = log.read_text(encoding="utf-8").splitlines()
    assert all(line.split()[-1].removeprefix("threads=") for line in lines if "began" in line)


def test_runs_on_several_gpus_do_not_share_the_machine(tmp_path, content, log, monkeypatch):
    monkeypatch.setenv(DEVICES, "0,1")
    content["runs"]["ours"]["flickr8k"]["steps"][0] += " trainer.devices=2"
    with pytest.raises(ValueError, match="ours asks for 2 GPUs; use --jobs 1, --devices 1"):
        carry_out(tasks_in(tmp_path, content, 0), 2)
    assert not log.exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_is_passed_on_and_nothing_else_begins(tmp_path, content, log, monkeypatch, number):
    stand_in(tmp_path, monkeypatch, PATIENT)
    waiting = f"while [ ! -s {log} ]; do sleep 0.05; done; kill -{int(number)} {os.getpid()}"
    sender = subprocess.Popen(["sh", "-c", waiting])
    with pytest.raises(SystemExit) as ended:
        carry_out(tasks_in(tmp_path, content, 0))
    sender.wait()
    assert ended.value.code == 128 + number
    assert log.read_text(encoding="utf-8").split() == ["began", "saved"]
    assert signal.getsignal(number) is signal.SIG_DFL


@pytest.mark.parametrize(
    ("command", "number", "is_preempted", "anew"),
    [
        ("evaluate", signal.SIGUSR1, False, True),  # its time is nearly over
        ("evaluate", signal.SIGTERM, True, True),
        ("evaluate", signal.SIGTERM, False, False),  # cancelled
        ("train", signal.SIGUSR1, False, False),  # which does it itself
    ],
)
def test_a_job_that_is_ended_by_slurm_is_queued_anew(
    tmp_path, content, log, monkeypatch, command, number, is_preempted, anew
):
    queued: list[str] = []
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setattr(carrying, "is_preempted", lambda job: is_preempted)
    monkeypatch.setattr(carrying, "requeue", lambda job: queued.append(job) or "")
    stand_in(tmp_path, monkeypatch, PATIENT)
    content["runs"]["pairs"]["flickr8k"]["steps"] = [f"{command} out={{run}}"]
    waiting = f"while [ ! -s {log} ]; do sleep 0.05; done; kill -{int(number)} {os.getpid()}"
    sender = subprocess.Popen(["sh", "-c", waiting])
    with pytest.raises(SystemExit):
        carry_out(tasks_in(tmp_path, content, 0))
    sender.wait()
    assert queued == (["7"] if anew else [])


def test_ctrl_c_leaves_a_command_the_time_to_save(tmp_path, content, log, monkeypatch):
    slow = PATIENT.replace("trap 'echo", "trap 'sleep 1; echo").replace("TERM USR1", "INT")
    stand_in(tmp_path, monkeypatch, slow)
    program = (
        "import sys; from pathlib import Path; from tests.captioning.papers import conftest as c; "
        "from tests.captioning.papers.test_carry_out import *; import json; "
        f"folder = Path({str(tmp_path)!r}); tasks = tasks_in(folder, c.CONTENT, 0); "
        "sys.executable = str(folder / 'command'); carry_out(tasks)"
    )
    python = os.path.realpath("/proc/self/exe")
    outer = subprocess.Popen(
        [python, "-c", program],
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stderr=subprocess.PIPE,
    )
    while not (log.exists() and log.read_text(encoding="utf-8")):
        assert outer.poll() is None, outer.communicate()
        time.sleep(0.05)
    os.killpg(outer.pid, signal.SIGINT)  # what a terminal does
    _, errors = outer.communicate(timeout=30)
    assert log.read_text(encoding="utf-8").split() == ["began", "saved"]
    assert b"stopped; the same command resumes" in errors


def test_a_script_queues_every_run_after_those_it_needs(tmp_path, content, log, monkeypatch):
    content["runs"]["ours"]["full"] = {
        "steps": ["train trainer.devices=4"],
        "hours": 1.7,
        "memory": "40 GB",
    }
    paper, results = paper_of(tmp_path, content), Results(tmp_path / "my runs")
    sbatch = tmp_path / "bin" / "sbatch"
    sbatch.parent.mkdir()
    sbatch.write_text(SBATCH, encoding="utf-8")
    sbatch.chmod(0o755)
    for scale in ("flickr8k", "full"):
        tasks = tasks_of(paper, ["ours"], scale, [0, 1], results)
        script = "\n".join(script_lines(paper, scale, tasks, results.runs))
        environment = {**os.environ, "PATH": f"{sbatch.parent}:{os.environ['PATH']}"}
        environment |= {"HOURS_AT_MOST": "3"} if scale == "flickr8k" else {}
        done = subprocess.run(
            ["sh"], input=script, text=True, env=environment, capture_output=True, check=True
        )
    assert done.stdout.splitlines() == ["47 ours, seed 0", "57 ours, seed 1"]
    queued = [Path(f"{log}.{n}").read_text(encoding="utf-8").splitlines() for n in range(5)]
    needs = [[w for w in words if w.startswith("--dependency")] for words in queued]
    first, after = ["--dependency=singleton"], ["--dependency=afterok:17,singleton"]
    assert needs == [first, after, after, first, first]
    assert "--job-name=mine-flickr8k/ours/seed1" in queued[2]
    assert "--time=3:00:00" in queued[1]  # of 4
    assert queued[3][-1].endswith("--devices 4")
    assert queued[2][-1].endswith(
        f"paper {paper.file} --scale flickr8k --run --rows ours --seeds 1 --runs '{results.runs}'"
    )
    assert {"--time=4:00:00", "--gpus-per-node=4", "--cpus-per-task=32"} <= set(queued[3])
    assert not any(word.startswith("--gpus") for word in queued[1])


def test_a_run_that_has_lost_its_last_step_is_done(tmp_path, content, log):
    steps = content["runs"]["pairs"]["flickr8k"]["steps"]
    steps.append("evaluate run={run}")
    carry_out(tasks_in(tmp_path, content, 0)[:1])
    steps.pop()
    assert tasks_in(tmp_path, content, 0)[0].is_done


@pytest.mark.parametrize("name", ["Übung [1]", "it's", 'a "b"', "x=1, {y}"])
def test_folders_of_any_name_are_quoted_for_hydra(tmp_path, content, name):
    steps = [
        "train 'data={files:[{run:pairs}/a.txt,b],more:{run}}' x=[{run}]",
        "evaluate --to {run}",
    ]
    content["runs"]["ours"]["flickr8k"]["steps"] = steps
    paper = paper_of(tmp_path, content)
    results = Results(tmp_path / name)
    task = tasks_of(paper, ["ours"], "flickr8k", [0], results)[-1]
    pairs, run = task.needs[0], task.folder
    parser = OverridesParser.create()
    read = [parser.parse_override(word) for word in task.commands[0][1:]]
    values = {override.key_or_group: override.value() for override in read}
    files = [f"{pairs}/a.txt", "b"]
    assert str(pairs.parents[3]) == str(tmp_path / name)
    assert values == {
        "data": {"files": files, "more": str(run)},
        "x": [str(run)],
        "seed": 0,
        "run_dir": str(run),
    }
    assert task.commands[1] == ("evaluate", "--to", str(run))


@pytest.mark.parametrize("name", ["my runs", "12:00", r"C:\my runs"])
def test_folders_of_plain_names_stand_as_they_are(tmp_path, content, name):
    """As they stood in the commands of runs that are finished."""
    task = tasks_of(
        paper_of(tmp_path, content), ["ours"], "flickr8k", [0], Results(tmp_path / name)
    )[-1]
    assert f"run_dir={task.folder}" in task.commands[0]


def test_what_is_done_is_not_queued(tmp_path, content, log):
    tasks = tasks_in(tmp_path, content, 0)
    carry_out(tasks[:1])
    paper = paper_of(tmp_path, content)
    lines = script_lines(paper, "flickr8k", tasks, tmp_path / "runs")
    assert lines[1] == "# 1 jobs of mine, scale flickr8k; about 2 h in all."
    assert sum("sbatch --parsable" in line for line in lines) == 1
    assert not any("afterok" in line for line in lines)


def test_fewer_devices_make_the_same_updates_in_parts(tmp_path, content, log):
    content["runs"]["ours"]["flickr8k"]["steps"] = [
        "train added={run:pairs} trainer.devices=4 loader.batch_size=128"
    ]
    _, task = tasks_in(tmp_path, content, 0)
    assert task.num_devices == 4
    one, two, eight = (task.on_devices(number) for number in (1, 2, 8))
    fewer = ("trainer.devices=1", "loader.batch_size=32", "trainer.accumulate_grad_batches=4")
    assert one.commands[0][-3:] == fewer
    assert "loader.batch_size=64" in two.commands[0]
    assert eight == task
    carry_out([one])
    assert task.is_done, "the work is the same"
    steps = content["runs"]["ours"]["flickr8k"]["steps"]
    steps[0] += " trainer.accumulate_grad_batches=2"
    _, of_two = tasks_in(tmp_path, content, 0)
    assert of_two.on_devices(1).commands[0][-1] == "trainer.accumulate_grad_batches=8"
    with pytest.raises(ValueError, match="--devices 3: a training is for 4 devices"):
        task.on_devices(3)
    content["runs"]["ours"]["flickr8k"]["steps"] = [
        "train added={run:pairs} trainer.devices=4 loader.batch_size=64"
    ]
    _, other = tasks_in(tmp_path, content, 0)
    assert not other.is_done
