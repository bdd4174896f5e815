"""Why a run failed, kept in its folder until it is started again."""

from __future__ import annotations

import datetime
from pathlib import Path

from captioning.runtime.files import read_json, write_json

FILE_NAME = "failed.json"


def keep_failure(run: Path, error: str, *, details: str = "") -> None:
    """Write ``failed.json`` into a run's folder.

    Args:
        run: the folder; made if it is not there.
        error: for people, in a line or a few.
        details: such as a traceback or the end of a job's output.
    """
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    write_json(run / FILE_NAME, {"error": error, "date": now, "details": details})


def failure_of(run: Path) -> str | None:
    """Why the run failed the last time; None if it did not.

    Raises:
        ValueError: the file is damaged.
    """
    path = run / FILE_NAME
    return str(read_json(path)["error"]) if path.is_file() else None


def forget_failure(run: Path) -> None:
    """Remove the file of an earlier failure, as the run has begun again or has ended well."""
    (run / FILE_NAME).unlink(missing_ok=True)
