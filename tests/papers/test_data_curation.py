"""Runs of the data curation paper at full size, in small on stand-ins of data and weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from captioning.papers.cells import Cells, Results
from captioning.papers.paper_file import load_paper
from captioning.papers.steps import tasks_of
from tests.papers.small import run_small
from tests.papers.stand_ins import write_karpathy
from tests.parity.blip_plain import WORDS, random_state

SIDE = "features.backbone.image_size=16"
TRAINING = (
    "trainer.devices=1",
    "num_epochs=2",
    "loader.batch_size=10",
    "extra_metrics=[]",
    SIDE,
    "model.module.prompt=a",
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch) -> Path:
    weights = tmp_path / "data" / "blip"
    weights.mkdir(parents=True)
    (weights / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    torch.save({"model": random_state()}, weights / "model_base_capfilt_large.pth")
    words = [word for word in WORDS if word.isalpha()]
    write_karpathy(tmp_path / "data" / "flickr30k", "dataset_flickr30k.json", words)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ["flickr30k_remove_10", "flickr30k_replace_caption_10"])
def test_a_row_is_measured_from_the_published_weights(name: str, folder: Path) -> None:
    paper, results = load_paper("data_curation"), Results(folder / "runs")
    changes = {"convert": (SIDE,), "train": TRAINING}
    for task in tasks_of(paper, [name], "full", [0], results):
        run_small(task, changes)
    item, cells = paper.items["figure5"], Cells(paper, "full", results)
    states = [c.state for row in item.rows if row.run == name for c in cells.row_cells(item, row)]
    assert "measured" in states
    run = results.folder(paper, paper.runs[name], "full", 0)
    lines = (run / "curation.jsonl").read_text(encoding="utf-8").splitlines()
    actions = {json.loads(line).get("action") for line in lines} - {None}
    assert actions <= {"remove", "replace_caption"}
    assert actions
