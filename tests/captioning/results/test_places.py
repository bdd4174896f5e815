"""Paths are no settings: the same files in another spelling or place are the same run."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from captioning.results.run_folder import _BLOCK, _WHOLE, RunFolder, content_of
from tests.captioning.results.test_run_folder import make_config, save_checkpoint


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a pretrained model and words, beside which the command is started."""
    monkeypatch.chdir(tmp_path)
    model = tmp_path / "models" / "small"
    model.mkdir(parents=True)
    (model / "config.json").write_text("{}")
    (model / "model.safetensors").write_bytes(bytes(range(256)))
    (tmp_path / "models" / "words.txt").write_text("a\ndog\n")
    return tmp_path / "models"


def config_of(run: Path, model: str, words: list[str], **changes: Any) -> dict[str, object]:
    parts = {"model": {"pretrained": model}, "steps": {"add": {"files": words}}}
    return make_config(run, **parts, **changes)


@pytest.fixture
def run(models: Path, tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "run")
    folder.open(config_of(folder.path, "models/small", ["models/words.txt"]))
    save_checkpoint(folder.path / "checkpoints" / "last.ckpt")
    return folder


@pytest.mark.parametrize(
    "spelling", ["./models/small", "models/small/", "{0}/models/small", "link"]
)
def test_another_spelling_is_the_same_run(run: RunFolder, spelling: str, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("models/small")
    saved = run.config()
    config = config_of(run.path, spelling.format(tmp_path), [f"{tmp_path}/models/words.txt"])

    assert run.open(config) is not None
    run.follow()
    assert run.config() == saved  # as it was typed first


def test_a_home_is_the_same_run(run: RunFolder, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))

    assert run.open(config_of(run.path, "~/models/small", ["~/models/words.txt"])) is not None


def test_files_that_moved_are_known_by_what_they_hold(run: RunFolder, models: Path) -> None:
    models.rename(models.with_name("moved"))
    config = config_of(run.path, "moved/small", ["moved/words.txt"])

    assert run.open(config) is not None
    run.follow()
    assert run.config().model.pretrained == "moved/small"
    assert run.config().steps.add.files == ["moved/words.txt"]


@pytest.mark.parametrize("name", ["small/model.safetensors", "words.txt"])
def test_files_that_moved_and_changed_are_refused(run: RunFolder, models: Path, name: str) -> None:
    shutil.copytree(models, models.with_name("moved"))
    (models.with_name("moved") / name).write_bytes(b"other")
    with pytest.raises(ValueError, match="holds a run with another config"):
        run.open(config_of(run.path, "moved/small", ["moved/words.txt"]))


def test_a_place_of_an_older_run_is_a_setting(run: RunFolder, models: Path) -> None:
    (run.path / "places.json").unlink()
    models.rename(models.with_name("moved"))
    with pytest.raises(ValueError, match="model.pretrained: models/small -> moved/small"):
        run.open(config_of(run.path, "moved/small", ["moved/words.txt"]))


def test_another_cache_is_the_same_run_and_is_kept(run: RunFolder) -> None:
    other = {"paths": {"cache": "other"}, "features": {"folder": "other/features"}}
    config = config_of(run.path, "models/small", ["models/words.txt"], **other)

    assert run.open(config) is not None
    run.follow()
    assert run.config().paths.cache == "other"


def test_a_large_file_is_known_by_its_blocks(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    path.write_bytes(bytes(_WHOLE + 3 * _BLOCK))
    before = content_of(path)
    with path.open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"1")
    assert content_of(path) != before


def test_of_a_run_the_checkpoints_count_alone(run: RunFolder) -> None:
    before = content_of(run.path)
    (run.path / "metrics.json").write_text("{}")
    assert content_of(run.path) == before
    save_checkpoint(run.path / "checkpoints" / "last.ckpt", updates=20)
    assert content_of(run.path) != before


def test_data_by_a_relative_path_are_found_from_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    (project / "photos").mkdir(parents=True)
    elsewhere.mkdir()
    monkeypatch.chdir(project)
    data = {"name": "toy", "root": "photos", "train": {"_target_": "reader", "folder": "photos"}}
    config = make_config(Path("runs/own/seed0"), data=data)
    RunFolder(Path("runs/own/seed0")).open(config)
    monkeypatch.chdir(elsewhere)

    found = RunFolder(project / "runs/own/seed0").config().data
    assert (found.root, found.train.folder) == (str(project / "photos"),) * 2
    # what lies here is meant, and the run's own file stays as it was typed
    (elsewhere / "photos").mkdir()
    assert RunFolder(project / "runs/own/seed0").config().data.root == "photos"
    assert OmegaConf.load(project / "runs/own/seed0/config.yaml").data.root == "photos"
