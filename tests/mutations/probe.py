"""Which tests evaluate which expression, how long tests take, and a choice of tests to run.

``tests.mutations.mutate`` copies this file to the root of a tree as ``sitecustomize.py``: Python
imports it at the start of every process whose path has the tree, those that tests start included,
and pytest loads it as a plugin, which is too late for its assertions: PYTEST_DONT_REWRITE.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

EVENT = "mutations.reached"  # raised by probes as `sys.audit(EVENT, id)`
REACHED, REPORTS = "reached", "reports"  # folders in the tree, of files with a line each
CHOICE = "MUTATION_TESTS"  # the variable that names a file with the tests to run, in order
_HERE = Path(__file__).resolve().parent
_noted: set[tuple[int, str]] = set()


def note(event: str, args: tuple[Any, ...]) -> None:
    """The audit hook: an expression and the test during which it is evaluated, once each."""
    if event != EVENT:
        return
    seen = (args[0], os.environ.get("PYTEST_CURRENT_TEST", ""))
    if seen not in _noted:
        _noted.add(seen)
        append(REACHED, seen)


def append(folder: str, row: Iterable[Any]) -> None:
    with (_HERE / folder / f"{os.getpid()}.jsonl").open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(list(row)) + "\n")


def pytest_runtest_logreport(report: Any) -> None:
    """A line for set-up, call and tear-down of each test."""
    if (_HERE / REPORTS).is_dir() and "PYTEST_XDIST_WORKER" not in os.environ:
        append(REPORTS, (report.nodeid, report.when, report.outcome, report.duration))


def pytest_collection_finish(session: Any) -> None:
    """Only the chosen tests, in the order of their choice, whatever order the suite prefers."""
    if CHOICE not in os.environ:
        return
    chosen = json.loads(Path(os.environ[CHOICE]).read_text(encoding="utf-8"))
    place = {test: place for place, test in enumerate(chosen)}
    kept = [item for item in session.items if item.nodeid in place]
    session.items[:] = sorted(kept, key=lambda item: place[item.nodeid])


if (_HERE / REACHED).is_dir():
    sys.addaudithook(note)
