"""Captions as the lines of a text file: a corpus without photos."""

from __future__ import annotations

from pathlib import Path

from captioning.data.collector import collector_paused
from captioning.data.entries import normalised
from captioning.data.line_files import read_lines
from captioning.data.roster import Roster, build_roster
from captioning.types import Sample


@collector_paused()
def read_caption_lines(*, name: str, path: str | Path) -> Roster:
    """One caption a line; blank lines are none.

    Each caption is its own image, named by its line from 1 on.

    Args:
        name: of the roster.
        path: a file in UTF-8.

    Raises:
        FileNotFoundError: no such file.
        ValueError: no caption is in it, or it is not UTF-8.
    """
    samples = [
        Sample(
            row=0,
            sample_id=f"{number}#0",
            image_id=str(number),
            image_path=Path(f"{number}.none"),
            caption=normalised(line, f"{path}:{number}"),
        )
        for number, line in read_lines(path)
    ]
    if not samples:
        raise ValueError(f"{path}: holds no caption; write one a line")
    return build_roster(name, samples)
