"""Captions with "not" or "no": no new caption of them says the opposite."""

from __future__ import annotations

import numpy as np
import pytest

from augmentation.ssa.amr_parser import RuleParser, loses_negation, read_words
from augmentation.ssa.dependency_parse import parsed_words
from augmentation.ssa.event_sampling import LeafSampler, Sampler
from augmentation.ssa.method import subject_of
from augmentation.ssa.penman import read_penman
from augmentation.ssa.realiser import STYLES, Realiser
from augmentation.ssa.word_usage import NounForms
from augmentation.ssa.written_captions import caption_of
from captioning.text.parser import build_caption_parser


@pytest.fixture(scope="module")
def parser() -> RuleParser:
    return RuleParser(parser=build_caption_parser(num_processes=1))


def new_captions(parser: RuleParser, caption: str) -> set[str]:
    [graph] = parser.parse([caption])
    assert graph is not None
    texts = set()
    for sampler in (Sampler, LeafSampler):
        for seed in range(4):
            for sample in sampler(graph, np.random.default_rng(seed)).samples():
                for style in STYLES:
                    realiser = Realiser(graph=sample, style=style, nouns=NounForms([graph]))
                    texts.add(caption_of(realiser.pieces()).text)
    return texts


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        ("The dog is not brown.", "The dog is not brown."),
        ("The dog is not on a leash.", "The dog is not on a leash."),
        ("A boy is not in the water.", "A boy is not in the water."),
        ("A man with no shirt is running on the beach.", "A man has no shirt."),
        ("A man wearing no shirt stands on a beach.", "A man wears no shirt."),
        ("The man is not in a red shirt.", "The man does not wear a red shirt."),
        ("No one is riding the horse.", "No one is riding the horse."),
        (
            "A man stands while not looking at the dog.",
            "A man stands while not looking at the dog.",
        ),
    ],
)
def test_not_and_no_stay(parser: RuleParser, caption: str, expected: str):
    texts = new_captions(parser, caption)
    assert expected in texts
    claims = ("brown", "on a leash", "in the water", "shirt", "riding", "looking")
    for text in texts:
        if any(claim in text for claim in claims) and text != "A shirt is red.":
            assert {"not", "no"} & set(text.lower().strip(".").split()), text


def test_either_of_two_is_not(parser: RuleParser):
    texts = new_captions(parser, "The dog is not brown or black.")
    assert texts == {"The dog is not brown.", "The dog is not black."}


def test_clothes_that_nobody_has_are_no_description():
    graph = read_penman(
        "(r / ride-01 :ARG0 (m / man :ARG0-of (w / wear-01 :polarity - :ARG1 (s / shirt)) "
        ":ARG0-of (h / have-03 :polarity - :ARG1 (b / bag))) :ARG1 (h2 / horse))"
    )
    pieces = Realiser(graph=graph, style="simple", nouns=NounForms()).pieces()
    assert caption_of(pieces).text == "A man not wearing a shirt without a bag rides a horse."


@pytest.mark.parametrize(
    "text",
    [
        "(r / run-02 :ARG0 (a / and :polarity - :op1 (m / man) :op2 (d / dog)))",
        "(r / run-02 :ARG0 (d / dog :polarity - :poss (m / man)))",
    ],
)
def test_what_no_word_denies_is_refused(text: str):
    with pytest.raises(ValueError, match="negated list or possession"):
        Realiser(graph=read_penman(text), style="simple", nouns=NounForms()).pieces()


def test_nobody_is_joined_with_other_events():
    text = "(c / chase-01 :ARG0 (d / dog) :ARG1 (b / ball))"
    assert subject_of(read_penman(text)) == "d"
    assert subject_of(read_penman(text.replace("dog", "dog :polarity -"))) == ""


@pytest.mark.parametrize(
    ("caption", "lost"),
    [
        ("A boy not in the water eats a sandwich.", True),
        ("The dog is not brown and white.", True),
        ("A boy in the water eats a sandwich.", False),
        ("The dog is not brown.", False),
    ],
)
def test_a_graph_without_the_not_of_its_caption_is_known(
    parser: RuleParser, caption: str, lost: bool
):
    words = parsed_words(caption, parser.parser.parse([caption])[0])
    graph = read_words(words)
    assert graph is not None
    assert loses_negation(graph, words) == lost
