"""Captions to graphs: against graphs checked by hand, and MiniWorld's true ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from augmentation.ssa.amr_parser import RuleParser
from augmentation.ssa.graph import Graph
from augmentation.ssa.merging import Agreement, smatch
from augmentation.ssa.penman import read_penman, write_penman
from captioning.text.parser import build_caption_parser
from tests.augmentation.ssa.miniworld_truth import true_captions

CHECKED = Path(__file__).with_name("checked_graphs.txt")


@pytest.fixture(scope="module")
def parser() -> RuleParser:
    return RuleParser(parser=build_caption_parser(num_processes=1))


def score(parser: RuleParser, pairs: list[tuple[str, Graph]]) -> float:
    total = Agreement(0, 0, 0)
    for (_, truth), graph in zip(pairs, parser.parse([c for c, _ in pairs]), strict=True):
        total += smatch(truth, graph)
    return total.f1


def test_of_hundred_graphs_checked_by_hand(parser: RuleParser):
    blocks = [b for b in CHECKED.read_text().split("\n\n") if "::snt" in b]
    pairs = [(b.split("::snt ")[1].split("\n")[0], read_penman(b)) for b in blocks]
    assert len(pairs) == 100
    assert score(parser, pairs) >= 0.9


def test_of_true_graphs_of_miniworld(parser: RuleParser):
    pairs = list(true_captions(scenes=60))
    assert len(pairs) > 400
    assert score(parser, pairs) >= 0.9


@pytest.mark.parametrize(
    ("caption", "graph"),
    [
        (
            "Two dogs are running in front of a house.",
            "(r / run-02 :ARG0 (d / dog :quant 2) :location (i / in-front-of :op1 (h / house)))",
        ),
        (
            "A man in a red t-shirt holds his dog.",
            "(h / hold-01 :ARG0 (m / man :ARG0-of (w / wear-01 :ARG1 (t / t-shirt :ARG1-of "
            "(r / red-02)))) :ARG1 (d / dog :poss m))",
        ),
        ("There is a cat under a table.", "(c / cat :location (u / under :op1 (t / table)))"),
        ("A couple of boys run.", "(r / run-02 :ARG0 (b / boy :quant (c / couple)))"),
    ],
)
def test_what_a_caption_means(parser: RuleParser, caption: str, graph: str):
    [parsed] = parser.parse([caption])
    assert smatch(read_penman(graph), parsed).f1 == 1, write_penman(parsed)


@pytest.mark.parametrize(
    "caption", ["", "...", "Dog", "red", "a dog and " * 100, "A @ # dog http://x.y/z ☺ 犬", "with"]
)
def test_odd_captions_are_read_or_passed_over(parser: RuleParser, caption: str):
    [parsed] = parser.parse([caption])
    assert parsed is None or len(parsed.nodes) > 0


def test_nodes_know_their_words(parser: RuleParser):
    [parsed] = parser.parse(["A boy rides a horse."])
    at = {node.names[0].token: node.concept for node in parsed.nodes.values()}
    assert at == {1: "boy", 2: "ride-01", 4: "horse"}


def test_a_name_keeps_its_capital_within_a_sentence(parser: RuleParser):
    [parsed, first] = parser.parse(["A man walks in Paris.", "Paris has a tower."])
    assert {node.concept for node in parsed.nodes.values()} == {"man", "walk-01", "Paris"}
    assert "paris" in {node.concept for node in first.nodes.values()}
