"""Feature stores, features that laboratories publish, and tables of the cache."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from captioning.data.batches.caption_texts import TextBlock
from captioning.data.features.importing import import_features, read_photo_sizes
from captioning.data.features.index import FeatureIndex
from captioning.data.features.store import FeatureStore
from captioning.data.features.writer import FeatureWriter
from captioning.data.token_table import TokenTable
from captioning.text.parse_cache import ParseCache
from captioning.vision.line_store import LineStore
from tests.captioning.data.features import layouts
from tests.fuzz.harness import Subject, Target
from tests.tiny import tokenizer

PHOTOS = {name: layouts.make_photo(name, count) for name, count in (("42", 3), ("7", 2))}
LAYOUTS: dict[str, Callable[[Path, layouts.Photos], Any]] = {
    "f.tsv": layouts.write_tsv,
    "f.npz": layouts.write_npz,
    "npz_folder": layouts.write_npz_folder,
    "mcan": layouts.write_mcan_folder,
    "vl_bart.h5": layouts.write_vl_bart,
    "updown_baseline.h5": layouts.write_updown_baseline,
    "padded.h5": layouts.write_padded_h5,
    "uniter": layouts.write_uniter,
}


def store(folder: Path) -> Subject:
    index = FeatureIndex(identity="x", kind="imported", image_size=0, dim=3, has_boxes=True)
    with FeatureWriter(folder=folder, index=index) as writer:
        for name in "abc":
            boxes = np.array([[0, 0, 1, 1]] * 2, dtype=np.float32)
            writer.append(name, np.ones((2, 3), dtype=np.float16), boxes=boxes, size=(4, 5))
            writer.commit()

    def call() -> None:
        opened = FeatureStore.open(folder)
        positions = opened.positions_of_ids(["a", "b", "c"])
        opened.read(positions)
        opened.read_boxes(positions)
        opened.sizes_of_ids(["a"])

    files = [folder / n for n in ("index.json", "records.log", "features.bin", "boxes.bin")]
    return Subject(call=call, files=files)


def published(name: str, folder: Path) -> Subject:
    LAYOUTS[name](folder / name, PHOTOS)
    target = folder / "store"
    files = [p for p in folder.rglob("*") if p.is_file() and p.name != "lock.mdb"]

    def call() -> None:
        import_features([folder / name], folder=target)

    return Subject(
        call=call,
        files=files,
        names=(name,),
        restore=lambda: shutil.rmtree(target, ignore_errors=True),
    )


def cocobu(folder: Path) -> Subject:
    features, boxes, sizes = layouts.write_cocobu(folder, PHOTOS)
    target = folder / "store"

    def call() -> None:
        known = read_photo_sizes(sizes)
        import_features([features], folder=target, boxes=boxes, sizes=known)

    return Subject(
        call=call,
        files=[*features.iterdir(), *boxes.iterdir(), sizes],
        names=("cocobu",),
        restore=lambda: shutil.rmtree(target, ignore_errors=True),
    )


def tables(folder: Path) -> Subject:
    """Tokens and embeddings of captions, as the cache keeps them."""
    tokens, texts = folder / "tokens.bin", folder / "block.safetensors"
    TokenTable.encode(["a dog runs", "two cats"], tokenizer()).save(tokens)
    TextBlock.build(torch.ones(2, 3), [[1], [2, 3]]).save(texts)

    def call() -> None:
        TokenTable.open(tokens, number=2)[1]
        TextBlock.open(texts, number=2).row(1)

    return Subject(call=call, files=[tokens, texts])


def stores(folder: Path) -> Subject:
    """Parses and scores that were computed before; what is damaged is computed again."""
    parses, scores = folder / "parses.sqlite", folder / "scores"
    ParseCache(parses).write([("a dog", "packed"), ("a cat", "packed too")])
    LineStore(scores).put({"a": 1.5, "b": [1, 2]})

    def call() -> None:
        ParseCache(parses).read(["a dog", "a cat"])
        LineStore(scores).get("a")

    return Subject(call=call, files=[parses, *scores.iterdir()])


TARGETS = [
    Target(name="feature store", make=store, share=2),
    *(Target(name=f"features: {name}", make=partial(published, name)) for name in LAYOUTS),
    Target(name="features: cocobu", make=cocobu),
    Target(name="tables of tokens and texts", make=tables),
    Target(name="stores of parses and scores", make=stores),
]
