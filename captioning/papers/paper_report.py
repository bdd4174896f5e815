"""Implement ``captioning paper``: print tables and run commands.

Published and measured numbers stand in separate tables.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from captioning.config.folders import PACKAGE
from captioning.papers.carry_out import carry_out, script_lines
from captioning.papers.cells import Cell, Cells, Results, missing_runs, table_digits
from captioning.papers.effects import effect_lines, effects_page
from captioning.papers.paper import SCALES, Item, Paper
from captioning.papers.paper_file import load_paper, paper_names
from captioning.papers.steps import Task, check_needs, needed, tasks_of, told
from captioning.results.runs import Run
from captioning.results.table_formats import markdown_lines, note_marks, numbered_lines
from captioning.runtime.files import write_text

CHECKOUT = PACKAGE.parent
ALL_RUNS = (
    "The numbers count cells with a published number; for all missing runs, run "
    "captioning paper PAPER --missing."
)
# The measured numbers of an item at one scale, as a table that says each thing once.
# Differences from the paper that hold for all cells are listed above the table, those of a row
# beside its name. Below are the measures that cannot be made: their rows and columns are left out.
QUOTED = "quoted"
EMPTY = ("not possible", QUOTED)  # states of cells that no run can fill
SHOWN_NAMES = 12  # of rows or columns that are left out for one reason


def show(options: Namespace) -> int | None:
    """Carry out the command's options.

    Raises:
        ValueError: an unknown paper, item or run, seeds that are not numbers, or jobs below 1.
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
        if options.effects:
            print("\n".join(effects_page(papers, results)).rstrip())
            return None
        lines = overview_lines((paper, _scales(paper, results)) for paper in papers)
        print("\n".join(lines), "", ALL_RUNS, sep="\n")
        return None
    _check_numbers(options)
    paper = load_paper(options.paper)
    items = _items(paper, options.item)
    cells = Cells(paper, options.scale, results)
    if options.effects:
        print("\n".join(effect_lines(paper, results)))
    elif options.page is not None:
        lines = page_lines(paper, _scales(paper, results))
        write_text(options.page, "\n".join(lines).rstrip() + "\n")
    elif options.commands or options.run or options.slurm or options.missing:
        _act(options, cells, _tasks(options, cells, items, results), results)
    else:
        print("\n".join(line for item in items for line in item_lines(item, cells)))
    return None


def record_folders() -> list[Path]:
    """Folder of each paper, then folder of all other runs; none for an installed package."""
    return [*sorted(CHECKOUT.glob("papers/*/records")), CHECKOUT / "docs" / "results" / "records"]


def _act(options: Namespace, cells: Cells, tasks: Sequence[Task], results: Results) -> None:
    if options.run or options.slurm:
        check_needs(cells.paper, cells.scale, tasks)
    if options.run:
        carry_out(tasks, options.jobs, options.per_gpu)
    elif options.slurm:
        print("\n".join(script_lines(cells.paper, cells.scale, tasks, results.runs)))
    else:
        _print(tasks, cells)


def _scales(paper: Paper, results: Results) -> list[Cells]:
    return [Cells(paper, scale, results) for scale in SCALES if scale in paper.scales]


def _items(paper: Paper, name: str | None) -> list[Item]:
    """Tables and figures that a text selects: all, or one; ``2`` means ``table2``."""
    if name is None:
        return list(paper.items.values())
    for candidate in (name, name.lower(), f"table{name}", f"figure{name}"):
        if candidate in paper.items:
            return [paper.items[candidate]]
    raise ValueError(f"{paper.id} has no {name!r}; it has {', '.join(paper.items)}")


def _check_numbers(options: Namespace) -> None:
    for name in ("jobs", "per_gpu", "devices"):
        number = getattr(options, name)
        if number is not None and number < 1:
            raise ValueError(f"--{name.replace('_', '-')} must be at least 1: got {number}")


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
    """Items for each seed: every seed for an item in ``text``, else as many as the item states."""
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


@dataclass(slots=True)
class _Grid:
    """Table of measured values, without the rows and columns that are left out.

    Attributes:
        digits: number of decimals of each column.
        left_out: left-out names, by kind, state and reason.
    """

    rows: dict[str, list[Cell]]
    columns: list[str]
    digits: list[int]
    left_out: dict[tuple[str, str, str], list[str]] = field(default_factory=dict)

    def leave_out(self) -> None:
        """Leave out rows, then columns, that are empty for a single reason."""
        kept = list(self.rows.items())
        self.rows = {n: cells for n, cells in kept if not self._is_empty("row", n, cells)}
        columns = [[cells[place] for cells in self.rows.values()] for place in self.places]
        empty = [self._is_empty("column", self.columns[p], columns[p]) for p in self.places]
        places = [place for place in self.places if not empty[place]]
        self.columns = [self.columns[place] for place in places]
        self.digits = [self.digits[place] for place in places]
        self.rows = {name: [cells[p] for p in places] for name, cells in self.rows.items()}

    @property
    def places(self) -> range:
        return range(len(self.columns))

    def _is_empty(self, what: str, name: str, cells: Sequence[Cell]) -> bool:
        reasons = {(cell.state, cell.reason) for cell in cells}
        if len(reasons) != 1 or cells[0].state not in EMPTY:
            return False
        self.left_out.setdefault((what, *reasons.pop()), []).append(name)
        return True


def measured_lines(item: Item, cells: Cells) -> list[str]:
    """Lines of the measured table of a scale, with its notes.

    A cell has the mean ± the sample standard deviation over the row's seeds.
    """
    grid = _Grid(
        rows={row.name: cells.row_cells(item, row) for row in item.rows},
        columns=[column.name for column in item.columns],
        digits=[table_digits(column) for column in item.columns],
    )
    grid.leave_out()
    where = cells.paper.scales.get(cells.scale, "The paper's file does not describe it.")
    lines = [f"The next table was measured at the scale `{cells.scale}`. {where}", ""]
    everywhere = _common(cell for row in grid.rows.values() for cell in row)
    if everywhere:
        lines += [
            "All rows below differ from the paper in these points:",
            "",
            *(f"- {text}" for text in everywhere),
            "",
        ]
    notes: list[str] = []
    rows = [_row(grid, name, everywhere, notes) for name in grid.rows]
    if rows:
        lines += [*markdown_lines(["", "seeds", *grid.columns], rows), ""]
    lines += [*numbered_lines(notes), ""] if notes else []
    impossible = [
        _left_out(what, names, reason)
        for (what, state, reason), names in grid.left_out.items()
        if state != QUOTED  # they stand with the paper's numbers
    ]
    head = ["not measured at this scale", "reason"]
    return [*lines, *markdown_lines(head, impossible), ""] if impossible else lines


def _row(grid: _Grid, name: str, everywhere: Sequence[str], notes: list[str]) -> list[str]:
    cells = grid.rows[name]
    counts = {len(cell.values) for cell in cells if cell.values}
    seeds = str(counts.pop()) if len(counts) == 1 else ""
    of_row = [text for text in _common(cells) if text not in everywhere]
    said = {*everywhere, *of_row}
    texts = [f"{name} {note_marks(of_row, notes)}".strip(), seeds]
    for cell, digits in zip(cells, grid.digits, strict=True):
        number = "" if seeds or not cell.values else f" ({len(cell.values)})"
        own = [cell.reason] if cell.reason else [text for text in cell.differs if text not in said]
        texts.append(f"{_value(cell, digits)}{number} {note_marks(own, notes)}".strip())
    return texts


def _common(cells: Iterable[Cell]) -> list[str]:
    """Differences that all measured or measurable cells share, in the first cell's order."""
    differs = [cell.differs for cell in cells if cell.state not in EMPTY]
    first = differs[0] if differs else ()
    return [text for text in first if all(text in others for others in differs)]


def _value(cell: Cell, digits: int) -> str:
    if cell.state != "measured":
        return cell.state
    spread = "" if cell.deviation is None else f" ± {cell.deviation:.{digits}f}"
    return f"{cell.mean:.{digits}f}{spread}"


def _left_out(what: str, names: Sequence[str], reason: str) -> list[str]:
    shown = "; ".join(f'"{name}"' for name in names[:SHOWN_NAMES])
    more = f"; and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
    plural = "s" if len(names) > 1 else ""
    return [f"{what}{plural} {shown}{more}", reason]


MEASURED = (
    "A measured cell shows the mean ± the sample standard deviation over the seeds. A number in "
    "brackets refers to a note below the table, which states a difference from the paper."
)


def overview_lines(papers: Iterable[tuple[Paper, Sequence[Cells]]]) -> list[str]:
    """Number of cells by state, one line per paper and scale."""
    rows = [
        [paper.id, str(len(paper.items)), cells.scale, *map(str, cells.counts.values())]
        for paper, scales in papers
        for cells in scales
    ]
    columns = ["paper", "tables and figures", "scale", "measured", "missing", "not possible"]
    return markdown_lines([*columns, "quoted"], rows)


def item_lines(item: Item, cells: Cells) -> list[str]:
    """Lines of an item: the published numbers, and the numbers measured at a scale."""
    return [*head_lines(item), *measured_lines(item, cells)]


def head_lines(item: Item) -> list[str]:
    """Title of an item and the published numbers."""
    place = f"page {item.page}" if isinstance(item.page, int) else item.page
    lines = [f"### {label(item.id)}: {item.title} ({place})", ""]
    lines += [item.note, ""] if item.note else []
    if not item.num_cells:
        return lines
    names = [column.name for column in item.columns]
    published = [row for row in item.rows if any(value is not None for value in row.published)]
    rows = [[row.name, *map(_number, row.published)] for row in published]
    lines += ["Published:", "", *markdown_lines(["", *names], rows), ""]
    quoted = [
        [row.name, row.reason[1]] for row in item.rows if row.reason and row.reason[0] == QUOTED
    ]
    head = ["row that the paper quotes", "source"]
    return [*lines, *markdown_lines(head, quoted), ""] if quoted else lines


def page_lines(paper: Paper, scales: Sequence[Cells]) -> list[str]:
    """Lines of a paper's page: all items with their measured scales, and sources."""
    lines = [f"# {paper.title}", paper.citation, "", "```", f"captioning paper {paper.id}", "```"]
    lines += ["", "This table counts the cells with a published number by state:", ""]
    lines += [*overview_lines([(paper, scales)]), ""]
    lines += [f"- `{cells.scale}`: {paper.scales[cells.scale]}" for cells in scales]
    lines += ["", MEASURED, "", "## Tables and figures", ""]
    for item in paper.items.values():
        lines += head_lines(item)
        for cells in scales:
            lines += measured_lines(item, cells) if _is_measured(item, cells) else []
        unmeasured = [f"`{c.scale}`" for c in scales if not _is_measured(item, c)]
        head = "No row of this table is measured at the scale"
        lines += [f"{head} {' or '.join(unmeasured)}.", ""] if unmeasured else []
    lines += ["## Runs at full size", "", "Hours and memory are estimates.", ""]
    lines += [*_need_lines(paper), *_cost_lines(paper), "", "## Where the numbers come from", ""]
    return [*lines, *_source_lines(scales)]


def _is_measured(item: Item, cells: Cells) -> bool:
    return any(cell.state == "measured" for row in item.rows for cell in cells.row_cells(item, row))


def _need_lines(paper: Paper) -> list[str]:
    """Lines on third parties' files that the runs need."""
    if not paper.needs:
        return []
    kinds = {True: "the model hub", False: "its authors"}
    full = [need for need in paper.needs if need.scale == "full"]
    rows = [[f"`{need.path}`", need.what, kinds[need.is_on_hub]] for need in full]
    head = (
        "These runs need the following files in your data folder (`CAPTIONING_DATA`) and your "
        "models folder (`CAPTIONING_MODELS`):"
    )
    lines = [head, "", *markdown_lines(["file or folder", "content", "source"], rows), ""]
    for need in paper.needs:
        if need.scale != "full":
            lines += [f"Runs at the scale `{need.scale}` need `{need.path}`: {need.what}.", ""]
    return lines


def _cost_lines(paper: Paper) -> list[str]:
    """Table of full-size runs with their costs and differences from the paper."""
    rows: list[list[str]] = []
    notes: list[str] = []
    for run in paper.runs.values():
        way = run.ways.get("full")
        if way is not None and way.impossible is None:
            hours = "—" if way.hours is None else f"{way.hours:g}"
            differs = note_marks(way.differs, notes) or "nothing"
            rows.append([run.id, hours, way.memory or "—", differs])
    table = markdown_lines(["run", "hours", "memory", "differs from the paper"], rows)
    return [*table, "", *numbered_lines(notes)]


def _source_lines(scales: Sequence[Cells]) -> list[str]:
    """Commits, dates and machines of the measured runs."""
    rows = []
    for cells in scales:
        for name in cells.paper.runs:
            runs = cells.runs_of(name)
            known = [_source(run) for run in runs]
            facts = [
                ", ".join(dict.fromkeys(str(facts.get(key) or "—") for facts in known))
                for key in ("commit", "date", "machine")
            ]
            seeds = ", ".join(str(facts["seed"]) for facts in known)
            rows += [[cells.scale, name, seeds, *facts]] if runs else []
    if not rows:
        return ["No run is measured yet."]
    return markdown_lines(["scale", "run", "seeds", "commit", "date", "machine"], rows)


def _source(run: Run) -> dict[str, Any]:
    """Versions and seed of a run; for a generated dataset, from its card."""
    versions, seed = run.versions, run.setting("seed")
    if not versions:
        contents = (content for content in run.files.values() if isinstance(content, dict))
        made = next((content for content in contents if content.get("versions")), {})
        versions, seed = made.get("versions", {}), (made.get("config") or {}).get("seed")
    return {**versions, "seed": "—" if seed is None else seed}


def label(name: str) -> str:
    """Label of an item: ``table2`` as Table 2."""
    for kind in ("table", "figure"):
        if name.startswith(kind):
            return f"{kind.capitalize()} {name.removeprefix(kind)}"
    return name


def _number(value: float | None) -> str:
    return "—" if value is None else f"{value:g}"
