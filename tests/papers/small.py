"""A paper's run in small: its commands as they are, with sizes changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from captioning.commands.main import run
from captioning.files import write_json
from captioning.papers.cells import DONE
from captioning.papers.steps import Task

COMMON = {
    "train": (
        *(
            "threads=1",
            "+trainer.limit_train_batches=1",
            "trainer.enable_progress_bar=false",
            "trainer.log_every_n_steps=1",
        ),
        *("metrics.test=[BLEU,METEOR,ROUGE-L,CIDEr-D]", "logger=[csv]"),
    ),
}


def run_small(
    task: Task,
    changes: Mapping[str, Sequence[str]],
    *,
    between: Callable[[], object] = lambda: None,
) -> None:
    """Run a task's commands in this process.

    Args:
        task: with commands.
        changes: further arguments by command, after those of `COMMON`.
        between: makes what the second command and later ones read beside what commands have made.
    """
    for number, command in enumerate(task.commands):
        if number == 1:
            between()
        further = (*COMMON.get(command[0], ()), *changes.get(command[0], ()))
        assert run([*command, *further]) == 0, command
    task.folder.mkdir(parents=True, exist_ok=True)
    write_json(task.folder / DONE, task.commands)
