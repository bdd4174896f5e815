"""Rows of the novel objects paper at full size, in small on stand-ins of COCO and its features."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from captioning.data.steps.take_detections import detection_line
from captioning.papers.cells import Cells, Results
from captioning.papers.paper import Paper
from captioning.papers.paper_file import load_paper
from captioning.papers.steps import Task, tasks_of
from captioning.results.runs import STEPS
from captioning.runtime.files import read_json, write_json, write_lines
from captioning.types import Region
from tests.captioning.data.features.layouts import write_updown_baseline, write_vl_bart
from tests.papers.small import run_small
from tests.papers.stand_ins import CAPTIONS, SIDES, random_regions, write_coco

WORDS = ("bottle", "bus", "couch", "microwave", "pizza", "racket", "suitcase", "zebra")
NOVEL = {word: word for word in WORDS} | {"racket": "tennis racket"}
KNOWN = {w: w for w in ("cup", "train", "chair", "oven", "cake", "frisbee", "backpack", "cow")}
SIZE = 8  # of features and of word vectors
FILES = tuple(
    f"data.{part}.annotations=data/coco/annotations/captions_{split}2014.json"
    for part, split in (("train", "train"), ("val", "val"), ("test", "val"))
)
SCORES = ("metrics.test=[BLEU,CIDEr-D]", "extra_metrics.novel_objects.metrics=[CIDEr-D]")
CHANGES = {
    "augment": (*FILES, "method.limits.smallest_area=100", "num_processes=0"),
    "evaluate": SCORES,
    "train": (
        *(*FILES, *SCORES, "num_epochs=1", "loader.batch_size=20", "loader.updates_per_epoch=1"),
        *("model.module.hidden_size=16", "model.module.attention_size=8"),
        *(f"model.module.embedding_size={SIZE}", "trainer.devices=1"),
    ),
}
ROUNDS = ("num_epochs=4", "curation.schedule.every_n_epochs=1", "curation.schedule.until_epoch=2")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch) -> Path:
    coco = tmp_path / "data" / "coco"
    write_coco(coco, "train2014", KNOWN | NOVEL, range(1, 17))
    write_coco(coco, "val2014", KNOWN | NOVEL, range(101, 117))
    for part, ids in (("val", range(101, 117, 2)), ("test", range(102, 117, 2))):
        write_lines(coco / f"coco2014_cocoid.val_{part}.txt", map(str, ids))
    photos = {str(n): random_regions(n, SIZE) for n in (*range(1, 17), *range(101, 117))}
    features = tmp_path / "data" / "features"
    features.mkdir()
    write_updown_baseline(features / "coco_resnext152.h5", photos)
    write_vectors(tmp_path / "data" / "glove" / "glove.42B.300d.txt")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_vectors(path: Path) -> None:
    """Word vectors, those of known objects the longest, so that captions name them early."""
    draw = np.random.default_rng(0)
    words = {word for text in CAPTIONS for word in text.split()} | {*KNOWN, *NOVEL}
    vectors = {word: draw.normal(size=SIZE) * (4 if word in KNOWN else 1) for word in sorted(words)}
    path.parent.mkdir()
    write_lines(path, [" ".join([word, *map(str, vectors[word])]) for word in vectors])


def write_detections(task: Task, first: int) -> None:
    """What ``captioning find-objects`` would say of the photos from ``first`` on."""
    lines = [json.dumps({"detector": "none", "settings": {}})]
    for image, label in enumerate((KNOWN | NOVEL).values(), start=first):
        found = [Region(box=(4, 5, 22, 20), label=label, score=0.9)]
        lines.append(detection_line(str(image), f"{image}.jpg", SIDES, found))
    task.folder.mkdir(parents=True)
    write_lines(task.folder / "boxes.jsonl", lines)
    write_json(task.folder / STEPS, task.commands)


def write_pasted(task: Task) -> None:
    """Features of the pasted pictures."""
    images = read_json(task.folder / "pairs" / "captions.json")["images"]
    pasted = {Path(i["file_name"]).stem: random_regions(n, SIZE) for n, i in enumerate(images)}
    write_vl_bart(task.folder / "regions.h5", pasted)


def run_tasks(paper: Paper, results: Results, names: list[str]) -> dict[str, Path]:
    """Folders by run."""
    tasks = tasks_of(paper, names, "full", [0], results)
    for task in tasks:
        name, changes = task.run.id, CHANGES
        if name.startswith("detections"):
            write_detections(task, first=1 if name == "detections_train" else 101)
        elif name == "synthetic":
            run_small(task, changes, between=partial(write_pasted, task))
        else:
            rounds = ROUNDS if name == "syn_plb" else ()
            run_small(task, changes | {"train": (*changes["train"], *rounds)})
    return {task.run.id: task.folder for task in tasks}


def test_pasted_pairs_and_pseudo_labels_are_trained_on(folder: Path) -> None:
    paper, results = load_paper("novel_objects"), Results(folder / "runs")
    folders = run_tasks(paper, results, ["syn_plb", "inference_cbs"])
    cells = Cells(paper, "full", results)
    # All but SPICE and METEOR, of Table 1 on the validation photos.
    for item, number in ((paper.items["table1"], 3), (paper.items["table2"], 5)):
        for row in item.rows:
            states = [cell.state for cell in cells.row_cells(item, row)]
            assert states.count("measured") == (number if row.run in folders else 0), row.name
    predictions = read_json(folders["in_domain"] / "evaluation" / "val" / "predictions.json")
    named = {word for prediction in predictions for word in prediction["caption"].split()}
    images = read_json(folders["synthetic"] / "pairs" / "captions.json")["images"]
    pasted = {tuple(Path(image["file_name"]).stem.split("-")[:2]) for image in images}
    assert ("bottle", "cup") in pasted
    counted = {candidate for novel, candidate in pasted if novel != "bottle"}
    assert counted
    assert counted <= named
    journal = (folders["syn_plb"] / "curation.jsonl").read_text(encoding="utf-8").splitlines()
    origins = {json.loads(line).get("origin") for line in journal} - {None}
    assert origins == {"pseudo-label:constrained", "pseudo-label:plain"}
