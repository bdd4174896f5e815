"""Ids under which wandb and MLflow go on, with stand-ins for both libraries."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from captioning.training import loggers as tracking


@pytest.fixture
def calls(monkeypatch) -> list[dict[str, Any]]:
    """What the loggers of Lightning are built with."""
    built: list[dict[str, Any]] = []

    def stand_in(**options: Any) -> SimpleNamespace:
        built.append(options)
        return SimpleNamespace(run_id=options.get("run_id") or "run7")

    monkeypatch.setattr(tracking, "need", lambda logger, *, module: None)
    monkeypatch.setattr(tracking, "WandbLogger", stand_in)
    monkeypatch.setattr(tracking, "MLFlowLogger", stand_in)
    return built


def test_a_resumed_run_has_the_same_id(calls, tmp_path: Path) -> None:
    for _ in range(2):
        tracking.wandb_logger(save_dir=tmp_path, project="captioning", offline=True)
        tracking.mlflow_logger(save_dir=tmp_path, experiment="captioning")
    first, mlflow, second, mlflow_again = calls
    assert first["id"] == second["id"]
    assert first["resume"] == "allow"
    assert (mlflow["run_id"], mlflow_again["run_id"]) == (None, "run7")
    assert mlflow["tracking_uri"] == f"file:{tmp_path.resolve()}/logs/mlflow"
    ids = json.loads((tmp_path / "logs" / "ids.json").read_text())
    assert ids == {"wandb": first["id"], "mlflow": "run7"}
    tracking.wandb_logger(save_dir=tmp_path / "other")
    assert calls[-1]["id"] != first["id"]


def test_runs_of_a_sweep_have_its_name_as_a_tag(calls, tmp_path: Path) -> None:
    tracking.mlflow_logger(save_dir=tmp_path, experiment="captioning", sweep="lr-1234")
    tracking.mlflow_logger(save_dir=tmp_path / "alone", experiment="captioning")
    assert [call["tags"] for call in calls] == [{"sweep": "lr-1234"}, None]


def test_a_logger_that_is_not_installed_names_its_extra(monkeypatch, small) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for name in ("wandb", "mlflow"):
        with pytest.raises(ModuleNotFoundError, match=rf"logger={name}.*extra 'tracking'"):
            tracking.need(name, module=name)
