"""A run of the CIC-BART-SSA paper at full size, in small on stand-ins of data and weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from captioning.commands.main import run
from captioning.papers.cells import Cells, Results
from captioning.papers.paper_file import load_paper
from captioning.papers.steps import Task, tasks_of
from tests.papers import stand_ins_entities as stand_ins
from tests.papers.small import run_small
from tests.papers.stand_ins import SPLITS

CHANGES = {
    "method=ssa_published": (
        "method.graph_parser=null",
        "method.graph_writer=null",
        "method.parser.num_processes=1",
        "method.keeps_repeats=true",  # the photos here have the same captions
    ),
    "train": (
        "num_epochs=1",
        "loader.batch_size=8",
        "search.max_length=12",
    ),
    "controllability": (
        "metrics=fast",
        "parser.num_processes=1",
        "exactly_five=false",  # no photo here has just five SSA captions
        "random.controls=3",
        "random.best=2",
    ),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    data, models = tmp_path / "data", tmp_path / "models"
    stand_ins.write_entities(data / "flickr30k_entities")
    stand_ins.write_coco_entities(data / "coco")
    for name in ("flickr-ssa", "coco-ssa"):
        stand_ins.write_published_captions(data / "cic_bart_ssa" / name)
    bart = models / "facebook" / "bart-base"  # as the hub names it
    stand_ins.write_bart(bart)
    stand_ins.write_vl_bart_weights(data / "vl_bart" / "Epoch30.pth", bart)
    stand_ins.write_berts(models / "bert-base-cased", models / "cola")
    stand_ins.write_glove(data / "glove" / "glove.6B.300d.txt")
    monkeypatch.chdir(tmp_path)
    boxes = stand_ins.write_box_features(tmp_path / "gtboxes.h5")
    for name in ("flickr30k_entities", "coco_entities"):
        assert run(["import-features", str(boxes), "--folder", f"data/features/{name}"]) == 0
    return tmp_path


def captions_of(task: Task) -> list[dict]:
    lines = (task.folder / "captions.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def test_all_captions_of_coco_entities_are_trained_on_and_have_ssa_captions(folder: Path) -> None:
    """The paper counts all of them; only those of people that are scored need boxes throughout."""
    paper, results = load_paper("cic_bart_ssa"), Results(folder / "runs")
    tasks = tasks_of(paper, ["coco_r100"], "full", [0], results)
    assert [task.run.id for task in tasks] == ["coco_ssa", "coco_ssa_test", "coco_r100"]
    for task in tasks:
        run_small(task, CHANGES)
    last = {split: str(len(SPLITS) - 1 - SPLITS[::-1].index(split)) for split in ("train", "test")}
    for task, split in zip(tasks, ("train", "test"), strict=False):
        assert last[split] in {caption["image_id"] for caption in captions_of(task)}
    dropped = json.loads((tasks[2].folder / "dropped.json").read_text(encoding="utf-8"))
    assert dropped["coco_entities/train"] == []
    scored = {}
    for part in ("people", "ssa"):
        text = (tasks[2].folder / "evaluation" / part / "control.json").read_text(encoding="utf-8")
        rows = json.loads(text)["captions"]
        scored[part] = {row["sample_id"].split("#")[0] for row in rows}
    assert last["test"] not in scored["people"]
    assert last["test"] in scored["ssa"]


def test_a_row_is_measured_with_ssa_captions(folder: Path) -> None:
    paper, results = load_paper("cic_bart_ssa"), Results(folder / "runs")
    tasks = tasks_of(paper, ["flickr_r50"], "full", [0], results)
    assert [task.run.id for task in tasks] == ["flickr_ssa", "flickr_ssa_test", "flickr_r50"]
    for task in tasks:
        run_small(task, CHANGES)
    trained_on, made = map(captions_of, tasks[:2])
    assert trained_on
    assert made
    assert all(caption["boxes"] for caption in (*trained_on, *made))
    assert all(caption["score"] >= 0.7 for caption in (*trained_on, *made))
    cells = Cells(paper, "full", results)
    for name in ("table4", "table5"):  # captions by people, and of SSA
        item = paper.items[name]
        row = next(row for row in item.rows if row.run == "flickr_r50")
        measured = cells.row_cells(item, row)
        assert {cell.state for cell in measured} == {"measured"}
        assert all(value > 0 for cell in measured for value in cell.values)


def test_a_row_may_take_the_captions_that_the_authors_published(folder: Path) -> None:
    paper, results = load_paper("cic_bart_ssa"), Results(folder / "runs")
    tasks = tasks_of(paper, ["flickr_r100_authors"], "full", [0], results)
    assert [task.run.id for task in tasks] == [
        "flickr_ssa_authors",
        "flickr_ssa_test",
        "flickr_r100_authors",
    ]
    for task in tasks:
        run_small(task, CHANGES)
    published = captions_of(tasks[0])
    assert len(published) == 2 * SPLITS.count("train")
    assert all(caption["boxes"] for caption in published)
    item = paper.items["table1"]
    row = next(row for row in item.rows if row.run == "flickr_r100_authors")
    assert {cell.state for cell in Cells(paper, "full", results).row_cells(item, row)} == {
        "measured"
    }
