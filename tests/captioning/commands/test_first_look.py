"""What is not there is said at once, in the line that the work itself would say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from omegaconf import DictConfig

from captioning.commands import first_look
from captioning.commands.first_look import look_first
from captioning.config.build import build_part
from captioning.config.compose import compose_config
from captioning.export.push import prepared
from captioning.inference.captioner import Captioner
from captioning.results.coco_results import read_results
from captioning.results.run_folder import RunFolder
from captioning.training import preflight, start
from curation.check.result import CSV_NAME
from curation.finished_run import read_run
from curation.journal.journal import find_journal
from curation.manifest import FILE_NAME
from curation.review.runs.reading import find_runs
from tests.conftest import REPOSITORY

# Processor time of a whole command in seconds; about half a second on a machine at rest, and more
# where other processes share its cores.
AT_MOST = 2.5
AT_ONCE = [
    ("train data=own data.root=nowhere", "nowhere: no such folder in "),
    ("train data=own", "data/own: no such folder in "),
    ("train data=own data.root=there data.annotations=x.csv", "there/x.csv: no such file"),
    ("train data=coco", "annotations/captions_train2017.json: no such file"),
    ("train data.rot=x", "data.rot: there is no such key; did you mean data.root?"),
    ("train curation=remov", "curation=remov: there is no such choice; did you mean remove?"),
    ("train start_from=nowhere", "start_from=nowhere: no such folder"),
    ("train resume=nowhere", "resume=nowhere: no such file"),
    ("train plugins=[nowhere]", "plugins: no module nowhere"),
    ("evaluate run=nowhere", "nowhere/config.yaml does not exist"),
    ("evaluate predictions=nowhere data=own data.root=there", "nowhere: no such file"),
    ("evaluate predictions=photo.jpg data=own data.root=x", "x: no such folder in "),
    ("export run=nowhere to=x", "nowhere: no such folder; give a run folder"),
    ("export to=x", "run: must be given"),
    ("prepare data=own data.root=nowhere", "nowhere: no such folder in "),
    ("curate detect run=nowhere", "nowhere/config.yaml does not exist"),
    ("curate score data=own data.root=nowhere", "nowhere: no such folder in "),
    ("curate export nowhere x", "nowhere/config.yaml does not exist"),
    ("curate suspects nowhere --out x --export fiftyone", "nowhere/config.yaml does not exist"),
    ("curate journal show nowhere", "nowhere does not exist"),
    ("report nowhere", "nowhere is not a run folder: no such folder"),
    ("report there", "there is not a run folder: no config.yaml in it or below"),
    ("check nowhere", "nowhere: no such folder in "),
    ("check there --annotations x.csv", "there/x.csv: no such file; correct --annotations"),
    ("caption nowhere.jpg", "nowhere.jpg: no such photo"),
    ("caption photo.jpg --model nowhere", "nowhere: no such folder; give a run folder"),
    ("app nowhere", "nowhere/config.yaml does not exist"),
    ("push nowhere --repo me/it", "nowhere: neither a run"),
]


# All of them by one process, each in a folder of its own: codes, words and seconds as JSON.
PROGRAM = """
import contextlib, io, json, os, pathlib, sys, time
from captioning.commands.main import main
done = []
for number, command in enumerate(json.loads(sys.argv[1])):
    folder = pathlib.Path(sys.argv[2], str(number))
    (folder / "there").mkdir(parents=True)
    (folder / "photo.jpg").touch()
    os.chdir(folder)
    begun, told = time.process_time(), io.StringIO()
    with contextlib.redirect_stderr(told), contextlib.redirect_stdout(io.StringIO()):
        try:
            code = main(command.split())
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else print(end.code, file=told) or 1
    done.append((code, told.getvalue(), time.process_time() - begun))
print(json.dumps([done, "torch" in sys.modules]))
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str, float]]:
    """What each command ends with, and how long it takes."""
    commands = [command for command, _ in AT_ONCE]
    folder = tmp_path_factory.mktemp("commands")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(commands), str(folder)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results, has_torch = json.loads(done.stdout)
    assert not has_torch
    return dict(zip(commands, results, strict=True))


@pytest.mark.parametrize(("command", "line"), AT_ONCE, ids=[command for command, _ in AT_ONCE])
def test_what_is_not_there_is_said_at_once(command: str, line: str, said):
    code, told, seconds = said[command]
    assert code == 1
    assert line in told
    assert seconds < AT_MOST


def _line(call: Callable[[], object]) -> str:
    with pytest.raises((ValueError, OSError)) as raised:
        call()
    return str(raised.value)


# What the work says of data that are not there, by overrides.
DATA = ["coco", "flickr8k", "coco_karpathy", "jsonl", "arrow", "flickr30k_karpathy", "own"]


@pytest.mark.parametrize("data", DATA)
def test_missing_data_are_said_as_their_reader_says_it(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    config = compose_config("train", [f"data={data}"])

    assert _line(lambda: look_first("train", config)) == _line(
        lambda: build_part(config.data.train)
    )


def _train(*overrides: str) -> DictConfig:
    return compose_config("train", overrides)


def test_settings_of_a_training_are_refused_in_the_same_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    begun, kept = _train("start_from=nowhere"), _train("curation=remove", "curation.keep=nowhere")

    assert _line(lambda: look_first("train", begun)) == _line(
        lambda: start.check_start(begun.start_from)
    )
    assert _line(lambda: look_first("train", kept)) == _line(
        lambda: preflight._check_keep("nowhere")
    )


COMMANDS = ["detect", "export", "diverse_captions", "controllability", "image_distance"]


@pytest.mark.parametrize("name", COMMANDS)
def test_keys_that_must_be_given_are_named_in_the_same_words(name: str):
    from captioning.config.check.check import check_config
    from tests.task_calls import SCHEMAS, schema

    command = next(c.name for c in SCHEMAS.values() if c.config == name)
    config = compose_config(name)
    lines = _line(lambda: look_first(command, config)).splitlines()

    assert lines
    assert set(lines) <= set(_line(lambda: check_config(config, schema(command))).splitlines())


def _prepare(source: str) -> None:
    with prepared(source, "me/it"):
        pass


@pytest.mark.parametrize(
    ("look", "work"),
    [
        (lambda: first_look.look_for_run("nowhere"), lambda: read_run("nowhere")),
        (lambda: first_look.look_for_run("there"), lambda: RunFolder(Path("there")).config()),
        (lambda: first_look.look_for_captioner("nowhere"), lambda: Captioner.load("nowhere")),
        (lambda: first_look.look_for_pushed("nowhere"), lambda: _prepare("nowhere")),
        (lambda: first_look.look_for_journal("there"), lambda: find_journal("there")),
        (
            lambda: first_look.look_for_runs([Path("nowhere")]),
            lambda: find_runs([Path("nowhere")]),
        ),
        (lambda: first_look.look_for_runs([Path("there")]), lambda: find_runs([Path("there")])),
        (
            lambda: first_look.look_first(
                "evaluate", compose_config("evaluate", ["predictions=nowhere"])
            ),
            lambda: read_results("nowhere"),
        ),
        (
            lambda: look_first(
                "train", _train("data=own", "data.root=there", "data.annotations=x")
            ),
            lambda: build_part(
                _train("data=own", "data.root=there", "data.annotations=x").data.train
            ),
        ),
    ],
)
def test_folders_are_refused_in_the_same_words(
    look: Callable[[], object],
    work: Callable[[], object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()

    assert _line(look) == _line(work)


@pytest.mark.parametrize(
    "overrides",
    [
        ["data=own", "data.root=OWNER/NAME@" + 40 * "0"],
        ["data=coco", "data.root=packed.zip"],
        ["start_from=shipped"],
        ["corpus=coco", "data=coco", "data.root=there", "data.val=null", "data.test=null"],
    ],
)
def test_what_may_be_there_is_left_to_the_work(
    overrides: Sequence[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "packed.zip").touch()
    look_first("train", compose_config("train", overrides))


def test_names_of_files_are_those_of_their_writers():
    assert (CSV_NAME, FILE_NAME) == (first_look.CHECKED, first_look.MANIFEST)
