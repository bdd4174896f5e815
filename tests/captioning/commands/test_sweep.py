"""Sweeps: all jobs are checked first, none ends the others, and a table is left."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from captioning.commands import training
from captioning.commands.command import HydraCommand
from captioning.commands.hydra_command import run_hydra
from captioning.commands.main import main
from captioning.commands.sweep import sweep_name
from captioning.config.folders import config_folder
from captioning.results.run_folder import end_untested, failure_of, keep_failure

Task = Callable[[Any], None]
# Where it is installed: what is wrong is said before anything is queued.
QUEUE = ("hydra/launcher=submitit_local",) if find_spec("submitit") else ()
TWO = ("optimizer.lr=1e-3,2e-3", "seed=0,1")


def train_in_a_blink(config: Any, *, instead: Callable[[Any, Path], None] | None = None) -> None:
    """Leaves what a table reads: a score of the learning rate and the seed."""
    run = Path(config.run_dir)
    if (run / "metrics.json").is_file():
        return
    run.mkdir(parents=True, exist_ok=True)
    OmegaConf.save(config, run / "config.yaml", resolve=True)
    facts = {"argv": sys.argv, "sweep": os.environ.get("CAPTIONING_SWEEP")}
    (run / "facts.json").write_text(json.dumps(facts))
    if instead is not None:
        instead(config, run)
    score = 1000 * config.optimizer.lr + config.seed
    names = ("BLEU-1", "BLEU-4", "CIDEr-D", *(f"F1 {number}" for number in range(9)))
    corpus = dict.fromkeys(names, score)
    (run / "metrics.json").write_text(json.dumps({"test": {"corpus": corpus}}))


def _command(instead: Callable[[Any, Path], None] | None = None) -> HydraCommand:
    task = functools.partial(train_in_a_blink, instead=instead)
    check = training.TRAIN.check
    return HydraCommand(name="train", summary="", config="train", task=task, check=check)


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int | str]:
    """Runs a sweep of such trainings and returns its exit status."""
    monkeypatch.chdir(tmp_path)

    def run(*overrides: str, instead: Callable[[Any, Path], None] | None = None) -> int | str:
        monkeypatch.setattr(sys, "argv", ["captioning", "train", "-m", *overrides])
        try:
            run_hydra(_command(instead), ["-m", *overrides])
        except SystemExit as ended:
            return ended.code or 0
        return 0

    return run


def _page(folder: Path) -> str:
    pages = list((folder / "runs" / "sweeps").glob("*/sweep.md"))
    assert len(pages) == 1
    return pages[0].read_text()


def _rows(page: str) -> list[list[str]]:
    return [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("|")]


def fail_once(config: Any, run: Path) -> None:
    if config.seed == 1 and config.optimizer.lr == 2e-3:
        raise ValueError("the photo dog|1.jpg is broken")


def test_a_failed_job_ends_no_other_and_stands_below_the_table(sweep, tmp_path, capsys) -> None:
    assert sweep(*TWO, instead=fail_once) == 1
    page = _page(tmp_path)
    rows = _rows(page)
    assert rows[0] == ["optimizer.lr", "runs", "BLEU-4", "CIDEr-D", *(f"F1 {n}" for n in range(6))]
    assert [row[:3] for row in rows[2:4]] == [
        ["0.001", "2", "1.5000 ± 0.7071"],
        ["0.002", "1", "2.0000"],
    ]
    assert rows[-1][0] == "optimizer.lr=0.002 seed=1"
    assert rows[-1][1] == "failed"
    assert "4 jobs: 3 finished, 1 failed" in page
    shown = capsys.readouterr().out
    assert "- optimizer.lr=0.002 seed=1: the photo dog|1.jpg is broken" in shown
    (csv,) = (tmp_path / "runs" / "sweeps").glob("*/sweep.csv")
    assert "F1 8 std" in csv.read_text()


@pytest.mark.long
def test_the_same_command_again_leaves_out_what_is_finished(sweep, tmp_path) -> None:
    sweep(*TWO, instead=fail_once)
    (failed,) = tmp_path.rglob("failed.json")
    assert failure_of(failed.parent) == "the photo dog|1.jpg is broken"
    failed.unlink()  # as a training does that begins
    assert sweep(*reversed(TWO), "threads=1") == 0
    assert "4 jobs: 1 finished, 3 finished before" in _page(tmp_path)


def test_jobs_without_a_test_are_finished(sweep, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "train_in_a_blink", train_untested)
    assert sweep("seed=0,1") == 0
    assert "2 jobs: 2 finished" in _page(tmp_path)
    assert "No job has a test (data.test=null)" in _page(tmp_path)
    assert sweep("seed=0,1") == 0
    assert "2 jobs: 2 finished before" in _page(tmp_path)


def train_untested(config: Any, *, instead: object) -> None:
    run = Path(config.run_dir)
    run.mkdir(parents=True, exist_ok=True)
    OmegaConf.save(config, run / "config.yaml", resolve=True)
    end_untested(run)


def test_a_failed_job_of_find_lr_ends_with_an_error_and_marks_no_training(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    line = ["find-lr", "-m", "+find_lr.num_updates=2", "optimizer.lr=1e-3,2e-3"]
    monkeypatch.setattr(sys, "argv", ["captioning", *line])
    with pytest.raises(SystemExit, match="find-lr: find_lr.num_updates: must be"):
        main(line)
    assert not list(tmp_path.rglob("failed.json"))


def test_an_error_in_the_code_is_a_failed_job_too(sweep, tmp_path, capsys) -> None:
    def divide(config: Any, run: Path) -> None:
        print(1 / config.seed)

    assert sweep("seed=0,1", instead=divide) == 1
    assert "seed=0: ZeroDivisionError: division by zero" in capsys.readouterr().out
    (failed,) = tmp_path.rglob("failed.json")
    assert "print(1 / config.seed)" in json.loads(failed.read_text())["details"]


def test_ctrl_c_ends_the_sweep_and_leaves_the_table(sweep, tmp_path) -> None:
    def interrupt(config: Any, run: Path) -> None:
        if config.seed == 1:
            raise KeyboardInterrupt

    assert sweep("seed=0,1,2", instead=interrupt) == 130
    page = _page(tmp_path)
    assert "3 jobs: 1 finished, 2 not finished" in page
    assert [row[1] for row in _rows(page)[-3:]] == ["finished", "not finished", "not finished"]


@pytest.mark.parametrize(
    ("overrides", "lines"),
    [
        (
            ("optimizer.lr=1e-3,-1,abc", "seed=0,1"),
            [
                "no job was started, as 4 of 6 would fail",
                "optimizer.lr: must be a number of at least 0, got -1 (with optimizer.lr=-1, in 2",
                "optimizer.lr: must be a number of at least 0, got abc (with optimizer.lr=abc, in",
            ],
        ),
        (
            ("num_epochs=0", "seed=0,1", *QUEUE),
            ["as 2 of 2 would fail", "num_epochs: must be a whole number of at least 1, got 0 (in"],
        ),
        (
            ("curation=remove,removes",),
            ["as 1 of 2", "did you mean remove? (with curation=removes)"],
        ),
        (
            ("threads=1,2", "seed=0,1"),
            [
                "threads=1 and threads=2 would share the folder",
                "'run_name=NAME${label:}-${threads}",
            ],
        ),
        (("trainer=default,fsdp",), ["share the folder", "${hydra:runtime.choices.trainer}'"]),
        (("optimizer.lr=1e-3,0.001",), ["two are the same (optimizer.lr=0.001); leave one out"]),
    ],
)
def test_wrong_configs_are_told_once_and_nothing_is_started(
    overrides: Sequence[str], lines: Sequence[str], sweep, tmp_path
) -> None:
    told = sweep(*overrides)
    assert isinstance(told, str)
    assert told.startswith("train: no job was started")
    for line in lines:
        assert told.count(line) == 1
    assert list(tmp_path.iterdir()) == []


def test_the_suggested_name_tells_jobs_apart(sweep, tmp_path) -> None:
    name = "run_name=name${label:}-${threads}"
    assert sweep("threads=1,2", "num_epochs=2", name) == 0
    folders = sorted(path.parent.parent.name for path in tmp_path.rglob("metrics.json"))
    assert folders == ["name-num_epochs_2-1", "name-num_epochs_2-2"]


def test_jobs_know_their_sweep_and_are_commands_of_their_own(sweep, tmp_path) -> None:
    pytest.importorskip("wandb")
    assert sweep("seed=0,1", "logger=wandb", "curation=track") == 0
    (folder,) = (tmp_path / "runs" / "sweeps").iterdir()
    for path in tmp_path.rglob("facts.json"):
        facts = json.loads(path.read_text())
        config = OmegaConf.load(path.parent / "config.yaml")
        line = ["captioning", "train", f"seed={config.seed}", "logger=wandb", "curation=track"]
        assert facts == {"argv": line, "sweep": folder.name}
        assert config.logger.wandb.group == folder.name
    assert "CAPTIONING_SWEEP" not in os.environ


def test_a_job_leaves_no_environment_to_the_next(sweep, tmp_path) -> None:
    def join_a_group(config: Any, run: Path) -> None:
        if "LOCAL_RANK" in os.environ:
            raise ValueError("a process of another run")
        os.environ["LOCAL_RANK"] = "0"  # as Lightning does with several devices

    assert sweep("seed=0,1", instead=join_a_group) == 0
    assert "LOCAL_RANK" not in os.environ


def test_a_sweep_has_one_name_whenever_it_is_started() -> None:
    jobs = [["seed=0", "optimizer.lr=1"], ["seed=0", "optimizer.lr=2"]]
    name = sweep_name(["seed=0", "optimizer.lr=1,2"], jobs)
    assert name.startswith("optimizer.lr-")
    assert sweep_name(["optimizer.lr=1,2", "resume=auto", "threads=3", "seed=0"], jobs) == name
    assert sweep_name(["optimizer.lr=1,3", "seed=0"], jobs) != name


def fail_or_vanish(config: Any, run: Path) -> None:
    if config.seed == 1:
        raise ValueError("no luck")
    if config.seed == 2 and "submitit" in " ".join(sys.orig_argv):
        os._exit(9)


@pytest.mark.long
@pytest.mark.parametrize("launcher", ["joblib", "submitit_local"])
def test_launchers_make_the_same_table(
    launcher: str, sweep, tmp_path, repository, monkeypatch
) -> None:
    pytest.importorskip(launcher.partition("_")[0])
    monkeypatch.setenv("PYTHONPATH", str(repository))  # where jobs find this file
    options = ["hydra.launcher.n_jobs=1"] if launcher == "joblib" else []
    seeds = "seed=0,1" if launcher == "joblib" else "seed=0,1,2"
    status = sweep(seeds, f"hydra/launcher={launcher}", *options, instead=fail_or_vanish)
    assert status == 1
    states = {row[0]: row[1:] for row in _rows(_page(tmp_path))[-len(seeds[5::2]) :]}
    assert states["seed=0"][0] == "finished"
    assert states["seed=1"][::2] == ["failed", "no luck"]
    if launcher == "submitit_local":
        assert states["seed=2"][0] == "failed"
        assert "ended without a result" in states["seed=2"][2]


@pytest.mark.parametrize("devices", ["auto", "-1", "[0,1]"])
def test_slurm_must_know_how_many_tasks_a_job_has(devices: str, sweep, tmp_path) -> None:
    pytest.importorskip("submitit")
    told = sweep("seed=0,1", "hydra/launcher=slurm", f"trainer.devices={devices}")
    assert isinstance(told, str)
    assert told.startswith(f"train: trainer.devices={devices.replace(',', ', ')}: with")
    assert told.endswith("no job was queued")
    assert list(tmp_path.iterdir()) == []


def test_commands_without_a_trainer_have_one_task_under_slurm() -> None:
    pytest.importorskip("submitit")
    with initialize_config_dir(str(config_folder()), version_base=None):
        chosen = ["run=a", "hydra/launcher=slurm"]
        config = compose("evaluate", chosen, return_hydra_config=True)
    assert config.hydra.launcher.tasks_per_node == 1


@pytest.mark.long
def test_two_trainings_one_of_which_fails(small_settings, cache, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    sizes = ("model=updown_tiny", "model.module.hidden_size=24", "model.module.projection_size=16")
    ways = (f"paths.cache={cache}", "num_epochs=1", "trainer.enable_progress_bar=false")
    name = "run_name=words_${tokenizer.min_count}"
    arguments = [*small_settings, *sizes, *ways, name, "tokenizer.min_count=1,1000"]
    good, bad = (tmp_path / "runs" / count / "seed0" for count in ("words_1", "words_1000"))
    keep_failure(good, "an earlier failure")
    with pytest.raises(SystemExit, match="^1$"):
        main(["train", "-m", *arguments])
    assert failure_of(good) is None
    assert "lower tokenizer.min_count" in str(failure_of(bad))
    rows = _rows(_page(tmp_path))
    assert rows[0] == ["tokenizer.min_count", "runs", "BLEU-4", "CIDEr-D"]
    assert rows[2][:2] == ["1", "1"]
    assert [row[:2] for row in rows[-2:]] == [
        ["tokenizer.min_count=1", "finished"],
        ["tokenizer.min_count=1000", "failed"],
    ]
    versions = json.loads((good / "versions.json").read_text())
    command = versions["command"].split()
    assert "-m" not in command
    assert "tokenizer.min_count=1" in command
