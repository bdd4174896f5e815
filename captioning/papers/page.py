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
    names = [column.name for column in item.columns]
    notes: list[str] = []
    measured = [[row.name, *_texts(cells, item, row, notes)] for row in item.rows]
    where = f"page {item.page}" if isinstance(item.page, int) else item.page
    lines = [f"### {label(item.id)}: {item.title} ({where})", ""]
    lines += [item.note, ""] if item.note else []
    if any(value is not None for row in item.rows for value in row.published):
        published = [[row.name, *map(_number, row.published)] for row in item.rows]
        lines += ["Published:", "", *markdown_lines(["", *names], published), ""]
    scale = cells.paper.scales.get(cells.scale, "not described")
    lines += [f"Measured, scale `{cells.scale}` ({scale}):", ""]
    lines += [*markdown_lines(["", *names], measured), ""]
    lines += [f"{number}. {note}" for number, note in enumerate(notes, start=1)]
    return [*lines, ""] if notes else lines


def label(name: str) -> str:
    """``table2`` as Table 2."""
    for kind in ("table", "figure"):
        if name.startswith(kind):
            return f"{kind.capitalize()} {name.removeprefix(kind)}"
    return name


def _texts(cells: Cells, item: Item, row: Row, notes: list[str]) -> list[str]:
    """Cells of a row; why and how they differ become notes, each once."""
    return [_text(cell, notes) for cell in cells.row_cells(item, row)]


def _text(cell: Cell, notes: list[str]) -> str:
    remarks = [cell.reason] if cell.reason else list(cell.differs)
    for remark in remarks:
        if remark not in notes:
            notes.append(remark)
    marks = " ".join(f"[{notes.index(remark) + 1}]" for remark in remarks)
    if cell.state != "measured":
        return f"{cell.state} {marks}".strip()
    spread = "" if cell.deviation is None else f" ± {cell.deviation:.2f}"
    return f"{cell.mean:.2f}{spread} ({len(cell.values)}) {marks}".strip()


def _number(value: float | None) -> str:
    return "—" if value is None else f"{value:g}"
