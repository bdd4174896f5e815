"""Run folders from strangers: opening one runs nothing and reaches nothing outside of it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from PIL import Image

from captioning.commands.main import main
from captioning.config import plugins
from captioning.config.build import build_part
from captioning.config.compose import compose_config
from captioning.config.plugins import check_loadable, import_plugins, targets_in
from captioning.data.readers.jsonl import read_jsonl
from captioning.decoding.greedy import GreedySearch
from captioning.evaluation.photo_captioners import RunCaptioner
from captioning.evaluation.predict import predict_run
from captioning.inference.bundle import FORMAT
from captioning.inference.captioner import Captioner
from captioning.results.folder_config import _shown
from captioning.results.run_folder import RunFolder
from captioning.training.start import load_start
from captioning.types import Edit
from curation import Curation
from curation.detect import contexts
from curation.finished_run import read_run
from curation.journal.journal import Header, encode, write_journal
from curation.study.items import read_items
from tests.attacks import READER, attacks


class Payload:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


@pytest.fixture(autouse=True)
def nothing_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """What earlier tests of this process named by configs of their own does not count."""
    monkeypatch.setattr(plugins, "_targets", set())
    monkeypatch.setattr(plugins, "_plugins", set())


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """The file that every attack would make; beside it lie a pickle and a hub that do so."""
    trace = tmp_path / "trace"
    torch.save(Payload(trace), tmp_path / "evil.pt")
    (tmp_path / "hub").mkdir()
    text = f"from pathlib import Path\nPath({str(trace)!r}).touch()\ndef model(): ...\n"
    (tmp_path / "hub" / "hubconf.py").write_text(text)
    (tmp_path / "plugin_of_a_stranger.py").write_text(text)
    return trace


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a run over two photos, with a journal of no edits and a checkpoint."""
    photos, folder = tmp_path / "photos", tmp_path / "run"
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "curation" / "images").mkdir(parents=True)
    photos.mkdir()
    for name in ("a", "b"):
        Image.new("RGB", (6, 4), "red").save(photos / f"{name}.jpg")
    lines = [{"image": f"{name}.jpg", "captions": [f"one {name}", f"two {name}"]} for name in "ab"]
    (photos / "captions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    reader = {
        "_target_": READER,
        "name": "toy/train",
        "annotations": str(photos / "captions.jsonl"),
        "image_folder": str(photos),
    }
    config = {
        "seed": 0,
        "monitor": "last",
        "data": {"name": "toy", "train": reader, "test": reader},
        "features": {"name": "f", "backbone": None},
        "curation": {"name": "by hand", "callback": None},
        "paths": {"cache": str(tmp_path / "cache")},
        "model": {"name": "m", "module": {}},
        **{
            key: {} for key in ("optimizer", "search", "tokenizer", "loader", "schedule", "trainer")
        },
        "metrics": {"test": ["BLEU"], "val": ["BLEU"], "tokenizer": "simple"},
        "num_epochs": 1,
        "run_name": "r",
        "run_dir": str(folder),
    }
    OmegaConf.save(OmegaConf.create(config), folder / "config.yaml")
    tokenizer = {"words": ["a"]}
    captioner = {"class": "X", "tokenizer": tokenizer}
    state = {"epoch": 0, "global_step": 1, "state_dict": {}, "captioner": captioner}
    torch.save(state, folder / "checkpoints" / "last.ckpt")
    write_edits(folder)
    return folder


def write_edits(folder: Path, *edits: Edit) -> None:
    photos = folder.parent / "photos"
    roster = read_jsonl(
        name="toy/train", annotations=photos / "captions.jsonl", image_folder=photos
    )
    header = Header(roster=roster.name, fingerprint=roster.fingerprint)
    write_journal(folder / "curation.jsonl", header, map(encode, edits))


def put(folder: Path, key: str, part: Any) -> None:
    """Change a setting of a run folder."""
    config = OmegaConf.load(folder / "config.yaml")
    OmegaConf.update(config, key, part, merge=False, force_add=True)
    OmegaConf.save(config, folder / "config.yaml")


def bundle_of(run: Path) -> Path:
    """The run's settings as an exported captioner."""
    record = {"format": FORMAT, "captioner": {"class": "UpDown", "tokenizer": {"words": ["a"]}}}
    (run / "captioner.json").write_text(json.dumps(record))
    (run / "transformers").mkdir()
    return run


NAMES = tuple(attacks(Path(), Path()))


@pytest.mark.parametrize("name", NAMES)
def test_a_stranger_builds_nothing(
    run: Path, trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    put(run, "data.train", attacks(tmp_path, trace)[name])
    put(run, "plugins", ["plugin_of_a_stranger"])
    with pytest.raises(ValueError, match=r"config\.yaml: data\.train\.") as raised:
        read_run(run)
    assert not trace.exists()
    assert str(run) in str(raised.value)


def test_the_attacks_would_do_harm(trace: Path, tmp_path: Path) -> None:
    for name in ("torch.load", "torch.hub.load", "write_text", "of a model"):
        with suppress(InstantiationException):  # of what is no checkpoint, when it was unpickled
            instantiate(OmegaConf.create(attacks(tmp_path, trace)[name]))
        assert trace.exists(), name
        trace.unlink()


def _of_bundle(run: Path, tmp_path: Path) -> None:
    Captioner.load(bundle_of(run), device="cpu")


def _captioner(run: Path, tmp_path: Path) -> None:
    captioner = RunCaptioner(run=str(run), search=GreedySearch.with_settings(), device="cpu")
    captioner.write_captions([tmp_path / "photos" / "a.jpg"], keys=["a"])


DOORS: dict[str, tuple[str, Callable[[Path, Path], object]]] = {
    "study": ("data.train", lambda run, _: read_items(run)),
    "detect": ("data.train", lambda run, _: list(contexts(run))),
    "evaluate": ("data.test", lambda run, _: predict_run(run)),
    "steps of evaluate": ("steps.mine", lambda run, _: predict_run(run)),
    "load": ("features.backbone", lambda run, _: Captioner.load(run, device="cpu")),
    "load an export": ("features.backbone", _of_bundle),
    "captioner of augment": ("features.backbone", _captioner),
}


@pytest.mark.parametrize("door", DOORS)
def test_no_door_lets_a_stranger_in(run: Path, trace: Path, tmp_path: Path, door: str) -> None:
    key, open_folder = DOORS[door]
    put(run, key, attacks(tmp_path, trace)["write_text"])
    with pytest.raises(
        ValueError, match=rf"{key}\._target_: captioning\.runtime\.files\.write_text: "
    ):
        open_folder(run, tmp_path)
    assert not trace.exists()


def test_the_commands_end_with_one_line(run: Path, trace: Path, tmp_path: Path, capsys) -> None:
    put(run, "data.train", attacks(tmp_path, trace)["nested"])
    refusal = "config.yaml: data.train.name._target_: captioning.runtime.files.write_text"
    for command in (["curate", "export", str(run), str(tmp_path / "out")], ["report", str(run)]):
        assert main(command) == 1
        assert refusal in capsys.readouterr().err
    assert not trace.exists()


def test_what_is_only_compared_builds_nothing(run: Path, trace: Path, tmp_path: Path) -> None:
    put(run, "data.train", attacks(tmp_path, trace)["write_text"])
    assert load_start(f"{run}", features="") is not None
    options = [f"run_dir={run}", "resume=auto"]
    with pytest.raises(ValueError, match="holds a run with another config"):
        RunFolder(run).open(compose_config("train", options))
    options = [f"run_dir={tmp_path / 'new'}", f"branch_from={run / 'checkpoints' / 'last.ckpt'}"]
    with pytest.raises(ValueError, match="differs in more than its curation"):
        RunFolder(tmp_path / "new").open(compose_config("train", options))
    assert not trace.exists()


@pytest.mark.parametrize("text", ["${oc.env:HOME}", "a ${data.name}", "${data}"])
def test_settings_refer_to_nothing(run: Path, text: str) -> None:
    put(run, "data.other", text)
    with pytest.raises(ValueError, match=r"config\.yaml: data\.other: .* refers to another value"):
        RunFolder(run).config()


def test_plugins_count_when_the_user_names_them(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plugin_for_folders.py").write_text(
        "from captioning.data.readers.jsonl import read_jsonl\n"
        "from captioning.models.updown import UpDown\n"
        "def read(**options):\n    return read_jsonl(**options)\n"
        "class Model(UpDown):\n    pass\n"
    )
    monkeypatch.chdir(tmp_path)
    put(run, "data.train._target_", "plugin_for_folders.read")
    put(run, "plugins", ["plugin_for_folders"])
    with pytest.raises(ValueError, match=r"add plugins=\[plugin_for_folders\]"):
        read_run(run)
    import_plugins(["plugin_for_folders"])
    assert len(read_run(run).view.roster) == 4
    # what its classes inherit is not theirs
    for method in ("load_from_checkpoint", "__init__.__globals__.clear"):
        part = {"_target_": f"plugin_for_folders.Model.{method}"}
        with pytest.raises(ValueError, match="_target_: plugin_for_folders"):
            check_loadable(part)


@pytest.mark.parametrize("group", ["data", "steps", "corpus", "features", "model", "search"])
def test_all_parts_of_the_projects_runs_may_be_loaded(group: str, monkeypatch) -> None:
    monkeypatch.setattr("captioning.config.plugins._targets", set())
    checked = 0
    for file in sorted((Path(__file__).parents[1] / "configs" / group).rglob("*.yaml")):
        part: Any = OmegaConf.to_container(OmegaConf.load(file), resolve=False)
        check_loadable([{"_target_": target} for target in targets_in(part)])
        checked += len(targets_in(part))
    assert checked


@pytest.mark.parametrize("model", ["updown_tiny", "viecap", "cos_cvae", "blip", "vlm", "cic_bart"])
def test_a_run_of_each_model_may_be_loaded(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = compose_config("train", [f"model={model}"])
    monkeypatch.setattr("captioning.config.plugins._targets", set())
    for key in ("data", "features", "tokenizer", "model", "search", "optimizer", "schedule"):
        check_loadable(config[key])


def test_the_users_own_config_names_what_it_likes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("captioning.config.plugins._targets", set())
    part = {"_target_": "torch.nn.Identity"}
    with pytest.raises(ValueError, match="run folders may name only readers"):
        build_part(DictConfig(part))
    config = compose_config("evaluate", ["+mine._target_=torch.nn.Identity"])
    assert isinstance(build_part(config.mine), torch.nn.Identity)


# Paths


def test_paths_outside_the_users_folders_are_shown(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog
) -> None:
    monkeypatch.setenv("CAPTIONING_DATA", str(tmp_path / "photos"))
    monkeypatch.setenv("CAPTIONING_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CAPTIONING_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr("captioning.config.plugins._folders", set())
    caplog.set_level(logging.WARNING)
    put(run, "start_from", str(tmp_path / "runs" / "other"))  # such as a made set, or a first step
    put(run, "data.root", str(tmp_path / "photos" / "mine"))
    put(run, "data.files", [{"path": "../others/boxes.zip"}])  # written from the data's root
    RunFolder(run).config()
    assert caplog.messages == []
    (tmp_path / "key").write_text("secret")
    put(run, "data.files", [{"path": "../../others/boxes.zip"}])
    (run / "link").symlink_to(tmp_path / "key")
    put(run, "data.test.instances", str(tmp_path / "key"))
    put(run, "features.folder", "../x/y")
    put(run, "steps", {"add": {"folders": [str(run / "link")]}})
    put(run, "start_from", "~/other")
    put(run, "model.pretrained", "openai/clip")
    _shown.clear()
    RunFolder(run).config()
    RunFolder(run).config()
    keys = ["data.files[0].path", "data.test.instances", "features.folder"]
    keys += ["steps.add.folders[0]", "start_from"]
    assert len(caplog.messages) == len(keys)
    for message, key in zip(sorted(caplog.messages), sorted(keys), strict=True):
        assert f"{run}: {key} reads outside of your data folders: '" in message
    caplog.clear()
    _shown.clear()
    compose_config("evaluate", [f"paths.data={tmp_path}"])
    RunFolder(run).config()
    assert {"features.folder", "start_from"} == {m.split()[1] for m in caplog.messages}
    caplog.clear()
    _shown.clear()
    put(run, "steps", {"add": {"folders": ["../x/y"]}})
    RunFolder(run).config()
    assert sum("'../x/y' (so do steps.add.folders[0])" in m for m in caplog.messages) == 1


# Journals


def edit(value: str, epoch: int = 0) -> Edit:
    common = {"action": "replace_image", "origin": "x", "policy": "p"}
    return Edit(sample_id="a.jpg#0", value=value, epoch=epoch, **common)


@pytest.fixture
def secret(run: Path, tmp_path: Path) -> Path:
    """A picture outside of the run's folder, and links to it from within."""
    secret = tmp_path / "private" / "key.png"
    secret.parent.mkdir()
    Image.new("RGB", (6, 4), "blue").save(secret)
    (run / "curation" / "images" / "link.png").symlink_to(secret)
    (run / "curation" / "more").symlink_to(secret.parent)
    return secret


ESCAPES = (
    "{secret}",
    "../private/key.png",
    "curation/images/../../../private/key.png",
    "curation/images/link.png",
    "curation/more/key.png",
    "a\0b",
)


@pytest.mark.parametrize("value", ESCAPES)
def test_journals_reach_no_other_file(
    run: Path, secret: Path, tmp_path: Path, capsys, value: str
) -> None:
    write_edits(run, edit("a.png"), edit(value.format(secret=secret), epoch=1))
    Image.new("RGB", (6, 4), "blue").save(run / "a.png")
    out = tmp_path / "out"
    assert main(["report", str(run), "--no-figures"]) == 1
    told = "curation left out: curation.jsonl: edit 2 (line 3): picture of 'a.jpg#0': "
    assert f"{run}: {told}" in capsys.readouterr().err
    assert not (run / "curation" / "report.html").exists()
    for command in (
        ["export", str(run), str(out), "--photos", "copy"],
        ["apply", str(run), str(tmp_path / "photos" / "captions.jsonl"), "--out", f"{out}.json"],
    ):
        assert main(["curate", *command]) == 1
        error = capsys.readouterr().err
        assert f"{run / 'curation.jsonl'}: edit 2 (line 3): picture of 'a.jpg#0': " in error
    assert not out.exists()
    with pytest.raises(ValueError, match="line 3"):
        read_items(run)


def test_a_run_resumes_from_no_such_journal(run: Path, secret: Path) -> None:
    view = read_run(run).view
    with pytest.raises(ValueError, match=r"lies outside .*run, .*photos, .*: take it out"):
        view.apply([edit("../private/key.png")])


def test_pictures_of_the_run_and_of_the_data_are_taken(run: Path, tmp_path: Path) -> None:
    Image.new("RGB", (6, 4), "blue").save(run / "curation" / "images" / "new.png")
    for value in ("curation/images/new.png", str(tmp_path / "photos" / "b.jpg")):
        write_edits(run, edit(value))
        assert read_run(run).view.samples()[0].image_path == run / value


def test_photos_of_another_loop_are_shown(tmp_path: Path, monkeypatch, caplog) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    private, folder = tmp_path / "private", tmp_path / "loop"
    private.mkdir()
    Image.new("RGB", (6, 4), "blue").save(private / "key.png")
    records = [{"image": str(private / "key.png"), "caption": text} for text in ("one", "two")]
    curation = Curation.open(folder, samples=records, policy="track", plot=False)
    curation.add(torch.tensor([0, 1]), torch.tensor([1.0, 2.0]))
    curation.end_epoch()
    curation.close()
    caplog.set_level(logging.WARNING)
    assert len(read_run(folder).view.samples()) == 2
    assert caplog.messages == []  # it was started here
    (folder / "started.json").unlink()
    assert len(read_run(folder).view.samples()) == 2
    expected = f"curation/roster.jsonl reads outside of your data folders: {str(private)!r}"
    assert caplog.messages == [f"{folder}: {expected}"]
