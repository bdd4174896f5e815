"""A paper's tables as text: published numbers and measured ones, never in one line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from captioning.papers.cells import Cells
from captioning.papers.measured import QUOTED, measured_lines, note_marks, numbered_lines
from captioning.papers.paper import Item, Paper
from captioning.results.runs import Run
from captioning.results.table_formats import markdown_lines

MEASURED = (
    "A measured cell: mean ± sample standard deviation over the seeds. Numbers in brackets: notes "
    "below the table on what differs from the paper."
)


def overview_lines(papers: Iterable[tuple[Paper, Sequence[Cells]]]) -> list[str]:
    """Cells by state, a line a paper and scale."""
    rows = [
        [paper.id, str(len(paper.items)), cells.scale, *map(str, cells.counts.values())]
        for paper, scales in papers
        for cells in scales
    ]
    columns = ["paper", "tables and figures", "scale", "measured", "missing", "not possible"]
    return markdown_lines([*columns, "quoted"], rows)


def item_lines(item: Item, cells: Cells) -> list[str]:
    """An item with the paper's numbers and the measured ones of a scale."""
    return [*head_lines(item), *measured_lines(item, cells)]


def head_lines(item: Item) -> list[str]:
    """Its title and the paper's numbers."""
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
        f"- {row.name}: {row.reason[1]}"
        for row in item.rows
        if row.reason and row.reason[0] == QUOTED
    ]
    return [*lines, "Quoted by the paper:", "", *quoted, ""] if quoted else lines


def page_lines(paper: Paper, scales: Sequence[Cells]) -> list[str]:
    """A page: all items, with the scales that something was measured at, and where it is from."""
    lines = [f"# {paper.title}", paper.citation, "", "```", f"captioning paper {paper.id}", "```"]
    lines += ["", "Cells with a published number, by what is there of them:", ""]
    lines += [*overview_lines([(paper, scales)]), ""]
    lines += [f"- `{cells.scale}`: {paper.scales[cells.scale]}" for cells in scales]
    lines += [
        "",
        MEASURED,
        "",
    ]
    lines += ["", "## Tables and figures", ""]
    for item in paper.items.values():
        lines += head_lines(item)
        for cells in scales:
            lines += measured_lines(item, cells) if _is_measured(item, cells) else []
        unmeasured = [cells.scale for cells in scales if not _is_measured(item, cells)]
        lines += [f"Nothing measured: {', '.join(unmeasured)}.", ""] if unmeasured else []
    lines += ["## Runs at full size", "", "Hours and memory are estimates.", ""]
    lines += [*_need_lines(paper), *_cost_lines(paper), "", "## Where the numbers come from", ""]
    return [*lines, *_source_lines(scales)]


def _is_measured(item: Item, cells: Cells) -> bool:
    return any(cell.state == "measured" for row in item.rows for cell in cells.row_cells(item, row))


def _need_lines(paper: Paper) -> list[str]:
    """What must be there before: files of others."""
    if not paper.needs:
        return []
    kinds = {True: "the model hub", False: "its makers"}
    full = [need for need in paper.needs if need.scale == "full"]
    rows = [[f"`{need.path}`", need.what, kinds[need.is_on_hub]] for need in full]
    head = "They need, in the folders of data and models (`CAPTIONING_DATA`, `CAPTIONING_MODELS`):"
    lines = [head, "", *markdown_lines(["file or folder", "what", "from"], rows), ""]
    for need in paper.needs:
        if need.scale != "full":
            lines += [f"Runs at the scale `{need.scale}` need `{need.path}`: {need.what}.", ""]
    return lines


def _cost_lines(paper: Paper) -> list[str]:
    """Runs at full size with what they cost and what differs from the paper."""
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
        return ["Nothing is measured yet."]
    return markdown_lines(["scale", "run", "seeds", "commit", "date", "machine"], rows)


def _source(run: Run) -> dict[str, Any]:
    """Versions and seed of a run; those of a set that was made are in its card."""
    versions, seed = run.versions, run.setting("seed")
    if not versions:
        contents = (content for content in run.files.values() if isinstance(content, dict))
        made = next((content for content in contents if content.get("versions")), {})
        versions, seed = made.get("versions", {}), (made.get("config") or {}).get("seed")
    return {**versions, "seed": "—" if seed is None else seed}


def label(name: str) -> str:
    """``table2`` as Table 2."""
    for kind in ("table", "figure"):
        if name.startswith(kind):
            return f"{kind.capitalize()} {name.removeprefix(kind)}"
    return name


def _number(value: float | None) -> str:
    return "—" if value is None else f"{value:g}"
