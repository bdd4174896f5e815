"""What runs need of others: told, and looked for before anything begins."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from captioning.papers.paper import Need, Paper
from captioning.papers.steps import Task, folders

SHOWN_RUNS = 3  # that need the same


def check_needs(paper: Paper, scale: str, tasks: Iterable[Task]) -> None:
    """Look for all that tasks need and is not theirs to make.

    Raises:
        FileNotFoundError: something is missing; each is named once, with the runs that need it.
    """
    missing = [
        f"{told(need)}; for {_some(runs)}"
        for need, runs in needed(paper, scale, tasks)
        if not place_of(need).exists()
    ]
    if missing:
        raise FileNotFoundError(
            "nothing was begun, as files are missing that these runs need:\n"
            + "\n".join(missing)
            + "\nput them there, or choose other runs with --rows"
        )


def needed(paper: Paper, scale: str, tasks: Iterable[Task]) -> list[tuple[Need, Sequence[str]]]:
    """Needs of the tasks that are not done, with the runs that have them."""
    texts = {task.run.id: " ".join(task.way.steps) for task in tasks if not task.is_done}
    found = []
    for need in (need for need in paper.needs if need.scale == scale):
        runs = [run for run, text in texts.items() if any(name in text for name in need.named)]
        found += [(need, runs)] if runs else []
    return found


def place_of(need: Need) -> Path:
    """Where it is looked for."""
    path = need.path
    for name, folder in folders().items():
        path = path.replace(f"{{{name}}}", folder)
    return Path(path).expanduser()


def told(need: Need) -> str:
    """Its place, what it is, and the command that fetches it, if one does."""
    place = place_of(need)
    name = need.path.removeprefix("{models}/")
    fetch = f" (hf download {name} --local-dir {place})" if need.is_on_hub else ""
    return f"{place}: {need.what}{fetch}"


def _some(names: Sequence[str]) -> str:
    more = len(names) - SHOWN_RUNS
    return ", ".join(names[:SHOWN_RUNS]) + (f" and {more} more" if more > 0 else "")
