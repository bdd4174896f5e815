"""The whole: ``python -m tests.chaos``; `make chaos` writes its record as it goes."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
from argparse import ArgumentParser
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from captioning.runtime.files import write_lines
from tests.chaos import suite
from tests.chaos.faults import Faults
from tests.chaos.nursery import Nursery
from tests.fuzz.suite import facts, merged


def main() -> int:
    """Run all scenarios; returns 1 where something failed."""
    parser = ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", metavar="WORD", help="scenarios with it in the name")
    parser.add_argument(
        "--record", type=Path, help="JSON Lines file; lines of scenarios that are run are replaced"
    )
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="work there, and leave it")
    options = parser.parse_args()
    base = options.keep or Path(tempfile.mkdtemp(prefix="chaos"))
    only = f" --only {shlex.quote(options.only)}" if options.only else ""
    about = facts(f"python -m tests.chaos --seed {options.seed}{only}")
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    records: list[dict[str, Any]] = []

    def keep(record: dict[str, Any]) -> None:
        records.append(record)
        if options.record:
            write_lines(options.record, merged(options.record, record))

    nursery = Nursery({"PYTHONWARNINGS": "ignore"})
    try:
        suite.prepare(nursery, base)
        for result in suite.strike(nursery, base, seed=options.seed, only=options.only):
            print(
                f"{result.scenario}: {result.kills} SIGKILL, {result.terms} SIGTERM in "
                f"{result.rounds} rounds, {len(result.failures)} failures, {result.seconds} s "
                f"(alone {result.seconds_alone} s, {result.events} events)",
                *result.failures,
                sep="\n    ",
                flush=True,
            )
            keep({"suite": "chaos", **asdict(result), **about})
        for fault in Faults(nursery, base).all(options.only):
            print(
                f"{fault.fault}: {fault.told} of {fault.tries} told, {fault.seconds} s",
                *(*fault.words, *fault.failures),
                sep="\n    ",
                flush=True,
            )
            keep({"suite": "chaos", "seed": options.seed, **asdict(fault), **about})
    finally:
        nursery.close()
        if options.keep is None:
            shutil.rmtree(base, ignore_errors=True)
    return int(any(record["failures"] for record in records))


if __name__ == "__main__":
    sys.exit(main())
