"""A table from run folders: ``python -m captioning.metrics.table RUNS... --group KEYS``.

Each row is a group of runs with the same values of the config keys of ``--group``, each cell the
mean and the sample standard deviation over the group's seeds. What a run does not have is shown as
missing and counted, never as 0. Runs that cannot stand in one column are refused.
"""

from __future__ import annotations

import argparse
import csv
import io
import shlex
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from captioning.files import write_text
from captioning.metrics.run_folders import Run, read_runs

DEFAULT_METRICS = ("BLEU-4", "METEOR", "ROUGE-L", "CIDEr-D", "SPICE")
MISSING = "missing"
MARKS = ("<!-- table -->", "<!-- /table -->")
_LATEX = str.maketrans({c: f"\\{c}" for c in "&%$#_{}"} | {"\\": r"\textbackslash{}"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of text under column names, and what a reader needs to trust them.

    Attributes:
        columns: group keys, ``runs`` (how many), metrics.
        rows: one text a column.
        head: lines: command, commits, seeds, machines, dates, commands of the runs.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    head: tuple[str, ...]


def build_table(
    runs: Sequence[Run],
    *,
    group: Sequence[str] = ("run_name",),
    metrics: Sequence[str] = DEFAULT_METRICS,
    split: str = "test",
    command: str = "",
) -> Table:
    """Group runs and average over seeds.

    Args:
        runs: run folders' contents.
        group: dotted config keys; a row for each combination of their values.
        metrics: corpus scores of ``split``, or ``detection.KEY``, ``timing.KEY``.
        split: part of ``metrics.json``.
        command: what built the table, for its head.

    Raises:
        ValueError: runs of different data that are not grouped by ``data.name``, scores of the
            same data from different references or tokenizers, or a seed twice in a row.
    """
    _check_comparable(runs, group, split)
    rows: dict[tuple[str, ...], list[Run]] = {}
    for run in runs:
        rows.setdefault(tuple(run.setting(key) or MISSING for key in group), []).append(run)
    for label, members in rows.items():
        _check_seeds(label, members, group)
    cells = tuple(
        (*label, str(len(members)), *(_cell(members, name, split) for name in metrics))
        for label, members in rows.items()
    )
    return Table(columns=(*group, "runs", *metrics), rows=cells, head=_head(runs, command, split))


def _cell(runs: Sequence[Run], name: str, split: str) -> str:
    """``mean ± std`` over the runs that have the value, and how many lack it."""
    values = [value for run in runs if (value := run.value(name, split)) is not None]
    if not values:
        return MISSING
    text = f"{statistics.fmean(values):.4f}"
    if len(values) > 1:
        text += f" ± {statistics.stdev(values):.4f}"
    lacking = len(runs) - len(values)
    return f"{text} ({lacking} {MISSING})" if lacking else text


def _check_comparable(runs: Sequence[Run], group: Sequence[str], split: str) -> None:
    names = {run.setting("data.name") for run in runs}
    if len(names) > 1 and "data.name" not in group:
        listed = ", ".join(sorted(str(name) for name in names))
        raise ValueError(
            f"runs of different data ({listed}) must not share a column; "
            "make one table for each, or add data.name to --group"
        )
    for key in ("tokenizer", "references_hash"):
        first: dict[str | None, tuple[object, Path]] = {}
        for run in runs:
            used = run.metrics.get(split, {}).get("settings", {}).get(key)
            if used is None:
                continue
            # each data set has its own references, but the tokenizer must be one for all
            place = run.setting("data.name") if key == "references_hash" else None
            other, folder = first.setdefault(place, (used, run.folder))
            if other != used:
                raise ValueError(
                    f"scores with another {key} are not comparable: {other} in {folder}, {used} "
                    f"in {run.folder}; score them anew with evaluate.py, or make two tables"
                )


def _check_seeds(label: Sequence[str], runs: Sequence[Run], group: Sequence[str]) -> None:
    seen: dict[str, Path] = {}
    for run in runs:
        seed = run.setting("seed")
        if seed is not None and seed in seen:
            raise ValueError(
                f"row {', '.join(label)}: seed {seed} occurs twice, in {seen[seed]} and "
                f"{run.folder}; add the config key that tells them apart to --group "
                f"(now: {', '.join(group)})"
            )
        if seed is not None:
            seen[seed] = run.folder


def _head(runs: Sequence[Run], command: str, split: str) -> tuple[str, ...]:
    dates = sorted(str(run.versions["date"]) for run in runs if run.versions.get("date"))
    used = [run.metrics.get(split, {}).get("settings", {}).get("tokenizer") for run in runs]
    facts = {
        "built by": command or MISSING,
        "split": f"{split}, {len(runs)} runs, mean ± sample standard deviation over seeds",
        "commit": _distinct(run.versions.get("commit") for run in runs),
        "seeds": _distinct(run.setting("seed") for run in runs),
        "machine": _distinct(run.versions.get("machine") for run in runs),
        "date": " to ".join(dict.fromkeys((dates[0], dates[-1]))) if dates else MISSING,
        "data": _distinct(run.setting("data.name") for run in runs),
        "tokenizer": _distinct(used),
    }
    commands = dict.fromkeys(str(run.versions.get("command") or MISSING) for run in runs)
    lines = [f"{name}: {value}" for name, value in facts.items()]
    return (*lines, *(f"run: {text}" for text in commands))


def _distinct(values: object) -> str:
    return ", ".join(dict.fromkeys(MISSING if v is None else str(v) for v in values)) or MISSING


def to_markdown(table: Table) -> str:
    """The table in Markdown, its head as a list above."""
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in (table.columns, *table.rows)]
    lines = ["| " + " | ".join(row) + " |" for row in escaped]
    lines.insert(1, "|" + " --- |" * len(table.columns))
    return "\n".join([*(f"- {line}" for line in table.head), "", *lines, ""])


def to_csv(table: Table) -> str:
    """The table as CSV, its head as comment lines above."""
    file = io.StringIO()
    file.writelines(f"# {line}\n" for line in table.head)
    csv.writer(file, lineterminator="\n").writerows([table.columns, *table.rows])
    return file.getvalue()


def to_latex(table: Table) -> str:
    """The table as a LaTeX ``tabular`` (booktabs), its head as comments above."""
    rows = [[c.translate(_LATEX).replace("±", r"$\pm$") for c in row] for row in table.rows]
    body = [" & ".join(row) + r" \\" for row in rows]
    columns = " & ".join(name.translate(_LATEX) for name in table.columns) + r" \\"
    first = rf"\begin{{tabular}}{{{'l' * len(table.columns)}}}"
    lines = [*(f"% {line}" for line in table.head), first, r"\toprule", columns, r"\midrule"]
    return "\n".join([*lines, *body, r"\bottomrule", r"\end{tabular}", ""])


def put_between_marks(path: Path, text: str) -> None:
    """Replace what stands between ``<!-- table -->`` and ``<!-- /table -->`` in a file.

    Raises:
        ValueError: the file has not one such pair of marks.
    """
    before, opened, rest = path.read_text(encoding="utf-8").partition(MARKS[0])
    _, closed, after = rest.partition(MARKS[1])
    if not opened or not closed or MARKS[0] in after:
        raise ValueError(f"{path}: wants one pair of marks, {MARKS[0]} and then {MARKS[1]}")
    write_text(path, f"{before}{MARKS[0]}\n{text}{MARKS[1]}{after}")


FORMATS = {"md": to_markdown, "csv": to_csv, "latex": to_latex}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m captioning.metrics.table", description=__doc__)
    parser.add_argument("runs", nargs="+", help="run folders, or folders that hold some")
    parser.add_argument("--group", nargs="+", default=["run_name"], help="config keys")
    parser.add_argument("--metrics", nargs="+", default=list(DEFAULT_METRICS), help="columns")
    parser.add_argument("--split", default="test", help="part of metrics.json")
    parser.add_argument("--format", choices=sorted(FORMATS), default="md")
    parser.add_argument("--into", type=Path, help=f"file to put it into, between {MARKS}")
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = parser.parse_args(given)
    try:
        table = build_table(
            read_runs(options.runs),
            group=options.group,
            metrics=options.metrics,
            split=options.split,
            command=shlex.join([*parser.prog.split(), *given]),
        )
        text = FORMATS[options.format](table)
        if options.into is not None:
            put_between_marks(options.into, text)
        else:
            print(text, end="")
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
