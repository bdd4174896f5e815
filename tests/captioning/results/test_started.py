"""Paths outside of the user's data folders are told of folders from elsewhere alone."""

from __future__ import annotations

import json
import logging
import shutil
import stat
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from captioning.results import folder_config
from captioning.results.folder_config import FILE_NAME
from captioning.results.run_folder import RunFolder
from tests.captioning.results.test_run_folder import make_config, save_checkpoint


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("captioning.config.plugins._folders", set())
    monkeypatch.chdir(tmp_path)
    return tmp_path / "state" / "captioning" / "key"


@pytest.fixture
def run(state: Path, tmp_path: Path) -> Path:
    """A run that was started here, on photos that lie elsewhere than the user's data."""
    folder = RunFolder(tmp_path / "run")
    (tmp_path / "elsewhere" / "set").mkdir(parents=True)
    data = {"name": "toy", "root": "elsewhere/set", "train": {"_target_": "reader"}}
    folder.open(make_config(folder.path, data=data))
    save_checkpoint(folder.path / "checkpoints" / "last.ckpt")
    return folder.path


def told(run: Path, caplog: pytest.LogCaptureFixture) -> list[str]:
    """What opening a run says of paths; each is told once in a process."""
    caplog.set_level(logging.WARNING)
    caplog.clear()
    folder_config._shown.clear()
    RunFolder(run).config()
    return [message.partition(": ")[2].split()[0] for message in caplog.messages]


def put(run: Path, key: str, value: str) -> None:
    config = OmegaConf.load(run / "config.yaml")
    OmegaConf.update(config, key, value)
    OmegaConf.save(config, run / "config.yaml")


def test_nothing_is_told_of_what_was_started_here(run: Path, tmp_path: Path, caplog) -> None:
    assert told(run, caplog) == []
    assert told(run.rename(tmp_path / "moved"), caplog) == []


def test_a_name_without_a_folder_is_known_from_elsewhere_too(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog
) -> None:
    (tmp_path / "set").mkdir()
    data = {"name": "toy", "root": "set", "train": {"_target_": "reader", "folder": "set"}}
    folder = RunFolder(Path("run"))
    folder.open(make_config(Path("run"), data=data, run_dir="run"))
    save_checkpoint(folder.path / "checkpoints" / "last.ckpt")
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    assert RunFolder(tmp_path / "run").config().data.root == str(tmp_path / "set")
    assert told(tmp_path / "run", caplog) == []
    (tmp_path / "run" / FILE_NAME).unlink()
    assert told(tmp_path / "run", caplog) == ["data.root"]


def test_a_folder_from_somebody_else_is_told(run: Path, state: Path, caplog) -> None:
    state.write_bytes(b"x" * 32)  # another user's key

    assert told(run, caplog) == ["data.root"]


def test_a_folder_without_marks_is_told(run: Path, caplog) -> None:
    (run / FILE_NAME).unlink()

    assert told(run, caplog) == ["data.root"]


def test_settings_that_were_edited_are_told(run: Path, tmp_path: Path, caplog) -> None:
    put(run, "data.root", str(tmp_path / "other"))
    assert told(run, caplog) == ["data.root"]
    # a place that was named is known of its own setting alone
    put(run, "data.root", "elsewhere/set")
    put(run, "model.weights", str(tmp_path / "elsewhere" / "set"))
    assert told(run, caplog) == ["model.weights"]


def test_a_relative_path_that_leads_elsewhere_is_told(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog
) -> None:
    (tmp_path / "here" / "elsewhere" / "set").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")

    assert told(run, caplog) == ["data.root"]


def test_marks_of_another_run_do_not_cover_a_folder(run: Path, tmp_path: Path, caplog) -> None:
    foreign = tmp_path / "foreign"
    shutil.copytree(run, foreign)
    (foreign / FILE_NAME).write_text(json.dumps(["0" * 32]))

    assert told(foreign, caplog) == ["data.root"]


def test_damaged_marks_cover_nothing(run: Path, caplog) -> None:
    (run / FILE_NAME).write_text("{")

    assert told(run, caplog) == ["data.root"]


def test_the_key_is_the_users_alone(run: Path, state: Path, caplog) -> None:
    assert len(state.read_bytes()) == 32
    assert stat.S_IMODE(state.stat().st_mode) == 0o600
    state.chmod(0o644)
    assert told(run, caplog) == ["data.root"]


def test_without_a_place_for_the_key_a_run_starts_and_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("captioning.config.plugins._folders", set())
    folder = RunFolder(tmp_path / "run")
    data = {"name": "toy", "root": "/elsewhere/set", "train": {"_target_": "reader"}}
    folder.open(make_config(folder.path, data=data))

    assert not (folder.path / FILE_NAME).exists()
    assert told(folder.path, caplog) == ["data.root"]
