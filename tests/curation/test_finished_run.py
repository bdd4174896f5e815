"""A run folder read again, and the commands that begin with one."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import page_data
import pytest
import torch
from omegaconf import OmegaConf
from PIL import Image

from captioning.commands.main import main
from captioning.data.readers.jsonl import read_jsonl
from captioning.types import Edit
from curation.detect import contexts
from curation.finished_run import read_run
from curation.journal.journal import Header, encode, write_journal
from curation.loop.keep import KeepList, write_keep
from curation.loop.ledger import LossLedger
from curation.study.items import read_items


@pytest.fixture
def run(tmp_path) -> Path:
    """The folder of a run over two photos: one caption replaced, one removed, one new picture."""
    photos = tmp_path / "photos"
    photos.mkdir()
    for name in ("a", "b"):
        Image.new("RGB", (6, 4), "red").save(photos / f"{name}.jpg")
    lines = [{"image": f"{name}.jpg", "captions": [f"one {name}", f"two {name}"]} for name in "ab"]
    (photos / "captions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    reader = {
        "name": "toy/train",
        "annotations": str(photos / "captions.jsonl"),
        "image_folder": str(photos),
    }
    config = {
        "data": {
            "name": "toy",
            "train": {"_target_": "captioning.data.readers.jsonl.read_jsonl", **reader},
        },
        "curation": {"name": "by hand"},
        "monitor": "last",
        "seed": 0,
        "paths": {"cache": str(tmp_path / "cache")},
    }
    folder = tmp_path / "run"
    (folder / "curation" / "images").mkdir(parents=True)
    Image.new("RGB", (6, 4), "blue").save(folder / "curation" / "images" / "new.png")
    OmegaConf.save(OmegaConf.create(config), folder / "config.yaml")
    roster = read_jsonl(**reader)
    edits = [
        Edit(sample_id="a.jpg#0", action="replace_caption", value="new", policy="p", epoch=0),
        Edit(sample_id="b.jpg#0", action="remove", policy="p", epoch=0),
        Edit(
            sample_id="b.jpg#1",
            action="replace_image",
            value="curation/images/new.png",
            policy="p",
            epoch=0,
        ),
    ]
    header = Header(roster=roster.name, fingerprint=roster.fingerprint, seed=5)
    write_journal(folder / "curation.jsonl", header, map(encode, edits))
    ids = [sample.sample_id for sample in roster.samples]
    ledger = LossLedger(num_samples=4)
    ledger.load_state_dict(ledger.state_dict() | _two_epochs())
    ledger.save(folder / "curation" / "losses.npz", sample_ids=ids)
    keep = KeepList(roster=roster.name, fingerprint=roster.fingerprint, sample_ids=("a.jpg#1",))
    write_keep(keep, folder / "curation" / "keep.json")
    return folder


def _two_epochs() -> dict:
    history = torch.tensor([[1.0, 2.0, 3.0, 4.0], [0.5, 1.5, float("nan"), 2.5]])
    return {"history": history, "epochs": [0, 1]}


def test_a_run_is_read_as_it_ended(run):
    record = read_run(run)
    assert [sample.caption for sample in record.view.samples()] == ["new", "two a", "two b"]
    assert (record.policy, record.seed, list(record.epochs)) == ("by hand", 5, [0, 1])
    np.testing.assert_array_equal(record.history[1], [0.5, 1.5, np.nan, 2.5])
    assert record.keep.sample_ids == ("a.jpg#1",)
    assert record.view.samples()[2].image_path == run / "curation/images/new.png"


def test_a_file_that_a_kill_left_is_no_signal(run):
    losses = run / "curation" / "losses.npz"
    (run / "curation" / "visual_gain.npz").write_bytes(losses.read_bytes())
    (run / "curation" / ".0f3a9c12b4de.npz").write_bytes(losses.read_bytes()[:99])
    assert [list(context.signals) for context in contexts(run)] == [["visual_gain"]] * 2


def test_the_report_of_a_run(run, capsys):
    assert main(["report", str(run), "--pictures", "9", "--no-figures"]) == 0
    assert "3 of 3 edits listed" in capsys.readouterr().out
    page = run / "curation" / "report.html"
    assert len(page_data.blocks(page, "picture")) == 3
    page_facts = page_data.facts(page)
    assert page_facts["keep"]["sample_ids"] == ["a.jpg#1"]
    columns = page_data.listed(page)
    # the new picture is the second: it stands beside the one that it replaced
    assert (columns["photo"][2], columns["photo_after"][2]) == (1, 2)


def test_the_pictures_of_a_run_can_be_studied(run):
    (item,) = read_items(run)
    assert (item.name, item.captions, item.loss) == ("b.jpg#1", ("two b",), 2.5)
    assert item.path == run / "curation/images/new.png"


def test_the_export_of_a_run(run, tmp_path, capsys):
    assert (
        main(["curate", "export", str(run), str(tmp_path / "out"), "--format", "imagefolder"]) == 0
    )
    assert "3 captions" in capsys.readouterr().out
    assert (tmp_path / "out/replaced/new.png").is_file()
    assert main(["curate", "export", str(run), str(tmp_path / "out")]) == 1
    assert "exists already and is not empty" in capsys.readouterr().err


def test_what_is_no_run_or_no_longer_the_same_is_refused(run, tmp_path, capsys):
    assert main(["report", str(tmp_path / "photos")]) == 1
    assert "not a run folder" in capsys.readouterr().err
    annotations = tmp_path / "photos" / "captions.jsonl"
    annotations.write_text(annotations.read_text().replace("two b", "2 b"))
    before = sorted(run.rglob("*"))
    assert main(["report", str(run), "--no-figures"]) == 1
    told = capsys.readouterr().err
    assert "curation left out: " in told
    assert "use the annotations" in told
    assert sorted(run.rglob("*")) == sorted([*before, run / "report.html"])
    assert main(["report", str(run), "--pictures", "-1"]) == 1
    (run / "curation.jsonl").unlink()
    assert main(["curate", "export", str(run), str(tmp_path / "out")]) == 1
    assert "was the run trained with a curation policy?" in capsys.readouterr().err
