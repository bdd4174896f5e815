"""``captioning paper``: print tables of reproduced papers and run their experiments."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from captioning.commands.command import PlainCommand

LIST = "list"


def _arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("paper", metavar="PAPER", help=f"its name, its FILE.yaml, or {LIST}: all papers")
    add("item", nargs="?", metavar="ITEM", help="2, table2 or figure5; default: all")
    add("--scale", choices=("full", "flickr8k", "miniworld"), default="full")
    add("--seeds", metavar="0,1,2", help="seeds of the runs; default: 0, for main tables 0,1,2")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--commands", action="store_true", help="print the commands of the runs")
    mode.add_argument("--run", action="store_true", help="run the commands; finished runs are kept")
    mode.add_argument("--slurm", action="store_true", help="print a script that queues the runs")
    mode.add_argument("--page", type=Path, metavar="FILE", help="write a page of all scales")
    claims = "compare the paper's claims with measured effects"
    mode.add_argument("--effects", action="store_true", help=claims)
    lacks = "print commands of unmeasured runs; with --run: run them"
    add("--missing", action="store_true", help=lacks)
    add("--jobs", type=int, default=1, metavar="N", help="number of runs at a time")
    add("--per-gpu", type=int, default=1, metavar="N", help="maximum number of runs per GPU")
    fewer = "maximum number of GPUs per training; updates keep their size, in several parts"
    add("--devices", type=int, metavar="N", help=fewer)
    add("--rows", nargs="+", metavar="RUN", help="only these runs")
    add("--runs", type=Path, default=Path("runs"), help="folder of all runs")
    add("--records", type=Path, help="folder of records; default: that of the checkout")


def _call(options: Namespace) -> int | None:
    from captioning.papers.paper_report import show

    return show(options)


PAPER = PlainCommand(
    name="paper",
    summary="Show a paper's tables with measured results, and run what is missing.",
    examples=(
        "paper list",
        "paper cutswap table4.3 --commands",
        "paper list --effects",
    ),
    add_arguments=_arguments,
    call=_call,
)
