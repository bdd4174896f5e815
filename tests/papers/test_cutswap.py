"""Rows of the CutSwap thesis at full size, in small on stand-ins of COCO, nocaps and features."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from captioning.commands.main import run
from captioning.data.steps.take_detections import detection_line
from captioning.papers.cells import Results
from captioning.papers.paper_file import load_paper
from captioning.papers.steps import Task, tasks_of
from captioning.runtime.files import read_json, write_lines
from captioning.types import Region
from tests.captioning.data.features.layouts import write_tsv
from tests.clip_folder import hub_clip_folder
from tests.papers.small import num_measured, run_small
from tests.papers.stand_ins import SIDES, random_regions, write_coco, write_nocaps

WORDS = ("bottle", "bus", "cup", "train", "chair", "cake", "cow", "zebra")
# Of val2014, whose photos the thesis' smaller splits are.
TRAIN = (391895, 522418, 184613, 318219, 554625, 397133, 574769, 60623)
VAL = tuple(range(1, 9))
NOCAPS = tuple(range(6))
SIZE = 8  # of features
CLIP = tuple(
    f"method.{encoder}={value}"
    for key, value in (("name", "models/clip"), ("weights", "null"))
    for encoder in (f"encoder.{key}", f"embed.encoder.{key}")
)
SCORES = "[BLEU,ROUGE-L,CIDEr-D]"
SMALL = {
    "updown": ("hidden_size=16", "attention_size=8", f"embedding_size={SIZE}"),
    "cos": (
        *("attention_lstm_size=16", "language_lstm_size=16", "attention_size=8"),
        *(f"embedding_size={SIZE}", f"posterior_embedding_size={SIZE}"),
        *("context_hidden=8", "object_hidden=8", "context_size=4", "object_size=4"),
    ),
}
CHANGES = {
    "augment": (
        *(*CLIP, "method.similarity=-1", "method.min_uses=1", "method.clustering.num_clusters=1"),
        *("method.areas.smallest=0.05", "num_processes=0"),
    ),
    "train": (
        *(f"metrics.test={SCORES}", "num_epochs=1", "loader.batch_size=8"),
        "search.min_length=3",  # one update teaches nothing but to be silent
    ),
    "image-distance": ("inception=false",),
    "evaluate": ("extra_metrics.nocaps.metrics=[CIDEr-D]", f"metrics.test={SCORES}"),
    "diverse-captions": (
        f"oracle={SCORES}",
        f"metrics.test={SCORES}",
        "first_images=3",
        "rerank.num_neighbours=2",
    ),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    data = tmp_path / "data"
    write_coco(data / "coco", "train2017", dict(zip(WORDS, WORDS, strict=True)), TRAIN)
    write_coco(data / "coco", "val2017", dict(zip(WORDS, WORDS, strict=True)), VAL)
    write_nocaps(data / "nocaps", NOCAPS, WORDS)
    write_boxes(data / "coco" / "bottom_up_boxes.jsonl", (*TRAIN, *VAL))
    (data / "neural_baby_talk").mkdir()
    names = [*WORDS, "person, people", "table"]
    write_lines(data / "neural_baby_talk" / "coco_class_name.txt", names)
    hub_clip_folder(tmp_path / "models" / "clip")
    monkeypatch.chdir(tmp_path)
    import_features(map(str, (*TRAIN, *VAL)), "coco")
    import_features(map(str, NOCAPS), "nocaps")
    return tmp_path


def write_boxes(path: Path, ids: Iterable[int]) -> None:
    """What a detector would say of the photos."""
    lines = [json.dumps({"detector": "bottom-up", "settings": {}})]
    for image, label in zip(ids, WORDS * 2, strict=True):
        found = [Region(box=(4, 5, 22, 20), label=label, score=0.9)]
        lines.append(detection_line(str(image), f"{image:012d}.jpg", SIDES, found))
    write_lines(path, lines)


def import_features(names: Iterable[str], data: str) -> None:
    """Features of photos in bottom-up attention's format, into the store of a data set."""
    photos = {name: random_regions(n, SIZE) for n, name in enumerate(names)}
    file = write_tsv(Path(f"{data}-{len(photos)}.tsv"), photos)
    assert run(["import-features", str(file), "--folder", f"data/{data}/bottom_up"]) == 0


def import_pasted(task: Task) -> None:
    """Features of the pasted pictures, beside those of the photos."""
    images = read_json(task.folder / "captions.json")["images"]
    import_features([Path(image["file_name"]).stem for image in images], "coco")


def test_rows_of_updown_and_cos_cvae_are_measured(folder: Path) -> None:
    paper, results = load_paper("cutswap"), Results(folder / "runs")
    names = ["fid", "updown_10_20", "nocaps_10_20", "cos_30_20"]
    for task in tasks_of(paper, names, "full", [0], results):
        module = SMALL.get(task.run.id.partition("_")[0], ())
        sizes = (f"model.module.{size}" for size in module)
        run_small(task, CHANGES | {"train": (*CHANGES["train"], *sizes)})
        if task.run.id == "pairs":
            import_pasted(task)
    thesis = {"table4.2": 1, "table4.7": 6, "table4.8": 4, "table4.9": 18, "table4.10": 6}
    appendix = {"tableA1": 6, "tableA2": 4, "tableA3": 18, "tableA4": 6}
    # Without METEOR and SPICE.
    assert num_measured(paper, names, results) == thesis | appendix | {"figure4.8": 4}


def test_slots_may_take_the_labels_of_imported_regions(folder: Path) -> None:
    sizes = [f"model.module.{size}" for size in SMALL["cos"]]
    words = ["train", "experiment=cutswap/coco_cos_cvae", *CHANGES["train"], *sizes, "num_epochs=2"]
    words += ["model.readers.contexts.slots=regions", "run_dir=runs/slots"]
    words += ["trainer.accelerator=cpu", "threads=1", "steps.add_pairs.share=0"]
    words += ["steps.add_pairs.folders=[]"]
    words += ["steps=[take_detections,share_of_photos,add_pairs]"]
    words += ["steps.take_detections.files=[${paths.data}/coco/bottom_up_boxes.jsonl]"]
    assert run(words) == 0
    assert read_json(Path("runs/slots/metrics.json"))["test"]
