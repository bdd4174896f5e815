"""Read the captions of a text or JSON file as a corpus without photos."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from captioning.config.loadable import loadable
from captioning.config.setting_error import SettingError
from captioning.data.json_files import as_record, parse_json, shown
from captioning.data.line_files import read_lines, read_text
from captioning.data.readers.entries import normalised
from captioning.data.readers.many_samples import collector_paused, quick_sample
from captioning.data.roster import Roster, build_roster

# Where COCO's and MSR-VTT's files have their captions.
LISTS = ("annotations", "sentences")


@loadable
@collector_paused()
def read_caption_lines(*, name: str, path: str | Path) -> Roster:
    """Read one caption per line, skipping blank lines.

    Each caption is a separate image; the image id is its line or its place, from 1 on.

    Args:
        name: the roster's name.
        path: a file in UTF-8. ``.json``: a list, or an object with a list as ``"annotations"`` or
            ``"sentences"``, of texts or of objects with ``"caption"``; ``.jsonl``: such an object
            or text a line.

    Raises:
        FileNotFoundError: no such file.
        ValueError: no caption is in it, or it is not as said above.
    """
    samples = [
        quick_sample(
            row=row,
            sample_id=f"{number}#0",
            image_id=str(number),
            image_path=Path(f"{number}.none"),
            caption=normalised(caption, where),
        )
        for row, (number, caption, where) in enumerate(_captions(Path(path)))
    ]
    if not samples:
        raise SettingError(path, "holds no caption", "write one a line")
    return build_roster(name, samples)


def _captions(path: Path) -> Iterator[tuple[int, str, str]]:
    """Yield number, caption and location of each caption."""
    if path.suffix == ".json":
        values = _listed(parse_json(read_text(path), str(path)), str(path))
        for number, value in enumerate(values, start=1):
            yield number, _text(value, f"{path}[{number - 1}]"), f"{path}[{number - 1}]"
        return
    for number, line in read_lines(path):
        where = f"{path}:{number}"
        is_json = path.suffix == ".jsonl"
        yield number, _text(parse_json(line, where), where) if is_json else line, where


def _listed(value: Any, where: str) -> list[Any]:
    if isinstance(value, dict):
        record = as_record(value, where)
        return record.items(next((key for key in LISTS if key in record), LISTS[0]))
    if not isinstance(value, list):
        raise SettingError(where, f"must be a list of captions: got {shown(value)}", "correct it")
    return value


def _text(value: Any, where: str) -> str:
    return value if isinstance(value, str) else as_record(value, where).text("caption")
