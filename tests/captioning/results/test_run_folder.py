"""Whose run folder it is: resumed, refused, or taken over."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
from pathlib import Path

import pytest
import torch

from captioning.config.compose import compose_config
from captioning.results import versions as run_versions
from captioning.results.run_folder import OFF, RunFolder
from captioning.results.versions import versions


def make_config(folder: Path, **changes: object) -> dict[str, object]:
    settings = {"resume": "auto", "branch_from": None, "run_dir": str(folder), "seed": 0}
    settings |= {"data": {"name": "toy", "train": {"_target_": "reader"}}, "monitor": "last"}
    settings |= {"paths": {"cache": "cache"}, "curation": {"name": "none"}}
    settings |= {"loader": {"batch_size": 4, "num_workers": 0}, "noise": 0.2}
    return settings | changes


def save_checkpoint(path: Path, *, epoch: int = 0, updates: int = 10) -> None:
    path.parent.mkdir(exist_ok=True)
    torch.save({"epoch": epoch, "global_step": updates, "state_dict": {}}, path)


def test_a_run_that_failed_before_its_first_epoch_ended_makes_room_for_a_corrected_one(tmp_path):
    folder = RunFolder(tmp_path / "run")
    assert folder.open(make_config(folder.path)) is None
    (folder.path / "noise_truth.json").write_text("{}")
    (folder.path / "logs").mkdir()
    assert folder.open(make_config(folder.path, noise=0.1)) is None
    assert folder.config().noise == 0.1
    names = sorted(path.name for path in folder.path.iterdir())
    assert names == ["config.yaml", "places.json", "started.json", "versions.json"]
    assert "resumed" not in json.loads((folder.path / "versions.json").read_text())


def test_a_run_that_was_moved_goes_on(tmp_path: Path) -> None:
    first = RunFolder(tmp_path / "first")
    photos = {"photos": f"{first.path}/curation/photos", "beside": f"{first.path}er/photos"}
    first.open(make_config(first.path, run_name="first", **photos))
    save_checkpoint(first.path / "checkpoints" / "last.ckpt")
    moved = RunFolder(first.path.rename(tmp_path / "moved"))
    photos["photos"] = f"{moved.path}/curation/photos"
    last = moved.path / "checkpoints" / "last.ckpt"
    assert moved.open(make_config(moved.path, run_name="moved", **photos)) == last
    with pytest.raises(ValueError, match=r"another config \(noise: 0.2 -> 0.1\)"):
        moved.open(make_config(moved.path, noise=0.1, **photos))
    photos["beside"] = f"{moved.path}er/photos"
    with pytest.raises(ValueError, match=r"another config \(beside: "):
        moved.open(make_config(moved.path, **photos))


def test_newer_settings_of_own_photos_leave_earlier_runs_alone() -> None:
    """A run resumes under a version with more settings if these change nothing by default."""
    first = {
        "name", "root", "layout", "annotations", "image_folder", "file_column", "caption_columns",
        "held_out", "seed", "split_by", "missing_photos", "missing_captions", "bad_captions",
        "keys_folder", "accept_changes", "train", "val", "test",
    }  # fmt: skip
    data = compose_config("train", ["data=own", "data.root=x"]).data
    newer = {key: data[key] for key in data if key not in first}
    assert "caption_per" in newer
    assert all(value in OFF for value in newer.values()), newer


def test_a_word_is_no_folder_though_it_names_the_run(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    first, moved = Path("mini"), Path("moved")
    RunFolder(first).open(make_config(first, noise="mini"))
    save_checkpoint(first / "checkpoints" / "last.ckpt")
    first.rename(moved)
    assert RunFolder(moved).open(make_config(moved, noise="mini")) is not None


@pytest.mark.parametrize("is_package", [True, False])
def test_changed_code_of_a_plugin_is_told_when_a_run_goes_on(
    is_package: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    name = f"plugin_of_a_test_{is_package}"
    code = tmp_path / name / "inner" / "part.py" if is_package else tmp_path / f"{name}.py"
    code.parent.mkdir(parents=True, exist_ok=True)
    code.write_text("A = 1\n")
    if is_package:
        (tmp_path / name / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module(name)
    if is_package:
        (code.parent / ".#part.py").symlink_to("an-editor-s-lock")
    folder = RunFolder(tmp_path / "run")
    config = make_config(folder.path, plugins=[name])
    folder.open(config)
    folder.open(config)
    assert not caplog.text
    code.write_text("A = 2\n")
    folder.open(config)
    assert f"other software than before (the code of {name})" in caplog.text


@pytest.mark.parametrize("result", ["checkpoints/last.ckpt", "metrics.json"])
def test_a_folder_with_results_refuses_another_config(tmp_path: Path, result: str) -> None:
    folder = RunFolder(tmp_path)
    folder.open(make_config(tmp_path))
    (tmp_path / result).parent.mkdir(exist_ok=True)
    (tmp_path / result).write_text("{}")
    with pytest.raises(ValueError, match=r"another config \(noise: 0.2 -> 0.1\)"):
        folder.open(make_config(tmp_path, noise=0.1))
    assert folder.config().noise == 0.2


def test_loader_processes_change_no_result_so_a_run_may_go_on_with_others(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.open(make_config(tmp_path))
    save_checkpoint(tmp_path / "checkpoints" / "last.ckpt")
    more = make_config(tmp_path, loader={"batch_size": 4, "num_workers": 8})
    assert folder.open(more) == tmp_path / "checkpoints" / "last.ckpt"
    with pytest.raises(ValueError, match="loader.batch_size: 4 -> 5"):
        folder.open(make_config(tmp_path, loader={"batch_size": 5, "num_workers": 0}))


def test_features_may_be_computed_in_another_way(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    how = {"batch_size": 4, "num_workers": 2, "device": "cpu"}
    folder.open(make_config(tmp_path, features={"precision": "float32", **how}))
    save_checkpoint(tmp_path / "checkpoints" / "last.ckpt")
    other = {"batch_size": None, "num_workers": 0, "device": "auto"}
    assert folder.open(make_config(tmp_path, features={"precision": "float32", **other}))
    with pytest.raises(ValueError, match="features.precision: float32 -> bfloat16"):
        folder.open(make_config(tmp_path, features={"precision": "bfloat16", **how}))


@pytest.mark.parametrize("text", ["a: [1, 2", "\x00", "- a\n- b", "", "3", "seed: 0", "a: ${b"])
def test_a_damaged_config_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(ValueError, match=r"config\.yaml cannot be read .* damaged or cut off"):
        RunFolder(tmp_path).config()


def test_damaged_scores_are_named(tmp_path: Path) -> None:
    (tmp_path / "metrics.json").write_text('{"test": {')
    with pytest.raises(ValueError, match=r"metrics\.json is not valid JSON"):
        RunFolder(tmp_path).finished()
    for text in ("[1]", "null", "3", "\xff"):
        (tmp_path / "metrics.json").write_bytes(text.encode("latin-1"))
        with pytest.raises(ValueError, match=r"metrics\.json (must hold|is not valid JSON)"):
            RunFolder(tmp_path).finished()
    for text in ('{"test": 3}', '{"test": {}}', "{}"):
        (tmp_path / "metrics.json").write_text(text)
        with pytest.raises(ValueError, match=r"metrics\.json has no scores of 'test'"):
            RunFolder(tmp_path).scores("test")


def test_a_run_that_goes_on_with_other_software_names_both_versions(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = RunFolder(tmp_path)
    folder.open(make_config(tmp_path))
    save_checkpoint(tmp_path / "checkpoints" / "last.ckpt")
    folder.open(make_config(tmp_path))
    assert not caplog.records
    path = tmp_path / "versions.json"
    record = json.loads(path.read_text())
    record["resumed"][-1] |= {"torch": "2.1.0", "timm": "0.0.9"}
    path.write_text(json.dumps(record))
    folder.open(make_config(tmp_path))
    now = f"torch 2.1.0 -> {record['torch']}, timm 0.0.9 -> {record['timm']}"
    assert now in caplog.text
    caplog.clear()
    folder.open(make_config(tmp_path))
    assert not caplog.records  # said once, when the versions change


@pytest.mark.parametrize(
    ("preempted", "expected"), [((1, 12), "preempted.ckpt"), ((0, 9), "last.ckpt")]
)
def test_a_run_goes_on_from_the_checkpoint_with_more_updates(tmp_path, preempted, expected) -> None:
    checkpoints = tmp_path / "checkpoints"
    folder = RunFolder(tmp_path)
    folder.open(make_config(tmp_path))
    epoch, updates = preempted
    save_checkpoint(checkpoints / "preempted.ckpt", epoch=epoch, updates=updates)
    save_checkpoint(checkpoints / "last.ckpt")  # the later file
    assert folder.open(make_config(tmp_path)) == checkpoints / expected


def test_a_checkpoint_that_is_given_is_read_against_its_sums(tmp_path: Path) -> None:
    folder, path = RunFolder(tmp_path), tmp_path / "checkpoints" / "best.ckpt"
    folder.open(make_config(tmp_path))
    save_checkpoint(path)
    save_checkpoint(path.with_name("last.ckpt"), epoch=3)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(
        ValueError, match=r"best\.ckpt is damaged .*last\.ckpt resumes from epoch 3"
    ):
        folder.open(make_config(tmp_path, resume=str(path)))


def test_what_lightning_saved_for_slurm_is_not_taken_up(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.open(make_config(tmp_path))
    (tmp_path / "hpc_ckpt_1.ckpt").touch()
    folder.open(make_config(tmp_path))
    assert [path.name for path in tmp_path.glob("*.ckpt")] == ["unused_1.ckpt"]


def test_the_commit_is_read_without_writing_into_the_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that is killed meanwhile would leave git's lock, and all of git's commands fail."""

    def git(*arguments: str) -> None:
        own = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(["git", "-C", str(tmp_path), *own, *arguments], check=True)

    asked_each_time = run_versions._git.__wrapped__
    monkeypatch.setattr(run_versions, "_git", asked_each_time)
    monkeypatch.setattr(run_versions, "__file__", str(tmp_path / "a" / "b" / "versions.py"))
    file, index = tmp_path / "file", tmp_path / ".git" / "index"
    file.write_text("one")
    git("init", "--quiet")
    git("add", "file")
    git("commit", "--quiet", "--message=one")
    commit = versions()["commit"]
    assert len(commit) == 12
    os.utime(file, (1, 1))  # the index would be refreshed
    before = index.read_bytes()
    assert versions()["commit"] == commit
    assert index.read_bytes() == before
    file.write_text("other")
    assert versions()["commit"] == f"{commit}-dirty"
