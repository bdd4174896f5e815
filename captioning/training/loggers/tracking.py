"""wandb and MLflow: a resumed run goes on in the same curve, by the id that its folder keeps."""

from __future__ import annotations

import importlib.util
import os
import secrets
from pathlib import Path
from typing import Any

from pytorch_lightning.loggers import MLFlowLogger, WandbLogger

from captioning.runtime.extras import missing
from captioning.runtime.files import read_json, write_json

EXTRA = "tracking"
IDS = Path("logs") / "ids.json"


def wandb_logger(*, save_dir: str | Path, **options: Any) -> WandbLogger:
    """Lightning's logger of Weights & Biases.

    Args:
        save_dir: the run folder; keeps files and id.
        **options: of `pytorch_lightning.loggers.WandbLogger`, such as ``project`` and ``offline``.

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
    """Lightning's logger of MLflow.

    Args:
        save_dir: the run folder; keeps the id, and the files where there is no server.
        experiment: name of the experiment.
        name: of the run.
        sweep: what the tag ``sweep`` of the run says; None: no such tag.
        uri: of a tracking server; None: files in ``logs/mlflow``.

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
    """Refuse a logger whose package is not installed; nothing is imported.

    Raises:
        ModuleNotFoundError: says how to install it.
    """
    if importlib.util.find_spec(module) is None:
        raise missing(module, extra=EXTRA, purpose=f"logger={logger}")


def kept_id(run: str | Path, logger: str) -> str | None:
    """The id under which a run was logged before, if it was."""
    path = Path(run) / IDS
    return read_json(path).get(logger) if path.is_file() else None


def keep_id(run: str | Path, logger: str, key: str) -> str:
    """Write a run's id down; returns it."""
    path = Path(run) / IDS
    ids = read_json(path) if path.is_file() else {}
    if ids.get(logger) != key:
        write_json(path, ids | {logger: key})
    return key
