"""Run the tasks of papers, or write a shell script that queues the tasks in Slurm.

The requested number of tasks runs at a time, and each task resumes after a stop.
"""

from __future__ import annotations

import math
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from itertools import takewhile
from pathlib import Path
from typing import Any

from captioning.papers.paper import Paper
from captioning.papers.paper_file import argument_of
from captioning.papers.steps import Task
from captioning.results.runs import STEPS
from captioning.runtime.cores import num_cores
from captioning.runtime.files import write_json
from captioning.runtime.slurm import is_preempted, job_id, requeue

# Hours are estimates: a job may take so many times as long, and at least an hour.
SPARE = 2
CORES_PER_GPU = 8
WARNING_SECONDS = 120  # as sweeps have; a training then saves its state and requeues its job


def script_lines(paper: Paper, scale: str, tasks: Sequence[Task], runs: Path) -> list[str]:
    """Lines of the shell script: a Slurm job for each unfinished task.

    ``sbatch``'s own variables set further options of the site, such as an account.

    Args:
        tasks: tasks, each after the tasks that it needs.
        runs: folder of all runs, on a disk that all machines share.
    """
    tasks = [task for task in tasks if not task.is_done]
    jobs = {task.folder: f"job{number}" for number, task in enumerate(tasks, 1)}
    hours = sum(task.way.hours or 0 for task in tasks)
    head = [
        "#!/bin/sh",
        f"# {len(tasks)} jobs of {paper.id}, scale {scale}; about {hours:g} h in all.",
        "# Partition, account and the like: SBATCH_PARTITION=..., SBATCH_ACCOUNT=... before it;",
        "# HOURS_AT_MOST=24: no job asks for more, and what does not end in them is queued again.",
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
    """Command line of a task's job.

    Under ``srun`` it receives Slurm's signals. The job is one Slurm task, whose trainings start
    further processes themselves; with SLURM_NTASKS set, Lightning would expect a task per device.
    """
    started = ["srun", "--ntasks=1", "env", "-u", "SLURM_NTASKS", sys.executable, "-m"]
    what = ["captioning", "paper", argument_of(paper), "--scale", scale, "--run"]
    which = ["--rows", task.run.id, "--seeds", str(task.seed), "--runs", str(runs)]
    which += ["--devices", str(task.num_devices)] if scale == "full" else []
    return shlex.join([*started, *what, *which])


DEVICES = "CUDA_VISIBLE_DEVICES"
THREADS = "OMP_NUM_THREADS"
# Seconds of a wait: a signal that comes as one begins is acted on when it ends.
LOOK_UP = 1.0
TRAINING = "train"  # the command
# Ctrl+C reaches the commands by the terminal; these reach this process alone.
PASSED_ON = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


def carry_out(tasks: Sequence[Task], jobs: int = 1, per_gpu: int = 1) -> None:
    """Run the unfinished tasks; if one fails, only the tasks that need its results are skipped.

    A signal that ends this process is passed on to the commands, which save their state; no further
    run starts.

    Args:
        tasks: tasks, each after the tasks that it needs.
        jobs: number of tasks at a time. Several tasks share the GPUs or cores, and each writes its
            output to a file beside its folder, ``seed0.txt``.
        per_gpu: maximum number of tasks per GPU, as small captioners leave most of a GPU idle.

    Raises:
        ValueError: there are too few GPUs for the jobs, or a task asks for several.
        RuntimeError: tasks failed; the message names each. Finished tasks are kept.
        KeyboardInterrupt: Ctrl+C.
        SystemExit: another signal; the exit status is as in shells.
    """
    shares = _shares(tasks, jobs, per_gpu)
    line = _Line(tasks)
    with _Commands() as commands, ThreadPoolExecutor(jobs) as threads:
        running: dict[Future[str], tuple[Task, Mapping[str, str]]] = {}
        while True:
            while shares and not commands.stopped and (task := line.next()):
                share = shares.pop()
                running[threads.submit(_carry_out, task, share, commands)] = (task, share)
            if not running:
                break
            for ended in wait(running, LOOK_UP, FIRST_COMPLETED).done:
                task, share = running.pop(ended)
                shares.append(share)
                line.end(task, ended.result())
                if not commands.stopped:
                    print(line.progress(), flush=True)
    commands.obey()
    line.tell()


class _Line:
    """Waiting tasks, and the results of finished tasks.

    Args:
        tasks: tasks, each after the tasks that it needs.
    """

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._waiting = list(tasks)
        self._folders = {task.folder for task in tasks}
        self._hours = {task.folder: task.way.hours for task in tasks if not task.is_done}
        self._began = time.monotonic()
        self._errors: dict[Path, str] = {}  # of what has ended; empty where all went well

    def next(self) -> Task | None:
        """Take the first task whose needs are met; tasks with a failed need are dropped."""
        for task in list(self._waiting):
            if any(need not in self._errors for need in self._folders.intersection(task.needs)):
                continue
            self._waiting.remove(task)
            if not any(self._errors.get(need) for need in task.needs):
                return task
            self.end(task, f"{task.name}: not started, as it needs a run that failed")
        return None

    def end(self, task: Task, error: str) -> None:
        self._errors[task.folder] = error

    def progress(self) -> str:
        """Number of finished runs, and the hours left at the present pace."""
        text = f"# {len(self._errors)} of {len(self._folders)} runs ended"
        known = {folder: hours for folder, hours in self._hours.items() if hours is not None}
        ended = sum(hours for folder, hours in known.items() if folder in self._errors)
        left = sum(known.values()) - ended
        if not ended or not left or len(known) < len(self._hours):
            return text
        taken = (time.monotonic() - self._began) / 3600
        return f"{text}, about {left * taken / ended:.1f} h left at this pace"

    def tell(self) -> None:
        errors = list(filter(None, self._errors.values()))
        if errors:
            raise RuntimeError(
                "\n".join(errors)
                + "\nmend what is said, then give the same command again: what is finished is kept"
            )


class _Commands:
    """Running commands, to which signals are passed on within the block.

    Attributes:
        stopped: number of the first signal, or 0.
        cut_short: names of the commands ended by a signal.
    """

    def __init__(self) -> None:
        self.stopped = 0
        self.cut_short: set[str] = set()
        self._running: set[subprocess.Popen[Any]] = set()
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> _Commands:
        numbers = (signal.SIGINT, *PASSED_ON)
        self._previous = {number: signal.signal(number, self._receive) for number in numbers}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _receive(self, number: int, frame: object) -> None:
        self.stopped = self.stopped or number
        if number in PASSED_ON:
            for command in list(self._running):
                command.send_signal(number)

    def call(self, command: Sequence[str], **options: Any) -> int:
        """Run a command and return its exit status."""
        process = subprocess.Popen([sys.executable, "-m", "captioning", *command], **options)
        self._running.add(process)
        if self.stopped in PASSED_ON:  # by a signal that came while the command started
            process.send_signal(self.stopped)
        try:
            status = process.wait()
        finally:
            self._running.discard(process)
        if self.stopped and status:
            self.cut_short.add(command[0])
        return status

    def obey(self) -> None:
        """Exit as a received signal asks; return if there was no signal."""
        if self.stopped:
            print("stopped; the same command resumes", file=sys.stderr)
        if self.stopped == signal.SIGINT:
            raise KeyboardInterrupt
        if self.stopped:
            self._queue_anew()
            raise SystemExit(128 + self.stopped)

    def _queue_anew(self) -> None:
        """Requeue a Slurm job that is out of time or preempted; trainings requeue themselves.

        Otherwise jobs that depend on it would leave the queue.
        """
        job = job_id(os.environ)
        if job is None or TRAINING in self.cut_short:
            return
        if self.stopped != signal.SIGTERM or is_preempted(job):
            print(requeue(job), file=sys.stderr)


def _carry_out(task: Task, share: Mapping[str, str], commands: _Commands) -> str:
    """Run a task's unfinished commands; return the error as text, or an empty text."""
    began, error = time.monotonic(), ""
    for number in range(task.num_done, len(task.commands)):
        command = task.commands[number]
        # Beside the folder, which is the command's to make: some want a new one.
        output = task.folder.with_name(f"{task.folder.name}.txt")
        with ExitStack() as stack:
            print(f"== {shlex.join(['captioning', *command])}", flush=True)
            options: dict[str, Any] = {"env": {**os.environ, **share}}
            if share:
                output.parent.mkdir(parents=True, exist_ok=True)
                file = stack.enter_context(output.open("ab"))
                options |= {"stdout": file, "stderr": subprocess.STDOUT}
            status = commands.call(command, **options)
        if status:
            error = f"{task.name}: captioning {command[0]} ended with {status}"
            error += f"; its output: {output}" if share else ""
            break
        task.folder.mkdir(parents=True, exist_ok=True)
        write_json(task.folder / STEPS, task.commands[: number + 1])
        if commands.stopped:
            break
    if share and not commands.stopped:
        minutes = (time.monotonic() - began) / 60
        print(error or f"ended: {task.name}, after {minutes:.1f} min", flush=True)
    return error


def _shares(tasks: Sequence[Task], jobs: int, per_gpu: int) -> list[Mapping[str, str]]:
    """Environment variables that give each job its share of the machine."""
    if jobs == 1:
        return [{}]
    gpus = _gpus()
    threads = {THREADS: os.environ.get(THREADS, str(max(1, num_cores() // jobs)))}
    if not gpus:
        return [threads] * jobs
    if len(gpus) * per_gpu < jobs:
        raise ValueError(
            f"--jobs {jobs}: this machine has {len(gpus)} GPUs, and each takes {per_gpu} at a "
            f"time; use --jobs {len(gpus) * per_gpu}, or a larger --per-gpu"
        )
    wide = next((task for task in tasks if task.num_devices > 1), None)
    if wide is not None:
        raise ValueError(
            f"--jobs {jobs}: {wide.run.id} asks for {wide.num_devices} GPUs; use --jobs 1, "
            "--devices 1, or --slurm, which asks for as many as a run needs"
        )
    if per_gpu == 1:
        return [{DEVICES: gpu} for gpu in gpus[:jobs]]
    return [{DEVICES: gpu, **threads} for _ in range(per_gpu) for gpu in gpus][:jobs]


def _gpus() -> list[str]:
    """GPUs that this process may use, by CUDA's names."""
    named = os.environ.get(DEVICES)
    if named is not None:
        names = filter(None, map(str.strip, named.split(",")))
        return list(takewhile(lambda name: not name.startswith("-"), names))  # -1 ends the list
    import torch  # seconds, for commands that need none

    return [str(number) for number in range(torch.cuda.device_count())]
