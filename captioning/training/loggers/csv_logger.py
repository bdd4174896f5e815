"""Curves as CSV, which a resumed run goes on with.

Lightning's own logger begins its file anew whenever a run is resumed.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, final

from pytorch_lightning.loggers.logger import Logger
from pytorch_lightning.utilities import rank_zero_only

from captioning.runtime.files import write_text

FILE_NAME = "metrics.csv"
FIRST_COLUMNS = ("epoch", "step")
Row = dict[str, Any]


@final
class CsvLogger(Logger):
    """A row for each time that something is logged, and a column for each name.

    Rows are appended as they come, so a killed run loses none. A name that is new adds a column;
    the file is then written anew.

    Args:
        save_dir, name, version: the file is ``SAVE_DIR/NAME/VERSION/metrics.csv``.
    """

    def __init__(
        self, *, save_dir: str | Path, name: str = "logs", version: str | int = "csv"
    ) -> None:
        super().__init__()
        self._name, self._version = name, version
        self.path = Path(save_dir) / name / str(version) / FILE_NAME
        self._columns: list[str] | None = None

    @property
    def name(self) -> str:
        """The folder above the version."""
        return self._name

    @property
    def version(self) -> str | int:
        """The innermost folder."""
        return self._version

    @property
    def save_dir(self) -> str:
        """The folder of the file."""
        return str(self.path.parent)

    @rank_zero_only
    def begin(self, step: int) -> None:
        """Drop the rows of updates that are made again, and a row that was cut off.

        Args:
            step: number of updates that the run has behind it; at 0 the file begins anew.
        """
        rows = [row for row in read_rows(self.path) if int(row["step"]) < step]
        columns = list(dict.fromkeys(name for row in rows for name in row))
        self._columns = columns or list(FIRST_COLUMNS)
        if rows or self.path.is_file():
            self._write(rows)

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Append a row."""
        if self._columns is None:
            self.begin(0 if step is None else step + 1)
        columns = self._columns or []
        row: Row = {"step": 0 if step is None else step, **metrics}
        new = sorted(name for name in row if name not in columns)
        if new or not self.path.is_file():
            self._columns = [*columns, *new]
            self._write([*read_rows(self.path), row])
            return
        with self.path.open("a", encoding="utf-8", newline="") as file:
            file.write(_lines([row], columns))

    def log_hyperparams(self, *arguments: Any, **keywords: Any) -> None:
        """Nothing: the run folder has ``config.yaml``."""

    def _write(self, rows: Sequence[Row]) -> None:
        columns = self._columns or list(FIRST_COLUMNS)
        write_text(self.path, _lines([{name: name for name in columns}, *rows], columns))


def _lines(rows: Sequence[Row], columns: Sequence[str]) -> str:
    text = io.StringIO()
    csv.DictWriter(text, columns, restval="", lineterminator="\n").writerows(rows)
    return text.getvalue()


def read_rows(path: Path) -> list[Row]:
    """The complete rows of a file of curves, as text by column; none where there is no file."""
    if not path.is_file():
        return []
    text = path.read_text(encoding="utf-8", errors="replace")
    # A row without its line's end was cut off by a kill.
    complete = text[: text.rfind("\n") + 1]
    reader = csv.DictReader(io.StringIO(complete, newline=""))
    return [
        row
        for row in reader
        if None not in row and None not in row.values() and str(row.get("step")).isdigit()
    ]
