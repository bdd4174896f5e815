"""How a run ended, where no scores tell it: why it failed, or that it has no test."""

from __future__ import annotations

import datetime
from pathlib import Path

from captioning.runtime.files import read_json, write_json

UNTESTED_FILE = "untested.json"


def end_untested(run: Path) -> None:
    """Write ``untested.json`` into a run's folder: all epochs are over, and there is no test."""
    write_json(run / UNTESTED_FILE, {"test": None})


def ended_untested(run: Path) -> bool:
    """Whether the run has ended without a test."""
    return (run / UNTESTED_FILE).is_file()


FAILURE_FILE = "failed.json"


def keep_failure(run: Path, error: str, *, details: str = "") -> None:
    """Write ``failed.json`` into a run's folder.

    Args:
        run: the folder; made if it is not there.
        error: for people, in a line or a few.
        details: such as a traceback or the end of a job's output.
    """
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    write_json(run / FAILURE_FILE, {"error": error, "date": now, "details": details})


def failure_of(run: Path) -> str | None:
    """Why the run failed the last time; None if it did not.

    Raises:
        ValueError: the file is damaged.
    """
    path = run / FAILURE_FILE
    return str(read_json(path)["error"]) if path.is_file() else None


def forget_failure(run: Path) -> None:
    """Remove the file of an earlier failure, as the run has begun again or has ended well."""
    (run / FAILURE_FILE).unlink(missing_ok=True)
