"""The whole: ``python -m tests.fuzz``; `make fuzz` writes its record."""

from __future__ import annotations

import shlex
import shutil
import sys
import tempfile
from argparse import ArgumentParser
from pathlib import Path

import torch

from captioning.config.plugins import import_plugins
from captioning.runtime.files import write_lines
from tests.fuzz import suite


def main() -> int:
    """Feed all targets; returns 1 where something failed."""
    parser = ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=60_000, help="of all targets together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", metavar="WORD", help="targets with it in their name")
    parser.add_argument(
        "--record", type=Path, help="JSON Lines file; lines of targets that are run are replaced"
    )
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keeps inputs that failed")
    options = parser.parse_args()
    torch.set_num_threads(1)
    import_plugins(["tests"])
    command = f"python -m tests.fuzz --inputs {options.inputs} --seed {options.seed}"
    about = suite.facts(command + (f" --only {shlex.quote(options.only)}" * bool(options.only)))
    base = options.keep or Path(tempfile.mkdtemp(prefix="fuzz"))
    base.mkdir(parents=True, exist_ok=True)
    failed = 0
    arguments = {"inputs": options.inputs, "seed": options.seed, "only": options.only}
    for outcome in suite.run(base, **arguments):
        print(
            f"{outcome.target}: {outcome.inputs} inputs, {outcome.read} read, "
            f"{outcome.refused} refused, {outcome.failed} failed, {outcome.seconds} s",
            flush=True,
        )
        for failure, number in outcome.failures.items():
            print(f"    {number} x {failure}", flush=True)
        failed += outcome.failed
        if options.record:
            record = suite.line(outcome, about)
            write_lines(options.record, suite.merged(options.record, record))
    if options.keep is None:
        shutil.rmtree(base)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
