"""What ``captioning paper`` prints and does."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from captioning.config.folders import PACKAGE
from captioning.papers.carry_out import carry_out, script_lines
from captioning.papers.cells import Cells, Results, missing_runs
from captioning.papers.paper import SCALES, Item, Paper
from captioning.papers.paper_file import load_paper, paper_names
from captioning.papers.paper_page import item_lines, overview_lines, page_lines
from captioning.papers.steps import Task, check_needs, needed, tasks_of, told
from captioning.runtime.files import write_text

CHECKOUT = PACKAGE.parent
ALL_RUNS = "Cells with a published number; all runs: captioning paper PAPER --missing."


def show(options: Namespace) -> int | None:
    """Do what the options say.

    Raises:
        ValueError: an unknown paper, item or run, seeds that are no numbers, or jobs below 1.
        FileNotFoundError: what runs at full size need of others is not there, or no folder of
            records.
    """
    if options.records is not None and not options.records.is_dir():
        raise FileNotFoundError(
            f"--records {options.records}: no such folder; give the one that `captioning record` "
            "writes to (--out)"
        )
    records = [options.records] if options.records else record_folders()
    results = Results(options.runs.resolve(), records)
    if options.paper == "list":
        papers = [load_paper(name) for name in paper_names()]
        lines = overview_lines((paper, _scales(paper, results)) for paper in papers)
        print("\n".join(lines), "", ALL_RUNS, sep="\n")
        return None
    _check_numbers(options)
    paper = load_paper(options.paper)
    items = _items(paper, options.item)
    cells = Cells(paper, options.scale, results)
    if options.page is not None:
        lines = page_lines(paper, _scales(paper, results))
        write_text(options.page, "\n".join(lines).rstrip() + "\n")
    elif options.commands or options.run or options.slurm or options.missing:
        _act(options, cells, _tasks(options, cells, items, results), results)
    else:
        print("\n".join(line for item in items for line in item_lines(item, cells)))
    return None


def record_folders() -> list[Path]:
    """Each paper's, then that of all other runs; none of an installed package."""
    return [*sorted(CHECKOUT.glob("papers/*/records")), CHECKOUT / "docs" / "results" / "records"]


def _act(options: Namespace, cells: Cells, tasks: Sequence[Task], results: Results) -> None:
    if options.run or options.slurm:
        check_needs(cells.paper, cells.scale, tasks)
    if options.run:
        carry_out(tasks, options.jobs)
    elif options.slurm:
        print("\n".join(script_lines(cells.paper, cells.scale, tasks, results.runs)))
    else:
        _print(tasks, cells)


def _scales(paper: Paper, results: Results) -> list[Cells]:
    return [Cells(paper, scale, results) for scale in SCALES if scale in paper.scales]


def _items(paper: Paper, name: str | None) -> list[Item]:
    """One item, or all; ``2`` is ``table2``."""
    if name is None:
        return list(paper.items.values())
    for candidate in (name, name.lower(), f"table{name}", f"figure{name}"):
        if candidate in paper.items:
            return [paper.items[candidate]]
    raise ValueError(f"{paper.id} has no {name!r}; it has {', '.join(paper.items)}")


def _check_numbers(options: Namespace) -> None:
    for name in ("jobs", "devices"):
        number = getattr(options, name)
        if number is not None and number < 1:
            raise ValueError(f"--{name} must be at least 1: got {number}")


def _tasks(options: Namespace, cells: Cells, items: Sequence[Item], results: Results) -> list[Task]:
    runs = _runs_of(items)
    _check_rows(options, cells.paper, runs)
    tasks: dict[Path, Task] = {}
    for seed, of_seed in _items_by_seed(options.seeds, items).items():
        names = missing_runs(cells, of_seed, seed) if options.missing else _runs_of(of_seed)
        if options.rows:  # which may be runs that rows need
            other = set() if options.missing else set(options.rows) - set(runs)
            names = [name for name in options.rows if name in {*names, *other}]
        found = tasks_of(cells.paper, names, cells.scale, [seed], results)
        tasks |= {task.folder: task for task in found if task.folder not in tasks}
    kept = [task for task in tasks.values() if not (options.missing and task.is_done)]
    return [task.on_devices(options.devices) for task in kept] if options.devices else kept


def _items_by_seed(text: str | None, items: Sequence[Item]) -> dict[int, list[Item]]:
    """Those that are measured with a seed: with all of ``text``, else with as many as each says."""
    if text is not None:
        return {seed: list(items) for seed in _seeds(text)}
    most = max(item.num_seeds for item in items)
    return {seed: [item for item in items if seed < item.num_seeds] for seed in range(most)}


def _runs_of(items: Sequence[Item]) -> list[str]:
    return list(dict.fromkeys(str(row.run) for item in items for row in item.rows if row.run))


def _check_rows(options: Namespace, paper: Paper, runs: Sequence[str]) -> None:
    unknown = sorted(set(options.rows or ()) - set(paper.runs))
    if unknown:
        raise ValueError(f"no run {unknown[0]!r} here; there are {', '.join(runs) or 'none'}")


def _seeds(text: str) -> list[int]:
    if not all(part.strip().isdecimal() for part in text.split(",")):
        raise ValueError(
            f"--seeds must be numbers with commas between, such as 0,1,2: got {text!r}"
        )
    return [int(part) for part in text.split(",")]


def _print(tasks: Sequence[Task], cells: Cells) -> None:
    for task in tasks:
        costs = [f"{task.way.hours:g} h" if task.way.hours else "", task.way.memory or ""]
        print(f"# {task.name}: " + (", ".join(filter(None, costs)) or "-"))
        for difference in task.way.differs:
            print(f"#   differs: {difference}")
        print("\n".join(task.lines))
    if not tasks:
        print(f"nothing to run at the scale {cells.scale}")
        return
    for need, _ in needed(cells.paper, cells.scale, tasks):
        print(f"# needs {told(need)}")
    hours = sum(task.way.hours or 0 for task in tasks)
    print(f"# in all: {len(tasks)} runs, about {hours:g} h one after the other")
