"""A run, its export, and the captioner that either gives in Python."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf
from safetensors.torch import load_file, save_file

from captioning import CaptionedPhoto, Captioner
from captioning.commands.main import main
from captioning.export.export import _portable, _with_lists, export, without_folders
from captioning.inference.bundle import FEATURES_PREFIX, in_eight_bits, in_full
from captioning.inference.loading import _placed
from captioning.training.rosters import read_roster
from captioning.training.settings import DataSettings
from tests.hub_server import SENDS_FILES_AS_DATA, TOKEN, running_hub

POLICY = ("steps=[plant_swap20]", "curation=remove", "curation.select.ratio=0.1")


@pytest.fixture
def run(trained_once) -> Path:
    """A small curated run."""
    return trained_once("num_epochs=1", "optimizer.lr=0.01", *POLICY)


def test_photos(run: Path) -> tuple[list[Path], list[str]]:
    """Photos of the test split, and the captions that the run gave them."""
    predictions = json.loads((run / "predictions.json").read_text())
    captions = {entry["image_id"]: entry["caption"] for entry in predictions}
    roster = read_roster(DataSettings.of(OmegaConf.load(run / "config.yaml")), "test")
    paths = {sample.image_id: sample.image_path for sample in roster.samples}
    return [paths[image_id] for image_id in captions], list(captions.values())


test_photos.__test__ = False


def texts(results: list[CaptionedPhoto]) -> list[str]:
    return [result.caption for result in results]


def test_a_run_and_its_export_caption_photos_as_the_test_did(run: Path, tmp_path: Path) -> None:
    photos, expected = test_photos(run)
    captioner = Captioner.load(run, device="cpu")
    assert texts(captioner.caption(photos)) == expected
    # in any order, with repeats and by any number at a time
    again = captioner.caption([photos[3], photos[0], photos[3]], batch_size=1)
    assert texts(again) == [expected[3], expected[0], expected[3]]
    assert captioner.caption([]) == []

    exported = Captioner.load(export(run, tmp_path / "export"), device="cpu")
    assert texts(exported.caption(photos)) == expected
    (short,) = exported.caption(photos[:1], max_length=1, min_length=0)
    assert len(short.caption.split()) <= 1
    group = exported.caption(photos[:1], num_captions=2)[0].captions
    assert [prediction.score for prediction in group] == sorted(
        (prediction.score for prediction in group), reverse=True
    )
    assert len(group) == 2


def test_an_export_says_what_it_is_and_names_no_folder_of_its_owner(run, tmp_path) -> None:
    folder = export(run, tmp_path / "export")
    assert sorted(path.name for path in folder.iterdir()) == [
        "README.md",
        "captioner.json",
        "config.yaml",
        "model.safetensors",
    ]
    card = (folder / "README.md").read_text()
    edits = (run / "curation.jsonl").read_text().splitlines()[1:]
    assert f"| remove | {len(edits)} |" in card
    assert "CIDEr-D | " in card
    assert "grants no licence" in card
    assert re.search(r"hours of training at 10 W \(assumed: 10 W for each of 1 threads\)", card)
    weights = load_file(folder / "model.safetensors")
    assert any(name.startswith(FEATURES_PREFIX) for name in weights)
    for name in ("README.md", "captioner.json", "config.yaml"):
        text = (folder / name).read_text()
        assert str(tmp_path.parent.parent) not in text, name
        assert str(run.parent) not in text, name


def test_captions_of_a_journal_may_hold_marks_that_end_lines(run, tmp_path: Path) -> None:
    other = shutil.copytree(run, tmp_path / "run")
    head, *edits = (other / "curation.jsonl").read_text().splitlines()
    changed = json.dumps({**json.loads(edits[0]), "old": "a\u2028dog"}, ensure_ascii=False)
    (other / "curation.jsonl").write_text("\n".join([head, changed, *edits[1:], ""]))
    card = (export(other, tmp_path / "export") / "README.md").read_text()
    assert f"| remove | {len(edits)} |" in card


def test_a_command_is_shown_without_folders_of_the_machine() -> None:
    command = (
        "captioning train data.files=[/srv/a/s/x.jsonl,/srv/b.json] x={y:/srv/q} z=~/p/k "
        "data.root=./own run_dir=/srv/one model.pretrained=owner/name url=https://a/b"
    )
    assert without_folders(command) == (
        "captioning train data.files=[x.jsonl,b.json] x={y:q} z=k "
        "data.root=./own run_dir=one model.pretrained=owner/name url=https://a/b"
    )


def test_files_of_words_are_taken_along(tmp_path: Path) -> None:
    words = tmp_path / "words.txt"
    words.write_text("dog\ncat,kitten\n", encoding="utf-8")
    weights = tmp_path / "their.pth"
    weights.touch()
    module = {"objects": str(words), "weights": str(weights), "entities": {"names_path": None}}
    model = {"objects": str(words), "weights": "float32", "module": module}
    settings = {"model": model, "features": {}, "data": {"name": "own", "root": str(tmp_path)}}
    portable = _with_lists(_portable(settings), tmp_path)
    assert str(tmp_path) not in json.dumps(portable)
    assert portable["model"]["weights"] == "float32"
    assert portable["model"]["module"]["weights"] is None
    loaded = _placed(portable, tmp_path)["model"]
    assert loaded["objects"] == loaded["module"]["objects"]
    assert Path(loaded["objects"]).read_text(encoding="utf-8") == words.read_text()
    for other in ("lists/../words.txt", "lists/0123456789ab.py"):
        assert _placed({"objects": other}, tmp_path) == {"objects": other}


def test_nothing_is_written_over(run: Path, tmp_path: Path, capsys) -> None:
    (tmp_path / "to").mkdir()
    (tmp_path / "to" / "mine.txt").write_text("kept")
    with pytest.raises(FileExistsError, match="is there already"):
        export(run, tmp_path / "to")
    assert (tmp_path / "to" / "mine.txt").read_text() == "kept"
    with pytest.raises(FileNotFoundError, match="no such folder; give a run folder"):
        export(tmp_path / "nowhere", tmp_path / "new")
    assert [path.name for path in tmp_path.iterdir()] == ["to"]
    assert main(["export", f"run={run}", f"to={tmp_path / 'new'}"]) == 0
    assert "exported to" in capsys.readouterr().out


def test_wrong_calls_say_what_is_wrong(run: Path, tmp_path: Path) -> None:
    captioner = Captioner.load(run, device="cpu")
    photos, _ = test_photos(run)
    with pytest.raises(TypeError, match=r"must be a list: got .*; put it into \["):
        captioner.caption(str(photos[0]))
    with pytest.raises(
        TypeError, match=r"photos must be a list: got <list_iterator .*; write list"
    ):
        captioner.caption(iter(photos))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="photos must be a list: got None"):
        captioner.caption(None)  # type: ignore[arg-type]
    with pytest.raises(
        ValueError, match=r"must_include must hold words or tuples of .*, got \[3\]"
    ):
        captioner.caption(photos, must_include=[3])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="unexpected keyword argument 'beams'"):
        captioner.caption(photos, beams=3)
    with pytest.raises(TypeError, match="no setting beams; choose from max_length"):
        next(captioner.stream(photos, beams=3))
    with pytest.raises(ValueError, match="beam_size must be a whole number of at least 1: got 0"):
        captioner.caption(photos, beam_size=0)
    with pytest.raises(FileNotFoundError, match=r"none\.png: no such photo"):
        captioner.caption([tmp_path / "none.png"])
    with pytest.raises(ValueError, match="holds no captioner: it has neither config.yaml"):
        Captioner.load(tmp_path)


def changed(folder: Path, key: str, value: object) -> None:
    config = OmegaConf.load(folder / "config.yaml")
    OmegaConf.update(config, key, value)
    OmegaConf.save(config, folder / "config.yaml")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("search._target_", "os.system", "configs may name only"),
        ("model.module._target_", "torch.load", "name a class of the library"),
        (
            "optimizer._target_",
            "captioning.runtime.files.write_text",
            "configs may not build it",
        ),
        ("features.backbone._target_", "captioning.export.export.export", "configs may not"),
        ("model.module.hidden_size", 10_000_000, "config.yaml expects"),
        ("model.module.hidden_size", 25, "config.yaml expects"),
        ("features", None, "lacks one of model, features"),
    ],
)
def test_settings_of_strangers_run_nothing(run, tmp_path, key, value, message) -> None:
    folder = export(run, tmp_path / "export")
    changed(folder, key, value)
    with pytest.raises(ValueError, match=message):
        Captioner.load(folder, device="cpu")


@pytest.mark.long
def test_damaged_and_foreign_files_are_refused(run: Path, tmp_path: Path) -> None:
    folder = export(run, tmp_path / "export")
    weights = folder / "model.safetensors"
    tensors, content = load_file(weights), weights.read_bytes()

    def refused(message: str) -> None:
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            Captioner.load(folder, device="cpu")

    torch.save({"weights": torch.zeros(3)}, weights)  # a pickle
    refused("is not a safetensors file")
    weights.write_bytes(content[:-10])
    refused("is not a safetensors file")
    for name in ("embed.weight", next(iter(tensors))):
        save_file({n: tensor for n, tensor in tensors.items() if n != name}, weights)
        refused(f"{name.removeprefix(FEATURES_PREFIX)} has shape missing, config.yaml expects")
    save_file({**tensors, "more": torch.zeros(1)}, weights)
    refused(r"more has shape \(1,\), config.yaml expects none")
    weights.unlink()
    refused(r"model\.safetensors does not exist")
    weights.write_bytes(content)

    record = folder / "captioner.json"
    correct = json.loads(record.read_text())
    record.write_text(json.dumps({**correct, "format": "other"}))
    refused("is not of format")
    record.write_text(json.dumps({**correct, "captioner": {"class": "UpDown", "tokenizer": {}}}))
    refused("the tokenizer is damaged")
    record.write_text(json.dumps({**correct, "captioner": {**correct["captioner"], "class": "X"}}))
    refused("to model X")
    record.write_text(json.dumps(correct))
    (folder / "config.yaml").write_text("{:")
    refused(r"config\.yaml cannot be read")


def test_imported_features_have_no_photos(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "copy")
    changed(tmp_path / "copy", "features.imported", "folder")
    with pytest.raises(ValueError, match="uses imported features, so it cannot read photos"):
        Captioner.load(tmp_path / "copy")


@pytest.mark.filterwarnings(SENDS_FILES_AS_DATA)
def test_a_run_is_pushed_and_captions_by_name_and_commit(run, tmp_path, monkeypatch, capfd) -> None:
    photos, expected = test_photos(run)
    with running_hub(monkeypatch, tmp_path / "hub") as hub:
        assert main(["push", str(run), "--repo", "owner/small"]) == 0
        shown = "".join(capfd.readouterr())
        repository = hub.repositories["model owner/small"]
        ((commit, files),) = repository.commits.items()
        name = f"owner/small@{commit}"
        assert texts(Captioner.load(name, device="cpu").caption(photos[:2])) == expected[:2]
    assert repository.private
    assert sorted(files) == ["README.md", "captioner.json", "config.yaml", "model.safetensors"]
    assert f'Captioner.load("{name}")' in shown
    assert TOKEN not in shown
    assert b'Captioner.load("small")' in files["README.md"]


def test_matrices_in_eight_bits_are_made_whole() -> None:
    matrix = torch.randn(5, 7, generator=torch.Generator().manual_seed(0))
    matrix[2] = 0
    small, scales = in_eight_bits(matrix)
    found = in_full({"a": small, "a.scales": scales, "b": matrix})
    assert sorted(found) == ["a", "b"]
    assert (found["a"] - matrix).abs().max() <= scales.max() / 2 + 1e-7
    assert found["a"][2].count_nonzero() == 0
    with pytest.raises(ValueError, match=r"a: \(4,\) scales, not one per row"):
        in_full({"a": small, "a.scales": scales[:4]})
