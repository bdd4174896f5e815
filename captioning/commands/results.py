"""Commands on the results of runs: records and tables."""

from __future__ import annotations

import shlex
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from captioning.commands.command import PlainCommand

TABLE_FORMATS = ("csv", "json", "latex", "md")


def _table_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("runs", nargs="+", help="run folders, folders of runs, or files of records (.jsonl)")
    add("--only", nargs="+", default=[], metavar="NAME", help="runs of these names (with * and ?)")
    add("--group", nargs="+", default=["run_name"], help="config keys")
    add("--metrics", nargs="+", help="metrics of the columns; default: those of most papers")
    add("--split", default="test", help="split in metrics.json")
    add("--percent", action="store_true", help="scores times 100")
    add("--digits", type=int, help="number of decimals")
    add("--best", action="store_true", help="mark the best of each column in bold")
    add("--lower", nargs="+", default=[], help="metrics whose lowest value is the best")
    add("--against", nargs="+", metavar="VALUE", help="row to compare with: its values of --group")
    add("--published", type=Path, help="YAML file of published scores: {row: {metric: score}}")
    add("--format", choices=TABLE_FORMATS, default="md")
    add("--into", type=Path, help="file that receives the table, between its marks")


def _table(options: Namespace) -> None:
    from captioning.results.table import DEFAULT_METRICS, table_text
    from captioning.results.table_formats import put_between_marks

    if options.digits is not None and options.digits < 0:
        raise ValueError(f"--digits must be at least 0: got {options.digits}")
    chosen = dict(vars(options))
    chosen["metrics"] = chosen["metrics"] or list(DEFAULT_METRICS)
    into = chosen.pop("into")
    text = table_text(**chosen, command=shlex.join(["captioning", *sys.argv[1:]]))
    if into is None:
        print(text, end="")
    else:
        put_between_marks(into, text)


def _record_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", type=Path, help="run folders, or folders of runs")
    parser.add_argument("--out", type=Path, required=True, help="folder of record files")
    parser.add_argument("--per-image", nargs="+", default=[], metavar="METRIC")


def _record(options: Namespace) -> None:
    from captioning.results.runs import check_names, has_numbers, keep_record, read_run, recordable

    folders = recordable(options.runs)
    check_names(filter(has_numbers, map(read_run, folders)))  # one at a time, as they are large
    for run in map(read_run, folders):
        if has_numbers(run):
            path = keep_record(run.folder, options.out, per_image=options.per_image)
            print(f"{run.name}: {path}")
        else:
            print(f"left out, unfinished or without numbers: {run.folder}")


TABLE = PlainCommand(
    name="table",
    summary="Build a table from run folders or from records of runs.",
    examples=(
        "table runs --percent --best",
        "table runs --group model.name --format json",
    ),
    add_arguments=_table_arguments,
    call=_table,
)
RECORD = PlainCommand(
    name="record",
    summary="Record the results of finished runs for tables, one line per run.",
    examples=(
        "record runs --out records",
        "record runs --out records --per-image CIDEr-D",
    ),
    add_arguments=_record_arguments,
    call=_record,
)
