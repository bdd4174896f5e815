"""Rows of the ToCa paper at full size, in small on stand-ins of its data and models."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from augmentation.toca.templates import GAP
from captioning.papers.cells import Results
from captioning.papers.paper_file import load_paper
from captioning.papers.steps import tasks_of
from captioning.runtime.files import write_json, write_lines
from tests.causal_folder import save_causal
from tests.clip_folder import hub_clip_folder
from tests.papers.small import num_measured, run_small
from tests.papers.stand_ins import SPLITS, write_karpathy, write_nocaps

WORDS = ("bottle", "bus", "cup", "train", "chair", "cake", "cow", "zebra")
FORMS = (
    "A {} stands on a wooden table.",
    "A person sits near the small {}.",
    "Two people look at a red {}.",
    "The old {} lies on green grass.",
    "A man with a {} walks down the street.",
)
NUM_CAPTIONS = 24
CLIP = ("name=models/clip", "weights=null")
SCORES = "metrics.test=[BLEU,CIDEr-D]"
CHANGES = {
    "method=toca_published": (
        *("writer@method.writer=llama_cpp", "method.writer.path=data/model.gguf"),
        *(f"method.pace.num_captions={NUM_CAPTIONS}", "method.pace.batch_size=32"),
    ),
    "compare": tuple(f"similarity.encoder.{value}" for value in CLIP),
    "evaluate": (SCORES,),
    "extra_metrics=[nocaps]": ("extra_metrics.nocaps.metrics=[CIDEr-D]",),
    "train": (
        "model.module.projector_layers=1",
        *(f"features.encoder.{value}" for value in CLIP),
        *("model.texts.parser.num_processes=1", "num_epochs=1", "loader.batch_size=8"),
        SCORES,
    ),
}


class Llama:
    """A language model that leaves every gap empty."""

    def __init__(self, *, model_path: str, **settings: object) -> None:
        assert Path(model_path).is_file()
        assert settings["n_ctx"] == 2048

    def create_chat_completion(self, messages: list[dict[str, str]], **_: object) -> Any:
        template = messages[-1]["content"].splitlines()[-1]
        text = " ".join(template.replace(GAP, " ").split())
        return {"choices": [{"message": {"content": text}}]}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    data = tmp_path / "data"
    write_karpathy(data / "coco", "dataset_coco.json", WORDS, forms=FORMS, photos="val2014")
    write_karpathy(data / "flickr30k", "dataset_flickr30k.json", WORDS, forms=FORMS)
    write_nocaps(data / "nocaps", range(6), WORDS)
    write_styles(data / "flickrstyle10k" / "romantic", data / "flickr30k" / "flickr30k-images")
    (data / "vinvl").mkdir()
    names = {word: number for number, word in enumerate(WORDS)}
    write_json(data / "vinvl" / "vgcocooiobjects_v1_class2ind.json", names)
    (data / "model.gguf").touch()
    save_causal(tmp_path / "models" / "gpt2", positions=192)
    hub_clip_folder(tmp_path / "models" / "clip")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "llama_cpp", SimpleNamespace(Llama=Llama))
    return tmp_path


def write_styles(folder: Path, photos: Path) -> None:
    """A style of FlickrStyle10k: a caption a photo."""
    folder.mkdir(parents=True)
    (folder / "images").symlink_to(photos)
    for part, split in (("train", "train"), ("val", "test"), ("test", "test")):
        lines = [
            json.dumps({"image": f"{n}.jpg", "caption": FORMS[n % 5].format(WORDS[n % 8])})
            for n, of in enumerate(SPLITS)
            if of == split
        ]
        write_lines(folder / f"{part}.jsonl", lines)


def measured(names: Sequence[str], results: Results) -> dict[str, int]:
    """Number of measured cells by item, after the rows' commands."""
    paper = load_paper("toca")
    for task in tasks_of(paper, names, "full", [0], results):
        run_small(task, CHANGES)
    return num_measured(paper, names, results)


def test_rows_on_coco_are_measured(folder: Path) -> None:
    counts = measured(["toca", "near_toca"], Results(folder / "runs"))
    # Without METEOR and SPICE; of Table 7 tokens, slots and structures.
    assert counts == {"table2": 8, "figure1": 2, "table7": 15, "epochs": 4}
    synthetic = folder / "runs" / "papers" / "toca-full" / "toca_set" / "made" / "captions.txt"
    captions = synthetic.read_text(encoding="utf-8")
    assert len(set(captions.splitlines())) == NUM_CAPTIONS


def test_rows_across_domains_and_styles_are_measured(folder: Path) -> None:
    counts = measured(["toca_sx", "toca_romantic"], Results(folder / "runs"))
    assert counts == {"table3": 3, "table4": 2}
