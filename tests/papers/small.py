"""A paper's run in small: its commands as they are, with sizes changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

from captioning.commands.main import run
from captioning.papers.cells import Cells, Results
from captioning.papers.paper import Paper
from captioning.papers.steps import Task
from captioning.results.runs import STEPS
from captioning.runtime.files import write_json

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
        changes: further arguments by a command's name or another word of it, after those of
            `COMMON`.
        between: makes what the second command and later ones read beside what commands have made.
    """
    for number, command in enumerate(task.commands):
        if number == 1:
            between()
        further = [change for word in command for change in changes.get(word, ())]
        assert run([*command, *COMMON.get(command[0], ()), *further]) == 0, command
    task.folder.mkdir(parents=True, exist_ok=True)
    write_json(task.folder / STEPS, task.commands)


def num_measured(paper: Paper, names: Collection[str], results: Results) -> dict[str, int]:
    """Number of measured cells of the rows of runs, by item."""
    cells, counts = Cells(paper, "full", results), Counter[str]()
    for name, item in paper.items.items():
        for row in item.rows:
            states = [cell.state for cell in cells.row_cells(item, row) if row.run in names]
            counts[name] += states.count("measured")
    return dict(+counts)
