"""Draw captions for the caption parser's teacher: ``python -m tools.assets parser-captions``.

The command writes lines of ``{"id", "split", "caption"}`` to ``out``, drawn from the datasets in
``configs/parser_captions.yaml``; `tools/assets/annotate_spacy2.py` parses them.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from typing import TypedDict

import numpy as np

from captioning.config.build import build_part
from captioning.config.ranges import Name, PositiveInt, Seed
from captioning.data.roster import Roster
from captioning.runtime.files import write_lines
from captioning.training.settings import Part

log = logging.getLogger(__name__)


class Source(TypedDict):
    """Dataset, with the number of captions to draw for a split."""

    split: Name
    number: PositiveInt
    reader: Part


def draw_captions(
    roster: Roster, *, number: int, split: str, rng: np.random.Generator
) -> Iterator[dict[str, str]]:
    """Draw ``number`` different captions of a roster, or all if it has fewer.

    Equal captions count once, so that a held-out set is not full of "a man on a bench".
    """
    texts: dict[str, str] = {}
    for sample in roster.samples:
        texts.setdefault(" ".join(sample.caption.split()), sample.sample_id)
    captions = list(texts)
    for index in rng.permutation(len(captions))[:number]:
        caption = captions[index]
        yield {"id": f"{roster.name}/{texts[caption]}", "split": split, "caption": caption}


def gather(sources: Mapping[str, Source], *, seed: int) -> list[dict[str, str]]:
    """Gather records of all sources, without held-out captions that are also in training."""
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


def write_captions(*, sources: Mapping[str, Source], out: Name, seed: Seed = 0) -> int:
    """Write the list of captions to the file ``out``; return their number.

    Args:
        sources: datasets under any names.
        out: JSON Lines.
        seed: seed of the draw.
    """
    records = gather(sources, seed=seed)
    write_lines(out, (json.dumps(record, ensure_ascii=False) for record in records))
    return len(records)
