"""Training of the caption parser on few captions: that it learns, what it writes, bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from omegaconf import DictConfig

from captioning.config.compose import compose_config
from captioning.runtime.files import read_json
from captioning.text.parser import build_spacy_parser
from tests.task_calls import call
from tools.assets.caption_parser import (
    Network,
    build_pipeline,
    to_example,
    train_caption_parser,
    with_every_tag,
)
from tools.assets.parser_accuracy import read_parses

SMALL = [
    "network.width=32",
    "network.depth=2",
    "network.rows=[500,100,200,100]",
    "network.min_action_freq=2",
    "training.batch_size=4",
    "training.lr=0.01",
]


@pytest.fixture
def gold(repository: Path) -> Path:
    return repository / "tests" / "captioning" / "text" / "gold_captions.jsonl"


def configured(repository: Path, *overrides: str) -> DictConfig:
    return compose_config("caption_parser", [*SMALL, *overrides])


@pytest.fixture
def parses(gold: Path, tmp_path: Path) -> Path:
    """The captions checked by hand: most to train on, some held out."""
    records = [json.loads(line) for line in gold.read_text(encoding="utf-8").splitlines()]
    for number, record in enumerate(records):
        record["split"] = "coco_held_out" if number % 5 == 0 else "train"
    path = tmp_path / "parses.jsonl"
    path.write_text("\n".join(json.dumps(record) for record in records), encoding="utf-8")
    return path


@pytest.mark.slow
def test_it_learns_and_writes_a_pipeline_that_can_be_used(
    repository: Path, gold: Path, parses: Path, tmp_path: Path
) -> None:
    def train(name: str, num_epochs: int) -> dict:
        paths = [f"parses={parses}", f"gold={gold}", f"out={tmp_path / name}"]
        paths += ["held_out=[coco_held_out]", f"training.num_epochs={num_epochs}"]
        return call(train_caption_parser, configured(repository, *paths))

    cards = [train("once", 1), train("often", 12)]
    first, last = (card["accuracy"]["coco_held_out, teacher as it is"] for card in cards)
    assert last["tag"] > max(0.75, first["tag"])
    assert last["UAS"] > max(0.5, first["UAS"])
    assert cards[1]["captions"] == 80
    assert read_json(tmp_path / "often.json")["content_hash"] == cards[1]["content_hash"]
    assert not list(tmp_path.glob(".*.part"))
    parser = build_spacy_parser(name=str(tmp_path / "often"))
    assert [token.text for token in parser.parse(["A man riding a horse"])[0]][1] == "man"
    again = train("again", 1)
    assert again["accuracy"] == cards[0]["accuracy"]


def test_captions_are_written_in_other_ways(repository: Path, gold: Path) -> None:
    nlp = build_pipeline(Network(**configured(repository).network))
    parse = read_parses(gold)[1][1]
    example = to_example(nlp, parse, lower=True, stop=False)
    assert [token.text for token in example.x] == [token.text.lower() for token in parse[:-1]]
    assert [token.head.i for token in example.y] == [token.head for token in parse[:-1]]
    assert len(to_example(nlp, parse).y) == len(parse)


def test_the_network_is_shown_every_tag(gold: Path) -> None:
    parses = [parse for _, parse in read_parses(gold)]
    shown = with_every_tag(parses, min_parses=3)
    assert shown[:3] == parses[:3]
    assert len(shown) < 40
    tags = [{token.tag for parse in group for token in parse} for group in (shown, parses)]
    assert tags[0] == tags[1]


def test_parses_that_are_not_there_or_hold_none_to_train_on(
    repository: Path, gold: Path, tmp_path: Path
) -> None:
    with pytest.raises(
        FileNotFoundError,
        match=r"nothing.jsonl does not exist: docs/cards/caption_parser.md",
    ):
        call(train_caption_parser, configured(repository, f"parses={tmp_path / 'nothing.jsonl'}"))
    with pytest.raises(ValueError, match="has no lines with split=train"):
        call(train_caption_parser, configured(repository, f"parses={gold}"))
