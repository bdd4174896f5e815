"""CSV, wandb and MLflow loggers whose curves a resumed run continues.

Lightning's own CSV logger overwrites its file when a run resumes. wandb and MLflow continue a curve
by the id stored in the run folder.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, final

from pytorch_lightning.loggers import MLFlowLogger, WandbLogger
from pytorch_lightning.loggers.logger import Logger
from pytorch_lightning.utilities import rank_zero_only

from captioning.runtime.extras import missing
from captioning.runtime.files import read_json, write_json, write_text

FILE_NAME = "metrics.csv"
FIRST_COLUMNS = ("epoch", "step")
Row = dict[str, Any]
EXTRA = "tracking"
IDS = Path("logs") / "ids.json"


@final
class CsvLogger(Logger):
    """CSV logger with a row per logged step and a column per logged name.

    Rows are appended at once, so a killed run loses none. A new name adds a column and rewrites the
    file.

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
        """Name of the folder above the version."""
        return self._name

    @property
    def version(self) -> str | int:
        """Name of the innermost folder."""
        return self._version

    @property
    def save_dir(self) -> str:
        """Parent folder of the log folders."""
        return str(self.path.parent)

    @rank_zero_only
    def begin(self, step: int) -> None:
        """Drop a truncated row and the rows of updates that the resumed run repeats.

        Args:
            step: number of updates done; at 0 the file starts empty.
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
        """Ignore hyperparameters, as the run folder has ``config.yaml``."""

    def _write(self, rows: Sequence[Row]) -> None:
        columns = self._columns or list(FIRST_COLUMNS)
        write_text(self.path, _lines([{name: name for name in columns}, *rows], columns))


def _lines(rows: Sequence[Row], columns: Sequence[str]) -> str:
    text = io.StringIO()
    csv.DictWriter(text, columns, restval="", lineterminator="\n").writerows(rows)
    return text.getvalue()


def read_rows(path: Path) -> list[Row]:
    """Complete rows of a file of curves, as text by column; empty if the file does not exist."""
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


def wandb_logger(*, save_dir: str | Path, **options: Any) -> WandbLogger:
    """Build Lightning's logger of Weights & Biases.

    Args:
        save_dir: the run folder; keeps files and id.
        **options: options of `pytorch_lightning.loggers.WandbLogger`, such as ``project`` and
            ``offline``.

    Raises:
        ModuleNotFoundError: wandb is not installed.
    """
    need("wandb", module="wandb")
    key = kept_id(save_dir, "wandb") or keep_id(save_dir, "wandb", secrets.token_hex(4))
    return WandbLogger(save_dir=save_dir, id=key, resume="allow", **options)


def mlflow_logger(
    *,
    save_dir: str | Path,
    experiment: str,
    name: str | None = None,
    sweep: str | None = None,
    uri: str | None = None,
) -> MLFlowLogger:
    """Build Lightning's logger of MLflow.

    Args:
        save_dir: the run folder; keeps the id, and the files where there is no server.
        experiment: name of the experiment.
        name: the run's name.
        sweep: value of the run's tag ``sweep``; None: no such tag.
        uri: address of a tracking server; None: files in ``logs/mlflow``.

    Raises:
        ModuleNotFoundError: neither mlflow nor mlflow-skinny is installed.
    """
    need("mlflow", module="mlflow")
    if uri is None:
        # MLflow 3 would have a database, whose packages mlflow-skinny does not bring.
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    store = uri or f"file:{Path(save_dir).resolve() / 'logs' / 'mlflow'}"
    logger = MLFlowLogger(
        experiment_name=experiment,
        run_name=name,
        tracking_uri=store,
        tags=None if sweep is None else {"sweep": sweep},
        run_id=kept_id(save_dir, "mlflow"),
    )
    if logger.run_id is not None:  # begins the run; other processes have none
        keep_id(save_dir, "mlflow", logger.run_id)
    return logger


def need(logger: str, *, module: str) -> None:
    """Raise an error if a logger's package is not installed, without importing it.

    Raises:
        ModuleNotFoundError: the package is missing; the message says how to install it.
    """
    if importlib.util.find_spec(module) is None:
        raise missing(module, extra=EXTRA, purpose=f"logger={logger}")


def kept_id(run: str | Path, logger: str) -> str | None:
    """Identifier under which a run was logged before; None if it was not."""
    path = Path(run) / IDS
    return read_json(path).get(logger) if path.is_file() else None


def keep_id(run: str | Path, logger: str, key: str) -> str:
    """Write a run's logging identifier to the run folder and return it."""
    path = Path(run) / IDS
    ids = read_json(path) if path.is_file() else {}
    if ids.get(logger) != key:
        write_json(path, ids | {logger: key})
    return key
