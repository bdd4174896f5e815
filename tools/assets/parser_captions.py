"""Captions for the caption parser's teacher: ``python -m tools.assets parser-captions``.

Writes ``out`` with lines of ``{"id", "split", "caption"}``, drawn from the data sets that
``configs/parser_captions.yaml`` names; `tools/assets/annotate_spacy2.py` parses them.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import numpy as np
from omegaconf import DictConfig

from captioning.config.build import build_part
from captioning.data.roster import Roster
from captioning.runtime.files import write_lines

log = logging.getLogger(__name__)


def draw_captions(
    roster: Roster, *, number: int, split: str, rng: np.random.Generator
) -> Iterator[dict[str, str]]:
    """``number`` different captions of a roster, or all where it has fewer.

    Captions of one text count once, so that a held-out set is not full of "a man on a bench".
    """
    texts: dict[str, str] = {}
    for sample in roster.samples:
        texts.setdefault(" ".join(sample.caption.split()), sample.sample_id)
    captions = list(texts)
    for index in rng.permutation(len(captions))[:number]:
        caption = captions[index]
        yield {"id": f"{roster.name}/{texts[caption]}", "split": split, "caption": caption}


def gather(sources: DictConfig, *, seed: int) -> list[dict[str, str]]:
    """Records of all sources; a held-out caption that is also trained on is left out."""
    rng = np.random.default_rng(seed)
    records: list[dict[str, str]] = []
    for source in sources.values():
        roster = build_part(source["reader"])
        records += draw_captions(roster, number=source["number"], split=source["split"], rng=rng)
        log.info("%s: %d captions so far", roster.name, len(records))
    train_captions = {record["caption"].lower() for record in records if record["split"] == "train"}
    return [
        r for r in records if r["split"] == "train" or r["caption"].lower() not in train_captions
    ]


def write_captions(config: DictConfig) -> int:
    """Write the list of captions to ``config.out``; returns how many there are."""
    records = gather(config.sources, seed=config.seed)
    write_lines(config.out, (json.dumps(record, ensure_ascii=False) for record in records))
    return len(records)
