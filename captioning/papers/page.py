"""A paper's tables as text: published numbers and measured ones, never in one line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from captioning.papers.cells import Cell, Cells
from captioning.papers.paper import Item, Paper, Row
from captioning.results.table_formats import markdown_lines


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
    return [*head_lines(item), *scale_lines(item, cells)]


def head_lines(item: Item) -> list[str]:
    """Its title and the paper's numbers."""
    place = f"page {item.page}" if isinstance(item.page, int) else item.page
    lines = [f"### {label(item.id)}: {item.title} ({place})", ""]
    lines += [item.note, ""] if item.note else []
    if not item.num_cells:
        return lines
    names = [column.name for column in item.columns]
    rows = [[row.name, *map(_number, row.published)] for row in item.rows]
    return [*lines, "Published:", "", *markdown_lines(["", *names], rows), ""]


def scale_lines(item: Item, cells: Cells) -> list[str]:
    """The measured numbers of a scale, with notes on what differs and what is not possible."""
    notes: list[str] = []
    measured = [[row.name, *_texts(cells, item, row, notes)] for row in item.rows]
    where = cells.paper.scales.get(cells.scale, "not described")
    lines = [f"Measured, scale `{cells.scale}` ({where}):", ""]
    lines += [*markdown_lines(["", *(column.name for column in item.columns)], measured), ""]
    lines += [f"{number}. {note}" for number, note in enumerate(notes, start=1)]
    return [*lines, ""] if notes else lines


def page_lines(paper: Paper, scales: Sequence[Cells]) -> list[str]:
    """A page: all items, with the scales that something was measured at, and where it is from."""
    lines = [f"# {paper.title}", paper.citation, "", "```", f"captioning paper {paper.id}", "```"]
    lines += ["", "Cells with a published number, by what is there of them:", ""]
    lines += [*overview_lines([(paper, scales)]), ""]
    lines += [f"- `{cells.scale}`: {paper.scales[cells.scale]}" for cells in scales]
    lines += ["", "A measured cell: mean ± sample standard deviation (seeds) [what differs].", ""]
    lines += ["", "## Tables and figures", ""]
    for item in paper.items.values():
        lines += head_lines(item)
        for cells in scales:
            lines += scale_lines(item, cells) if _is_measured(item, cells) else []
        unmeasured = [cells.scale for cells in scales if not _is_measured(item, cells)]
        lines += [f"Nothing measured: {', '.join(unmeasured)}.", ""] if unmeasured else []
    lines += ["## Runs at full size", "", "Hours and memory are estimates.", ""]
    lines += [*_cost_lines(paper), "", "## Where the numbers come from", ""]
    return [*lines, *_source_lines(scales)]


def _is_measured(item: Item, cells: Cells) -> bool:
    return any(cell.state == "measured" for row in item.rows for cell in cells.row_cells(item, row))


def _cost_lines(paper: Paper) -> list[str]:
    """Runs at full size with what they cost and what differs from the paper."""
    rows = []
    for run in paper.runs.values():
        way = run.ways.get("full")
        if way is not None and way.impossible is None:
            hours = "—" if way.hours is None else f"{way.hours:g}"
            rows.append([run.id, hours, way.memory or "—", "; ".join(way.differs) or "nothing"])
    return markdown_lines(["run", "hours", "memory", "differs from the paper"], rows)


def _source_lines(scales: Sequence[Cells]) -> list[str]:
    """Commits, dates and machines of the measured runs."""
    rows = []
    for cells in scales:
        for name in cells.paper.runs:
            runs = cells.runs_of(name)
            facts = [
                ", ".join(dict.fromkeys(str(run.versions.get(key) or "—") for run in runs))
                for key in ("commit", "date", "machine")
            ]
            seeds = ", ".join(str(run.setting("seed")) for run in runs)
            rows += [[cells.scale, name, seeds, *facts]] if runs else []
    if not rows:
        return ["Nothing is measured yet."]
    return markdown_lines(["scale", "run", "seeds", "commit", "date", "machine"], rows)


def label(name: str) -> str:
    """``table2`` as Table 2."""
    for kind in ("table", "figure"):
        if name.startswith(kind):
            return f"{kind.capitalize()} {name.removeprefix(kind)}"
    return name


def _texts(cells: Cells, item: Item, row: Row, notes: list[str]) -> list[str]:
    """Cells of a row; why and how they differ become notes, each once."""
    return [
        _text(cell, notes, digits=2 if column.unit == "percent" else 3)
        for cell, column in zip(cells.row_cells(item, row), item.columns, strict=True)
    ]


def _text(cell: Cell, notes: list[str], *, digits: int) -> str:
    remarks = [cell.reason] if cell.reason else list(cell.differs)
    for remark in remarks:
        if remark not in notes:
            notes.append(remark)
    marks = " ".join(f"[{notes.index(remark) + 1}]" for remark in remarks)
    if cell.state != "measured":
        return f"{cell.state} {marks}".strip()
    spread = "" if cell.deviation is None else f" ± {cell.deviation:.{digits}f}"
    return f"{cell.mean:.{digits}f}{spread} ({len(cell.values)}) {marks}".strip()


def _number(value: float | None) -> str:
    return "—" if value is None else f"{value:g}"
