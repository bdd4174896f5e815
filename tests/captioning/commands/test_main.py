from __future__ import annotations

import contextlib
import errno
import re
import subprocess
import sys
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest
from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from omegaconf import OmegaConf

from captioning.commands import curation, evaluation, hydra_command, results
from captioning.commands.command import HydraCommand
from captioning.commands.hydra_command import run_hydra, run_task
from captioning.commands.hydra_errors import OF_CLUSTER
from captioning.commands.main import COMMANDS, GROUPS, main
from tools.assets.__main__ import COMMANDS as MAKERS

SLOW = ("torch", "hydra", "transformers", "pytorch_lightning")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_answers_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with contextlib.suppress(SystemExit):  # as argparse ends
        main([*name.split(), "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert COMMANDS[name].summary in shown


def test_commands_are_called_as_the_table_names_them() -> None:
    assert [command.name for command in COMMANDS.values()] == [*COMMANDS]


def test_help_imports_nothing_slow() -> None:
    names = [name.split() for name in COMMANDS]
    code = (
        "import sys\nfrom captioning.commands.main import main\n"
        f"for name in {names!r}:\n"
        "    try:\n        main([*name, '--help'])\n    except SystemExit:\n        continue\n"
        f"sys.exit(', '.join(set({SLOW!r}) & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_overview_names_all_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    for name in COMMANDS:
        first, _, second = name.partition(" ")
        assert re.search(rf"^  {first} (\.\.\. .*\b{second}\b)?", shown, re.MULTILINE), name
    assert len(GROUPS) == 4
    assert len(shown.splitlines()) < 45
    assert main([]) == 2
    assert main(["curate", "--help"]) == 0
    assert COMMANDS["curate export"].summary in capsys.readouterr().out
    assert main(["augment", "--help"]) == 0
    assert COMMANDS["augment teach"].summary in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"], ["table", "--help"]])
def test_a_reader_that_ends_early_gets_no_traceback(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "captioning", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""


def test_a_misspelt_command_is_told_its_neighbour(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["curate", "exprot", "run"]) == 2  # codespell:ignore exprot
    assert "did you mean 'curate export'?" in capsys.readouterr().err
    assert main(["curate", "report", "run"]) == 2
    assert "it is now 'captioning report'" in capsys.readouterr().err
    assert main(["assets", "joint-space", "seed=1"]) == 2
    assert "it is now 'captioning train-space'" in capsys.readouterr().err
    assert main(["assets", "diffusion", "--help"]) == 2
    assert "it is now 'python -m tools.assets diffusion'" in capsys.readouterr().err
    assert main(["assets"]) == 2
    assert "it is now 'python -m tools.assets'" in capsys.readouterr().err
    assert main(["trian"]) == 2  # codespell:ignore trian
    assert "did you mean 'train'?" in capsys.readouterr().err


@pytest.mark.parametrize(("arguments", "is_said"), [([], True), (["data=miniworld"], False)])
def test_a_training_says_that_its_scenes_are_generated_where_no_data_are_chosen(
    arguments: list[str], is_said: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="num_epochs"):  # refused before anything is read
        main(["train", "num_epochs=none", *arguments])
    line = "without data= this trains on generated scenes (data=miniworld); on your own photos"
    assert (line in capsys.readouterr().out) is is_said


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["prepare", "metrcs"], "did you mean 'prepare metrics'?"),
        (["augment", "tech"], "did you mean 'augment teach'?"),
        (["table", "runs", "--metrcs", "CIDEr"], "--metrcs CIDEr; did you mean --metrics?"),
        (["curate", "export", "a", "b", "--fromat", "coco"], "did you mean --format?"),
    ],
)
def test_a_misspelt_word_or_option_after_a_command_is_told_its_neighbour(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with contextlib.suppress(SystemExit):  # as argparse ends
        assert main(arguments) == 2
    assert told in capsys.readouterr().err


def test_a_misspelt_setting_of_the_demo_is_told_in_a_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["demo", "num_epoch=3"]) == 1
    told = capsys.readouterr().err.strip()
    assert told == "demo: num_epoch: there is no such key; did you mean num_epochs?"


def test_a_negative_number_of_digits_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table", "runs", "--digits", "-1"]) == 1
    assert "--digits must be at least 0: got -1" in capsys.readouterr().err


@pytest.mark.parametrize("setting", ["curation/probe=rescore", "curation.select.ratio=0.1"])
def test_a_part_of_a_policy_without_a_policy_names_the_remedy(setting: str) -> None:
    with pytest.raises(SystemExit, match="choose a policy, such as curation=remove"):
        main(["train", setting])
    with pytest.raises(SystemExit, match="did you mean curation/probe"):
        main(["train", "curation=remove", "curation/prob=rescore"])


@pytest.mark.long
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["callbacks.early_stopping.patience=5"], "without the choice callbacks=[early_stopping]"),
        (
            ["steps=[hold_out]", "steps.share_of_photos.share=0.5"],
            "steps.share_of_photos.share: there is no such key without the choice "
            "steps=[hold_out,share_of_photos]",
        ),
        (["logger.wandb.offline=true"], "without the choice logger=[...,wandb]"),
        (["callbacks=[early_stopping]", "callbacks.early_stopping.patient=5"], "did you mean"),
        (["data=own", "data.root=x", "bad_captions=drop"], "did you mean data.bad_captions?"),
        (["model.lr=1"], "did you mean optimizer.lr? model has name, module"),
        (["optimizer.learning_rate=1"], "there is no such key; optimizer has lr; "),
        (["data.root=my photos (2024)"], "needs quotes: 'data.root=\"my photos (2024)\"'"),
        (["data.caption_columns=[a (en)]"], "data.caption_columns: [a (en)] cannot be read; text"),
        (["seed"], "seed has no value: write seed=VALUE"),
        (["my_photos"], "train: my_photos: no such folder in"),
        (["--num-epochs", "3"], "there is no option --num-epochs; settings are KEY=VALUE without"),
        (["--num-epochs=3"], "dashes: num_epochs=3"),
        (["seed=0", "-m", "data=own"], "data=own follows an option; write options"),
        (["plugins=my_package"], "plugins must be a list: got my_package; write plugins=[my_p"),
    ],
)
def test_what_is_no_setting_is_told_with_what_to_write(arguments: list[str], told: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["train", *arguments])
    assert told in str(ended.value)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ["hydra.launcher.n_jobs=2"],
            "without the choice hydra/launcher=NAME, where NAME is slurm, joblib",
        ),
        (["hydra.job.chdr=true"], "did you mean hydra.job.chdir"),
        (["hydra/launcher=joblib", "hydra.launcher.n_job=2"], "did you mean hydra.launcher.n_jobs"),
        (["hydra/launcher=slurm", "hydra.launcher.gpus_per_nod=2"], "hydra.launcher.gpus_per_node"),
    ],
)
def test_misspelt_settings_of_hydra_are_told(arguments: list[str], told: str) -> None:
    if len(arguments) > 1:
        pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
        pytest.importorskip("submitit")
    with pytest.raises(SystemExit) as ended:
        main(["train", "-m", *arguments])
    assert told in str(ended.value)


@pytest.mark.long
@pytest.mark.parametrize("multirun", [[], ["-m"]])
def test_choices_in_a_further_folder_are_suggested(tmp_path: Path, multirun: list[str]) -> None:
    policy = tmp_path / "more [1]" / "curation" / "halving_7.yaml"
    policy.parent.mkdir(parents=True)
    policy.write_text("defaults: [remove, _self_]\nname: halving_7\nmine: 1\n")
    folder = ["--config-dir", str(tmp_path / "more [1]"), *multirun]
    with pytest.raises(SystemExit, match="curation=halving_8: .* did you mean halving_7"):
        main(["train", *folder, "curation=halving_8"])
    with pytest.raises(SystemExit, match="did you mean curation.mine"):
        main(["train", *folder, "curation=halving_7", "curation.mina=2"])


@pytest.mark.parametrize("setting", ["search.beam_size=3", "constraints.path=x", "data.root=x"])
def test_a_setting_of_a_group_that_is_not_chosen_names_the_choices(setting: str) -> None:
    group = setting.partition(".")[0]
    with pytest.raises(SystemExit, match=rf"no such key without the choice {group}=NAME, of .*, "):
        main(["evaluate", "run=x", setting])


def test_a_key_of_another_group_is_not_meant() -> None:
    with pytest.raises(SystemExit, match=r"^evaluate: search.temperature: .* search has "):
        main(["evaluate", "run=x", "search=beam", "search.temperature=3"])


@pytest.mark.parametrize(
    ("name", "words", "settings"),
    [
        ("evaluate", ["runs/a", "split=val"], ["run=runs/a", "split=val"]),
        ("evaluate", ["split=val", "a.json"], ["split=val", "predictions=a.json"]),
        ("evaluate", ["-m", "runs/a", "seed=0,1"], ["-m", "run=runs/a", "seed=0,1"]),
        ("evaluate", ["--config-dir", "x", "runs/a"], ["--config-dir", "x", "run=runs/a"]),
        ("export", ["runs/a", "to"], ["run=runs/a", "to"]),  # a key without its value
        ("export", ["runs/a", "b, c"], ["run=runs/a", 'to="b, c"']),
        ("export", ["run=runs/a", "to=b"], ["run=runs/a", "to=b"]),
        ("image-distance", ["2024", "null"], ['real="2024"', 'other="null"']),
        ("train", ["../photos", "seed=1"], ["data=own", "data.root=../photos", "seed=1"]),
        ("train", ["seed"], ["seed"]),
    ],
)
def test_folders_stand_without_their_keys(name: str, words: list[str], settings: list[str]) -> None:
    command = COMMANDS[name]
    assert isinstance(command, HydraCommand)
    assert command.as_settings(words) == settings


def test_a_folder_with_an_equals_sign_is_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lr=0.1").mkdir()
    monkeypatch.chdir(tmp_path)
    assert evaluation.EVALUATE.as_settings(["lr=0.1"]) == ['run="lr=0.1"']


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["evaluate", "runs/a"], "evaluate: runs/a/config.yaml does not exist"),
        (["evaluate", "a", "b"], "evaluate: b is one argument too many: the command takes RUN"),
        (["export", "a", "run=b"], "export: run=b: a already sets this; leave one of them out"),
        (["train", "my_photos", "data=coco"], "train: data=coco: my_photos already sets this"),
    ],
)
def test_wrong_folders_are_refused_in_a_line(arguments: list[str], told: str) -> None:
    with pytest.raises(SystemExit, match=re.escape(told)):
        main(arguments)


def test_every_config_is_checked_before_its_command() -> None:
    all_commands = [*COMMANDS.values(), *MAKERS.values()]
    hydra = [command for command in all_commands if isinstance(command, HydraCommand)]
    check_it_themselves = {"train", "find-lr", "evaluate"}
    assert {c.name for c in hydra if not isinstance(c.task, str)} == check_it_themselves


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["find-objects", "batch_size=0"], "find-objects: batch_size: must be a whole number"),
        (["curate", "detect"], "curate detect: run: must be given"),
        (["train", "paths.runs=/dev/null/x"], "train: the run folder cannot be created"),
    ],
)
def test_wrong_settings_of_a_command_end_in_a_line(
    arguments: list[str], told: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert told in str(ended.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("launcher", ["joblib", "submitit_local", "slurm"])
def test_a_launcher_that_is_not_installed_names_its_extra(
    launcher: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Plugins.instance()  # which register their configs
    stored = ConfigStore.instance().repo["hydra"].get("launcher", {})
    for name in OF_CLUSTER:
        monkeypatch.delitem(stored, f"{name}.yaml", raising=False)
    with pytest.raises(SystemExit, match="launchers belong to the extra 'cluster': pip install"):
        main(["train", "-m", f"hydra/launcher={launcher}"])


def test_too_little_memory_is_told_in_a_line() -> None:
    def task(config: object) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes\nframe #0")

    command = HydraCommand(name="x", summary="", config="train", task=task)
    with pytest.raises(SystemExit) as ended:
        run_task(command, OmegaConf.create({}))
    assert "\n" not in str(ended.value)
    assert "x: not enough memory:" in str(ended.value)


@pytest.mark.parametrize(
    ("words", "ends_with"),
    [("No space left", "finished parts are kept"), ("no x; free space there", "there")],
)
def test_a_full_disk_is_told_with_one_remedy(words: str, ends_with: str) -> None:
    def task(config: object) -> None:
        raise OSError(errno.ENOSPC, words)

    command = HydraCommand(name="x", summary="", config="train", task=task)
    with pytest.raises(SystemExit) as ended:
        run_task(command, OmegaConf.create({}))
    told = str(ended.value).partition("\n")[0]
    assert told.endswith(ends_with)
    assert told.count("free space") == 1


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed. "),
            "x: DataLoader worker (pid 7) is killed by signal: Killed.  The system kills processes",
        ),
        (
            FileNotFoundError(
                "Caught FileNotFoundError in DataLoader worker process 0.\nOriginal Traceback "
                '(most recent call last):\n  File "a.py", line 1\nFileNotFoundError: a.jpg: no such'
            ),
            "x: a.jpg: no such",
        ),
        (
            BrokenProcessPool("A child process terminated abruptly"),
            "x: a process that this command started was killed, perhaps for memory",
        ),
        (
            RuntimeError("Found no NVIDIA driver on your system. Please check that"),
            "x: Found no NVIDIA driver on your system. Please check that; choose the device cpu",
        ),
    ],
)
def test_what_happens_to_processes_and_devices_is_told_without_a_traceback(
    error: Exception, told: str
) -> None:
    def task(config: object) -> None:
        raise error

    command = HydraCommand(name="x", summary="", config="train", task=task)
    with pytest.raises(SystemExit) as ended:
        run_task(command, OmegaConf.create({}))
    assert str(ended.value).startswith(told)
    assert "Traceback" not in str(ended.value)


def test_help_of_training_shows_choices_and_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "configs" / "model").mkdir(parents=True)
    (tmp_path / "configs" / "model" / "my_own_model.yaml").write_text("name: mine\n")
    monkeypatch.chdir(tmp_path)
    main(["train", "--help"])
    shown = capsys.readouterr().out
    for text in ("updown_small*", "my_own_model", "experiment/toca", "num_epochs: 12", "--cfg job"):
        assert text in shown


def test_settings_are_shown_with_the_users_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "configs" / "model").mkdir(parents=True)
    (tmp_path / "configs" / "model" / "my_own_model.yaml").write_text("name: mine\n")
    monkeypatch.chdir(tmp_path)
    arguments = list(sys.argv)
    main(["train", "--cfg", "job", "--package", "model", "model=my_own_model"])
    assert "name: mine" in capsys.readouterr().out
    assert sys.argv == arguments


def failing(error: BaseException) -> HydraCommand:
    def task(config: object) -> None:
        raise error

    return HydraCommand(name="curate detect", summary="", config="detect", task=task)


def test_errors_of_a_task_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="^curate detect: run=x: no such folder\n"):
        run_task(failing(ValueError("run=x: no such folder")), OmegaConf.create({}))
    with pytest.raises(SystemExit) as ended:
        run_task(failing(KeyboardInterrupt("stopped at epoch 3")), OmegaConf.create({}))
    assert ended.value.code == 130
    assert "stopped at epoch 3" in capsys.readouterr().err


def test_a_full_error_is_raised_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(hydra_command.FULL_ERROR, "1")
    with pytest.raises(ValueError, match="wrong"):
        run_task(failing(ValueError("wrong")), OmegaConf.create({}))


def test_a_task_sees_how_the_program_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lightning starts the processes of a run on several devices with it."""
    seen = []
    command = HydraCommand(
        name="prepare", summary="", config="prepare", task=lambda config: seen.append(sys.argv)
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["captioning", "prepare", "data=jsonl"])
    run_hydra(command, ["data=jsonl"])
    assert seen == [["captioning", "prepare", "data=jsonl"]]


def test_options_offer_what_the_functions_take() -> None:
    from captioning.results.table_formats import FORMATS
    from curation.export import export

    assert set(results.TABLE_FORMATS) == set(FORMATS)
    assert (curation.EXPORT_FORMATS, curation.EXPORT_PHOTOS) == (export.FORMATS, export.PHOTOS)
