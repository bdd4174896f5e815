"""Carries out the runs of a paper: in order, each once, going on where they were stopped."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from captioning.files import read_json, write_json
from captioning.papers.cells import DONE, Results
from captioning.papers.paper import PLACEHOLDER, Paper, PaperRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A run at one scale with one seed.

    Attributes:
        folder: its results.
        commands: arguments of ``captioning``, in order.
    """

    run: PaperRun
    seed: int
    folder: Path
    commands: tuple[tuple[str, ...], ...]

    @property
    def num_done(self) -> int:
        """Commands that ended well, from the first on."""
        done = read_json(self.folder / DONE) if (self.folder / DONE).is_file() else []
        same = zip(self.commands, map(tuple, done), strict=False)
        return next((n for n, (one, other) in enumerate(same) if one != other), len(done))

    @property
    def lines(self) -> list[str]:
        """Commands as they are typed."""
        return [shlex.join(["captioning", *command]) for command in self.commands]


def tasks_of(
    paper: Paper, names: Iterable[str], scale: str, seeds: Iterable[int], results: Results
) -> list[Task]:
    """Tasks of runs, those first that others need; a run that all seeds share comes once."""
    tasks: dict[Path, Task] = {}

    def add(name: str, seed: int) -> None:
        run = paper.runs[name]
        seed = seed if run.seeded else 0  # what all seeds share is made of the first one's runs
        way = run.ways.get(scale)
        folder = results.folder(paper, run, scale, seed)
        if way is None or way.impossible is not None or folder in tasks:
            return
        for need in way.needs:
            add(need, seed)
        commands = tuple(_command(step, paper, run, scale, seed, results) for step in way.steps)
        tasks[folder] = Task(run=run, seed=seed, folder=folder, commands=commands)

    names = list(names)
    for seed in seeds:
        for name in names:
            add(name, seed)
    return list(tasks.values())


def _command(
    step: str, paper: Paper, run: PaperRun, scale: str, seed: int, results: Results
) -> tuple[str, ...]:
    folder = results.folder(paper, run, scale, seed)

    def filled(argument: str) -> str:
        for match in reversed(list(PLACEHOLDER.finditer(argument))):
            other = match["other"]
            of = results.folder(paper, paper.runs[other], scale, seed) if other else folder
            text = str(seed) if match[1] == "seed" else str(of)
            argument = argument[: match.start()] + text + argument[match.end() :]
        return argument

    arguments = [filled(argument) for argument in shlex.split(step)]
    if arguments[0] == "train":
        arguments += [f"seed={seed}", f"run_dir={folder}"]
    return tuple(arguments)


def carry_out(tasks: Iterable[Task]) -> None:
    """Run what is not done; what was stopped goes on.

    Raises:
        RuntimeError: a command failed; the tasks before it are kept.
    """
    for task in tasks:
        for number in range(task.num_done, len(task.commands)):
            command = task.commands[number]
            print(f"== {shlex.join(['captioning', *command])}", flush=True)
            status = subprocess.run([sys.executable, "-m", "captioning", *command], check=False)
            if status.returncode:
                raise RuntimeError(
                    f"{task.run.id}, seed {task.seed}: captioning {command[0]} ended with "
                    f"{status.returncode}; mend what it says, then give the same command again: "
                    "what is finished is kept"
                )
            task.folder.mkdir(parents=True, exist_ok=True)
            write_json(task.folder / DONE, task.commands[: number + 1])
