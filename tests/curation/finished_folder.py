"""A finished run's folder with all of its files, small and made without training."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import OmegaConf
from PIL import Image

from captioning.data.readers.jsonl import read_jsonl
from captioning.runtime.files import write_json
from captioning.types import Edit
from curation.journal.journal import Header, encode, write_journal
from curation.loop.ledger import LossLedger

NAMES = "abcdef"
TEXTS = tuple(f"caption {number} of photo {name}" for name in NAMES for number in range(2))
EDITS = (
    Edit(
        sample_id="f.jpg#1",
        action="remove",
        policy="p",
        epoch=0,
        reason="loss 6.5 > 6 (mean + 1 SD)",
    ),
    Edit(sample_id="a.jpg#0", action="replace_caption", value="a new caption", policy="p", epoch=1),
)


def make_folder(
    folder: Path,
    *,
    name: str = "toy/run",
    seed: int = 0,
    edits: Sequence[Edit] = EDITS,
    texts: Sequence[str] = TEXTS,
    scores: Sequence[float] = (0.9, 0.1, 0.2, 0.3, 0.4, 0.5),
    settings: dict[str, Any] | None = None,
) -> Path:
    """Write the folder of a run with photos beside it; training and test are the same captions.

    Args:
        folder: of the run; photos are shared by runs of one parent.
        name: ``run_name``.
        seed: of the run.
        edits: of its curation.
        texts: two captions a photo.
        scores: CIDEr-D of each photo's caption.
        settings: further keys of the config.
    """
    reader = _photos(folder.parent / "photos", texts)
    split = {"_target_": "captioning.data.readers.jsonl.read_jsonl", **reader}
    config = {
        "run_name": name,
        "data": {"name": "toy", "train": split, "test": split},
        "model": {"name": "tiny_model"},
        "curation": {"name": "p"},
        "monitor": "last",
        "seed": seed,
        "paths": {"cache": str(folder.parent / "cache")},
    }
    folder.mkdir(parents=True)
    OmegaConf.save(OmegaConf.merge(config, settings or {}), folder / "config.yaml")
    roster = read_jsonl(**reader)
    header = Header(roster=roster.name, fingerprint=roster.fingerprint, seed=seed)
    write_journal(folder / "curation.jsonl", header, map(encode, edits))
    ledger = LossLedger(num_samples=len(roster))
    for epoch in range(2):
        ledger.add(torch.arange(len(roster)), torch.arange(len(roster)) / 2 + 1)
        ledger.close_epoch(epoch=epoch)
    ledger.save(folder / "curation/losses.npz", sample_ids=[s.sample_id for s in roster.samples])
    _results(folder, texts, scores)
    return folder


def _photos(folder: Path, texts: Sequence[str]) -> dict[str, str]:
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for place, name in enumerate(NAMES):
        Image.new("RGB", (12, 8), (40 * place, 90, 120)).save(folder / f"{name}.jpg")
        lines.append({"image": f"{name}.jpg", "captions": list(texts[2 * place : 2 * place + 2])})
    (folder / "captions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    annotations = str(folder / "captions.jsonl")
    return {"name": "toy/train", "annotations": annotations, "image_folder": str(folder)}


def _results(folder: Path, texts: Sequence[str], scores: Sequence[float]) -> None:
    images = {
        f"{n}.jpg": {"CIDEr-D": s, "BLEU-4": s / 2} for n, s in zip(NAMES, scores, strict=True)
    }
    mean = float(np.mean(scores))
    test = {
        "corpus": {"BLEU-4": mean / 2, "CIDEr-D": mean},
        "per_image": images,
        "settings": {"tokenizer": "python", "num_images": len(images)},
    }
    write_json(folder / "metrics.json", {"test": test})
    history = [{"epoch": epoch, "step": 5, "CIDEr-D": mean * (epoch + 1) / 2} for epoch in (0, 1)]
    write_json(folder / "history.json", history)
    captions = [{"image_id": i, "caption": text} for i, text in zip(images, texts, strict=False)]
    write_json(folder / "predictions.json", captions)
    rows = [{"seconds": 60.0, "captions_per_second": 9.0, "updates": 5 * k} for k in (1, 2)]
    write_json(folder / "timing.json", {"epochs": rows})
    write_json(folder / "versions.json", {"command": "captioning train x", "python": "3.12"})
    lost = {"item": texts[0], "rule": "photo missing"}
    write_json(folder / "dropped.json", {"toy/train": [lost]})
    log = folder / "logs/csv/metrics.csv"
    log.parent.mkdir(parents=True)
    lines = [f"0,{step},{5 - step / 10}" for step in range(10)]
    log.write_text("\n".join(["epoch,step,train/loss", *lines]) + "\n")
