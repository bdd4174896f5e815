"""Captions of COCO Entities' released file, from the reader to new captions."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from augmentation.ssa.amr_parser import read_words
from augmentation.ssa.dependency_parse import parsed_words
from augmentation.ssa.filters import Rules
from augmentation.ssa.graph import Graph
from augmentation.ssa.merging import Merging
from augmentation.ssa.method import Ssa, ground
from augmentation.ssa.written_captions import Caption, phrases_of
from captioning.data.readers.coco_entities import read_coco_entities
from captioning.data.roster import Roster
from captioning.text.parser import build_caption_parser
from captioning.text.word_tables import build_token_table

HORSE, WOMAN = [10, 5, 90, 80], [30, 1, 60, 50]
DETECTED = {"woman": [[9, WOMAN]], "lady": [[9, WOMAN]], "horse": [[0, HORSE]]}
# Words with their class; "_": a noun chunk that nothing was detected for.
CAPTIONS = (
    "a/woman woman/woman in sunglasses/_ riding a/horse brown/horse horse/horse",
    "a/woman woman/woman is riding a/horse horse/horse on the/_ grass/_",
    "a/horse horse/horse near a/_ fence/_",
)


def entry(marked: str) -> tuple[str, dict]:
    words, classes = zip(*(word.partition("/")[::2] for word in marked.split(" ")), strict=True)
    chunks: dict[str, list[str]] = {}
    for word, label in zip(words, classes, strict=True):
        if label not in ("", "_"):
            chunks.setdefault(label, []).append(word)
    return " ".join(words), {
        "det_sequences": [label or None for label in classes],
        "noun_chunks": [[" ".join(chunk), label] for label, chunk in chunks.items()],
        "detections": {label: DETECTED[label] for label in chunks},
        "split": "train",
    }


def read(folder: Path, *captions: str) -> Roster:
    Image.new("RGB", (100, 100)).save(folder / "000000000007.jpg")
    path = folder / "coco_entities_release.json"
    path.write_text(json.dumps({"7": dict(map(entry, captions))}))
    return read_coco_entities(name="c/train", annotations=path, image_folder=folder, split="train")


@pytest.fixture
def roster(tmp_path: Path) -> Roster:
    return read(tmp_path, *CAPTIONS)


def merged_graph(roster: Roster) -> Graph:
    parser = build_caption_parser(num_processes=1)
    graphs: list[Graph] = []
    for sample in roster.samples:
        words = parsed_words(sample.caption, parser.parse([sample.caption])[0])
        graphs.append(ground(read_words(words), words, sample.phrases, sample.regions))
    return Merging(similarity=lambda first, second: float(first == second)).merge_all(graphs)


def test_what_was_not_detected_is_not_one_thing(roster: Roster):
    merged = merged_graph(roster)
    named = [{name.concept for name in node.names} for node in merged.nodes.values()]
    for noun in ("woman", "horse", "sunglasses", "grass", "fence"):
        assert [names for names in named if noun in names] == [{noun}]


def test_a_box_of_two_classes_is_one_thing_with_both_names(tmp_path: Path):
    """The first criterion of section 4: "a male" and "a person" of the same boxes are merged."""
    roster = read(
        tmp_path,
        "a/woman woman/woman is riding a/horse horse/horse",
        "a/lady lady/lady is petting a/horse horse/horse",
    )
    assert [region.label for region in roster.samples[0].regions] == ["woman", "horse", "lady"]
    nodes = merged_graph(roster).nodes.values()
    (both,) = (n for n in nodes if {"woman", "lady"} & {name.concept for name in n.names})
    assert {name.concept for name in both.names} == {"woman", "lady"}
    assert both.regions == {0}
    for name, region in (("woman", 0), ("lady", 2)):  # its own class, of the same box
        only = next(replace(both, names=(n,)) for n in both.names if n.concept == name)
        caption = Caption(f"A {name} rides.", ((2, name, "w"),))
        (phrase,) = phrases_of(caption, Graph({"w": only}, (), "w"), roster.samples[0].regions)
        assert phrase.regions == (region,)


def test_new_captions_have_the_boxes_of_the_classes(roster: Roster):
    method = Ssa(
        parser=build_caption_parser(num_processes=1),
        vectors=build_token_table(),
        rules=Rules(min_well_formedness=0.0),
    )
    (result,) = method.captions(roster)
    texts = {caption.text for caption in result.captions}
    assert texts & {"A woman rides a horse.", "A woman is riding a horse."}
    assert not any(word in text for text in texts for word in ("grass", "fence", "sunglasses"))
    regions = {region.label: number for number, region in enumerate(roster.samples[0].regions)}
    for caption in result.captions:
        for phrase in caption.phrases:
            assert phrase.regions == (regions[phrase.text.split(" ")[-1]],)
