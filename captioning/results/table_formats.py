"""Format a table of scores as Markdown, LaTeX, CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from captioning.runtime.files import write_text

MISSING = "missing"
_LATEX = str.maketrans(
    {c: f"\\{c}" for c in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", "\n": " "}
)
MIN_P_VALUE = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Difference between a row and the row it is compared with, in the table's unit.

    ``mean`` with the ends of its interval, ``low`` and ``high``; the two-sided ``p_value``; over
    ``num_pairs`` runs of the same seeds, ``num_missing`` of the larger row's runs left out.
    """

    mean: float
    low: float
    high: float
    p_value: float
    num_pairs: int
    num_missing: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Mean and sample standard deviation of a score over runs; None if there is no score.

    ``num_runs`` of the row's runs have the score and ``num_missing`` do not.
    """

    mean: float | None = None
    spread: float | None = None
    num_runs: int = 0
    num_missing: int = 0
    is_best: bool = False
    difference: Difference | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Row of a table: values of the group's keys, number of runs, and a cell per metric.

    ``num_runs`` is None for published scores. Rows are compared with the ``is_baseline`` row.
    """

    labels: tuple[str | None, ...]
    num_runs: int | None
    cells: tuple[Cell, ...]
    is_baseline: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Table of rows and columns, with the provenance of the values.

    Attributes:
        group: config keys, the first columns.
        metrics: the columns after the number of runs.
        compared: metrics with a column of differences.
        against: values of the row that differences refer to.
        rows: see `Row`.
        head: header lines: command, scale, commits, seeds, machines, dates, commands of the runs.
        digits: number of decimals.
    """

    group: tuple[str, ...]
    metrics: tuple[str, ...]
    compared: tuple[str, ...]
    against: str
    rows: tuple[Row, ...]
    head: tuple[str, ...]
    digits: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Style:
    """Markup characters and functions of a format."""

    missing: str
    plus_minus: str
    escape: Callable[[str], str]
    bold: Callable[[str], str]
    math: Callable[[str], str]


_MARKDOWN = _Style(
    missing="—",
    plus_minus="±",
    escape=lambda text: text.replace("|", "\\|").replace("\n", " "),
    bold=lambda text: f"**{text}**",
    math=lambda text: text,
)
_TEX = _Style(
    missing="--",
    plus_minus=r"\pm",
    escape=lambda text: text.translate(_LATEX),
    bold=lambda text: rf"\mathbf{{{text}}}",
    math=lambda text: f"${text}$",
)


def to_markdown(table: Table) -> str:
    """Format the table in Markdown, with the header as a list above."""
    columns, *rows = _texts(table, _MARKDOWN)
    lines = markdown_lines(columns, rows)
    return "\n".join([*(f"- {_one_line(line)}" for line in table.head), "", *lines, ""])


def markdown_lines(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a Markdown table.

    Args:
        columns: names of the columns.
        rows: one formatted cell per column.
    """
    lines = [f"| {' | '.join(row)} |" for row in (columns, *rows)]
    lines.insert(1, "|" + " --- |" * len(columns))
    return lines


def to_latex(table: Table) -> str:
    """Format the table as a LaTeX ``tabular`` (booktabs), with the header as comments above."""
    columns, *body = [" & ".join(row) + r" \\" for row in _texts(table, _TEX)]
    number = 1 + len(table.metrics) + len(table.compared)
    first = rf"\begin{{tabular}}{{{'l' * len(table.group)}{'r' * number}}}"
    lines = [*(f"% {_one_line(line)}" for line in table.head), first, r"\toprule", columns]
    return "\n".join([*lines, r"\midrule", *body, r"\bottomrule", r"\end{tabular}", ""])


def to_csv(table: Table) -> str:
    """Format the table as CSV of numbers, with header comments above; missing values are empty.

    A metric's columns are its mean, standard deviation and number of runs. If rows are compared,
    the difference, its interval, p and the number of paired runs follow.
    """
    columns = [*table.group, "runs"]
    for name in table.metrics:
        columns += [name, f"{name} std", f"{name} runs"]
        if name in table.compared:
            columns += [f"{name} {part}" for part in ("difference", "low", "high", "p", "pairs")]
    file = io.StringIO()
    file.writelines(f"# {_one_line(line)}\n" for line in table.head)
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    for row in table.rows:
        values: list[str | float | None] = [*row.labels, row.num_runs]
        for name, cell in zip(table.metrics, row.cells, strict=True):
            values += [cell.mean, cell.spread, cell.num_runs]
            if name in table.compared:
                values += _numbers(cell.difference)
        writer.writerow(
            [f"{value:.10g}" if isinstance(value, float) else value for value in values]
        )
    return file.getvalue()


def _numbers(difference: Difference | None) -> list[float | None]:
    if difference is None:
        return [None] * 5
    return [
        difference.mean,
        difference.low,
        difference.high,
        difference.p_value,
        difference.num_pairs,
    ]


def _texts(table: Table, style: _Style) -> list[list[str]]:
    """Header row and all other rows as texts."""
    head = [style.escape(key) for key in (*table.group, "runs")]
    for name in table.metrics:
        head.append(style.escape(name))
        if name in table.compared:
            head.append(style.escape(f"{name} against {table.against}"))
    rows = [head]
    for row in table.rows:
        labels = [style.missing if x is None else style.escape(x) for x in row.labels]
        texts = [*labels, style.missing if row.num_runs is None else str(row.num_runs)]
        for name, cell in zip(table.metrics, row.cells, strict=True):
            texts.append(_cell_text(cell, style, table.digits))
            if name in table.compared:
                is_baseline = row.is_baseline and cell.mean is not None
                text = _difference_text(cell.difference, style, table.digits)
                texts.append("baseline" if is_baseline else text)
        rows.append(texts)
    return rows


def _cell_text(cell: Cell, style: _Style, digits: int) -> str:
    """``mean ± std`` over the runs that have the value, and the number of runs without it."""
    if cell.mean is None:
        return style.missing
    mean = f"{cell.mean:.{digits}f}"
    text = style.bold(mean) if cell.is_best else mean
    if cell.spread is not None:
        text += f" {style.plus_minus} {cell.spread:.{digits}f}"
    return style.math(text) + _missing_note(cell.num_missing)


def _difference_text(difference: Difference | None, style: _Style, digits: int) -> str:
    if difference is None:
        return style.missing
    mean, low, high = (
        f"{x:+.{digits}f}" for x in (difference.mean, difference.low, difference.high)
    )
    is_tiny = difference.p_value < MIN_P_VALUE
    p_value = f"p < {MIN_P_VALUE}" if is_tiny else f"p = {difference.p_value:.3f}"
    text = f"{style.math(mean)} {style.math(f'[{low}, {high}]')}, {style.math(p_value)}"
    return text + _missing_note(difference.num_missing)


def _missing_note(number: int) -> str:
    return f" ({number} {MISSING})" if number else ""


def _one_line(text: str) -> str:
    """Header line without line breaks, which would end the comment or the list's item."""
    return " ".join(text.splitlines())


def marks(name: str = "table") -> tuple[str, str]:
    """Marks before and after the part of a page that is generated."""
    return f"<!-- {name} -->", f"<!-- /{name} -->"


def put_between_marks(path: Path, text: str, name: str = "table") -> None:
    """Replace the text between ``<!-- NAME -->`` and ``<!-- /NAME -->`` in a file.

    Raises:
        ValueError: the file does not have exactly one such pair of marks.
    """
    begin, end = marks(name)
    before, opened, rest = path.read_text(encoding="utf-8").partition(begin)
    _, closed, after = rest.partition(end)
    if not opened or not closed or begin in after:
        raise ValueError(f"{path}: must have one pair of marks, {begin} and then {end}")
    write_text(path, f"{before}{begin}\n{text}{end}{after}")


def to_json(table: Table) -> str:
    """Format the table as JSON: `Table` with its rows and cells, numbers in full precision."""
    return json.dumps(asdict(table), indent=1, ensure_ascii=False) + "\n"


FORMATS = {"md": to_markdown, "csv": to_csv, "latex": to_latex, "json": to_json}


def note_marks(texts: Iterable[str], notes: list[str]) -> str:
    """Numbers of notes in brackets; new notes are added to the existing notes."""
    numbers = []
    for text in texts:
        if text not in notes:
            notes.append(text)
        numbers.append(f"[{notes.index(text) + 1}]")
    return " ".join(numbers)


def numbered_lines(notes: Sequence[str]) -> list[str]:
    """Notes with the numbers that `note_marks` gave them."""
    return [f"{number}. {note}" for number, note in enumerate(notes, start=1)]
