"""The export of a run has its training captions as curated, and its other splits as they were."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from captioning.commands.main import main
from captioning.data.readers.own.own import own_splits, read_own
from captioning.data.readers.split_words import Split
from captioning.types import Edit
from curation.export.export import FORMATS, HOLD_PHOTOS
from curation.journal.journal import Header, encode, write_journal
from tests.packed_files import photo

PARTS: tuple[Split, ...] = ("train", "val", "test")
NUMBER = 20
Part = dict[str, tuple[str, str]]  # caption and image id by sample id


def make_run(root: Path, *, folders: bool = False, **changes: Any) -> Path:
    """A run on own photos whose splits are drawn, or are folders with names that they share."""
    data = root / "set"
    data.mkdir()
    rows = [["file_name", "text"]]
    for n in range(NUMBER):
        name = f"p{n}.jpg"
        if folders:
            name = f"{PARTS[n % 3]}/p{n // 3}.jpg"
        (data / name).parent.mkdir(exist_ok=True)
        (data / name).write_bytes(photo(n, 64))
        rows += [[name, f"A dog runs over field number {n}, {k}."] for k in range(2)]
    if folders:
        for part in PARTS:
            lines = [["file_name", "text"]]
            lines += [[Path(n).name, text] for n, text in rows[1:] if n.startswith(part)]
            write_rows(data / part / "metadata.csv", lines)
    else:
        write_rows(data / "captions.csv", rows)
    reader = {"folder": str(data), "split_by": "content"}
    target = "captioning.data.readers.own.own.read_own"
    splits = {
        part: {"_target_": target, "name": f"own/{part}", "part": part, **reader, **changes}
        for part in PARTS
    }
    config = {
        "data": {"name": "own", **splits},
        "curation": {"name": "by hand"},
        "monitor": "last",
        "seed": 0,
        "paths": {"cache": str(root / "cache")},
    }
    run = root / "run"
    run.mkdir()
    OmegaConf.save(OmegaConf.create(config), run / "config.yaml")
    roster = read_own(name="own/train", part="train", **reader)
    ids = [sample.sample_id for sample in roster.samples]
    edits = [
        Edit(sample_id=ids[0], action="remove", policy="p", epoch=0),
        Edit(sample_id=ids[3], action="replace_caption", value="A new one.", policy="p", epoch=0),
    ]
    header = Header(roster=roster.name, fingerprint=roster.fingerprint, seed=5)
    write_journal(run / "curation.jsonl", header, map(encode, edits))
    return run


def write_rows(path: Path, rows: list[list[str]]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)


def parts_of(folder: Path) -> dict[Split, Part]:
    read = {p: read_own(name=p, folder=folder, part=p, split_by="content") for p in PARTS}
    return {p: {s.sample_id: (s.caption, s.image_id) for s in read[p].samples} for p in PARTS}


def curated(parts: dict[Split, Part]) -> dict[Split, Part]:
    ids = list(parts["train"])
    train = dict(parts["train"])
    train[ids[3]] = ("A new one.", train[ids[3]][1])
    del train[ids[0]]
    return {**parts, "train": train}


def photos_of(format: str) -> list[str]:
    return [] if format in HOLD_PHOTOS else ["--photos", "copy"]


@pytest.mark.parametrize("format", [name for name in FORMATS if name != "journal"])
@pytest.mark.parametrize("folders", [False, True])
def test_all_splits_are_written(tmp_path: Path, capsys, format: str, folders: bool) -> None:
    run, out = make_run(tmp_path, folders=folders), tmp_path / "out"
    words = ["curate", "export", str(run), str(out), "--format", format, *photos_of(format)]
    assert main(words) == 0, capsys.readouterr().err
    assert f"{out}: {2 * NUMBER - 1} captions" in capsys.readouterr().out
    expected, found = curated(parts_of(tmp_path / "set")), parts_of(out)
    if folders and format in ("csv", "karpathy"):  # one file, in which ids are of one photo
        expected = {
            part: {f"{part}/{i}": (text, f"{part}/{image}") for i, (text, image) in ids.items()}
            for part, ids in expected.items()
        }
    if format == "text_files":  # which have no place for ids
        found, expected = (_texts(one) for one in (found, expected))
    assert found == expected
    card = (out / "README.md").read_text()
    assert "Only the training captions were curated; the others are as the run read them." in card
    assert f"test {len(expected['test']) // 2} photos, {len(expected['test'])} captions" in card


def _texts(parts: dict[Split, Part]) -> Any:
    return {part: sorted(text for text, _ in ids.values()) for part, ids in parts.items()}


def test_train_alone_is_an_option(tmp_path: Path, capsys) -> None:
    run, out = make_run(tmp_path), tmp_path / "out"
    expected = curated(parts_of(tmp_path / "set"))["train"]
    words = ["curate", "export", str(run), str(out), "--format", "jsonl", "--photos", "copy"]
    assert main([*words, "--part", "train"]) == 0, capsys.readouterr().err
    found = read_own(name="x", folder=out).samples
    assert {s.sample_id: (s.caption, s.image_id) for s in found} == expected
    assert own_splits(out) == {}
    assert (out / "captions.jsonl").is_file()


def test_splits_that_are_gone_or_share_photos_are_refused(tmp_path: Path, capsys) -> None:
    run = make_run(tmp_path)
    config = OmegaConf.load(run / "config.yaml")
    config.data.val = {**config.data.test, "folder": str(tmp_path / "gone")}
    OmegaConf.save(config, run / "config.yaml")
    words = ["curate", "export", str(run), str(tmp_path / "out")]
    assert main(words) == 1
    message = capsys.readouterr().err
    assert "data.val of the run:" in message
    assert "--part train exports the training captions alone" in message
    config.data.val = config.data.test
    OmegaConf.save(config, run / "config.yaml")
    assert main([*words, "--format", "csv"]) == 1
    message = capsys.readouterr().err
    assert "is in val and in test, and this format has one split a photo" in message
    assert not (tmp_path / "out").exists()
    assert main([*words, "--format", "jsonl", "--photos", "copy"]) == 0
    assert parts_of(tmp_path / "out")["val"] == parts_of(tmp_path / "set")["test"]


@pytest.mark.parametrize("of_run", [False, True])
def test_corrections_keep_splits(tmp_path: Path, capsys, of_run: bool) -> None:
    run, out = make_run(tmp_path), tmp_path / "out"
    parts = parts_of(tmp_path / "set")
    ids = list(parts["train"])
    result = {"from_name": "verdict", "type": "choices", "value": {"choices": ["remove"]}}
    about = {"sample_id": ids[5], "caption": parts["train"][ids[5]][0]}
    task = {"data": about, "annotations": [{"result": [result], "was_cancelled": False}]}
    (tmp_path / "export.json").write_text(json.dumps([task]))
    source = run if of_run else tmp_path / "set"
    words = ["curate", "corrections", str(tmp_path / "export.json"), str(source), str(out)]
    words += ["--format", "jsonl", "--photos", "copy", "--cache", str(tmp_path / "cache")]
    assert main(words) == 0, capsys.readouterr().err
    expected = curated(parts) if of_run else parts
    del expected["train"][ids[5]]
    assert parts_of(out) == expected
    none = ["--part", "train"] if of_run else ["--held-out", "0"]
    words[4] = str(tmp_path / "none")
    assert main([*words, *none]) == 0
    assert own_splits(tmp_path / "none") == {}
