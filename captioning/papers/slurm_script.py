"""A shell script that queues tasks of papers in Slurm, each as a job after those that it needs."""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from captioning.papers.paper import Paper
from captioning.papers.paper_file import argument_of
from captioning.papers.steps import Task

# Hours are estimates: a job may take so many times as long, and at least an hour.
SPARE = 2
CORES_PER_GPU = 8
WARNING_SECONDS = 120  # as sweeps have; a training then saves where it is and queues its job anew


def script_lines(paper: Paper, scale: str, tasks: Sequence[Task], runs: Path) -> list[str]:
    """The script: a job for each task that is not done.

    What the site wants beside, such as an account, is given by ``sbatch``'s own variables.

    Args:
        tasks: those first that others need.
        runs: folder of all runs, on a disk that all machines share.
    """
    tasks = [task for task in tasks if not task.is_done]
    jobs = {task.folder: f"job{number}" for number, task in enumerate(tasks, 1)}
    hours = sum(task.way.hours or 0 for task in tasks)
    head = [
        "#!/bin/sh",
        f"# {len(tasks)} jobs of {paper.id}, scale {scale}; about {hours:g} h in all.",
        "# Partition, account and the like: SBATCH_PARTITION=..., SBATCH_ACCOUNT=... before it;",
        "# HOURS_AT_MOST=24: no job asks for more, and what does not end in them is queued anew.",
        "set -eu",
        'hours() { most=${HOURS_AT_MOST:-$1}; echo "$(($1 < most ? $1 : most))"; }',
    ]
    return [*head, *(line for task in tasks for line in _job(paper, scale, task, runs, jobs))]


def _job(
    paper: Paper, scale: str, task: Task, runs: Path, jobs: Mapping[Path, str]
) -> Sequence[str]:
    needs = [f"${{{jobs[need]}}}" for need in task.needs if need in jobs]
    options = [
        f"--job-name={paper.id}-{scale}/{task.folder.parent.name}/{task.folder.name}",
        f"--output={task.folder}-slurm-%j.txt",
        "--open-mode=append",
        "--requeue",
        f"--signal=USR1@{WARNING_SECONDS}",
        *_resources(scale, task),
    ]
    words = [shlex.quote(option) for option in options]
    if task.way.hours is not None:
        words.append(f'--time="$(hours {max(1, math.ceil(SPARE * task.way.hours))}):00:00"')
    # The same job of a script that was run before is waited for: it may be at work still.
    if needs:
        words += [f"--dependency=afterok:{':'.join(needs)},singleton", "--kill-on-invalid-dep=yes"]
    else:
        words.append("--dependency=singleton")
    words.append(f"--wrap={shlex.quote(_command(paper, scale, task, runs))}")
    name = jobs[task.folder]
    return (
        f"mkdir -p {shlex.quote(str(task.folder.parent))}",
        f"{name}=$(sbatch --parsable {' '.join(words)})",
        f'{name}="${{{name}%%;*}}"  # a cluster\'s name may follow',
        f'echo "${{{name}}} {task.name}"',
    )


def _resources(scale: str, task: Task) -> list[str]:
    if scale != "full":
        return []
    gpus = task.num_devices
    return [f"--gpus-per-node={gpus}", f"--cpus-per-task={CORES_PER_GPU * gpus}"]


def _command(paper: Paper, scale: str, task: Task, runs: Path) -> str:
    """What a job does.

    Under ``srun`` it gets Slurm's signals. It is one task, whose trainings start their further
    processes themselves; Lightning would await a task a device where it sees SLURM_NTASKS.
    """
    started = ["srun", "--ntasks=1", "env", "-u", "SLURM_NTASKS", sys.executable, "-m"]
    what = ["captioning", "paper", argument_of(paper), "--scale", scale, "--run"]
    which = ["--rows", task.run.id, "--seeds", str(task.seed), "--runs", str(runs)]
    which += ["--devices", str(task.num_devices)] if scale == "full" else []
    return shlex.join([*started, *what, *which])
