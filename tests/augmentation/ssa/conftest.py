"""Photos with captions, the method on them, and graphs by other models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from PIL import Image

from augmentation.ssa.amr_models import AbstractGraphParser, AbstractGraphWriter
from augmentation.ssa.amr_parser import RuleParser
from augmentation.ssa.filters import Rules
from augmentation.ssa.graph import Graph
from augmentation.ssa.method import Ssa
from augmentation.ssa.penman import read_penman, write_penman
from captioning.data.roster import Roster, build_roster
from captioning.text.parser import build_caption_parser
from captioning.text.word_tables import build_token_table
from captioning.types import Phrase, Region, Sample

BOXES = {"boy": (0, 0, 20, 40), "hat": (5, 0, 10, 5), "horse": (10, 20, 60, 60)}
CAPTIONS = ("A boy in a red hat rides a brown horse.", "A boy rides a horse on a beach.")


@pytest.fixture
def roster(tmp_path: Path) -> Roster:
    samples = []
    for number in range(3):
        path = tmp_path / f"{number}.png"
        Image.new("RGB", (100, 100), (number, 0, 0)).save(path)
        for key, caption in enumerate(CAPTIONS):
            phrases = tuple(
                Phrase(start=caption.index(word), text=word, chain_id=word, regions=(region,))
                for region, word in enumerate(BOXES)
                if word in caption
            )
            regions = tuple(Region(box=box, label=word) for word, box in BOXES.items())
            samples.append(
                Sample(row=0, sample_id=f"{number}#{key}", image_id=str(number), image_path=path,
                       caption=caption, regions=regions, phrases=phrases)
            )  # fmt: skip
    return build_roster("toy/train", samples)


def ssa(kind: type[Ssa] = Ssa, **settings: object) -> Ssa:
    rules = Rules(min_well_formedness=0.0)
    parser, vectors = build_caption_parser(num_processes=1), build_token_table()
    return kind(parser=parser, vectors=vectors, rules=rules, **settings)


class Known(AbstractGraphParser, AbstractGraphWriter):
    """Gives the graphs of the rules without their words; says some of what it is asked for."""

    def graphs(self, captions: Sequence[str]) -> list[Graph | None]:
        parsed = RuleParser(parser=build_caption_parser(num_processes=1)).parse(captions)
        bare = [read_penman(write_penman(graph)) for graph in parsed]
        return [None if number == 0 else graph for number, graph in enumerate(bare)]

    def sentences(self, graphs: Sequence[Graph]) -> list[str]:
        return [_said(write_penman(graph)) for graph in graphs]


def _said(graph: str) -> str:
    if "beach" in graph:
        return ""
    return "a cat rides a horse" if "hat" in graph else "a boy rides a horse"
