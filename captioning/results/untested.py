"""The mark of a run that has ended and has no test, whose scores would tell that it has."""

from __future__ import annotations

from pathlib import Path

from captioning.runtime.files import write_json

FILE_NAME = "untested.json"


def end_untested(run: Path) -> None:
    """Write ``untested.json`` into a run's folder: all epochs are over, and there is no test."""
    write_json(run / FILE_NAME, {"test": None})


def ended_untested(run: Path) -> bool:
    """Whether the run has ended without a test."""
    return (run / FILE_NAME).is_file()
