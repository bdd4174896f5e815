"""Who does what in captions whose verbs the caption parser misreads."""

from __future__ import annotations

import pytest

from augmentation.ssa.amr_parser import RuleParser
from augmentation.ssa.dependency_parse import parsed_words
from augmentation.ssa.graph import Graph
from augmentation.ssa.merging import smatch
from augmentation.ssa.penman import read_penman, write_penman
from captioning.text.parser import build_caption_parser

REPAIRED = {
    # the subject hangs on the helping verb
    "Two girls are roller-skating down the road.": "(r / roller-skate-01 :ARG0 (g / girl :quant 2) "
    ":path (d / down :op1 (r2 / road)))",
    "A cowboy is bull-dogging a steer.": "(b / bull-dog-01 :ARG0 (c / cowboy) :ARG1 (s / steer))",
    "A man is passionately playing the cello in within a larger orchestra .": "(p / play-01 :ARG0 "
    "(m / man) :manner (p2 / passionately) :ARG1 (c / cello) :location (o / orchestra :mod "
    "(l / large)))",
    # "is" is taken for the verb, and the verb for a noun
    "A man is roller-skating down the road.": "(r / roller-skate-01 :ARG0 (m / man) "
    ":path (d / down :op1 (r2 / road)))",
    "A boy is rock-climbing on a cliff.": "(r / rock-climb-01 :ARG0 (b / boy) "
    ":location (c / cliff))",
    "Two men are wind-surfing in the ocean.": "(w / wind-surf-01 :ARG0 (m / man :quant 2) "
    ":location (o / ocean))",
    "A girl is hula hooping in a yard.": "(h / hula-hoop-01 :ARG0 (g / girl) "
    ":location (y / yard))",
    "A woman is cross-country skiing in the snow.": "(c / cross-country-ski-01 :ARG0 (w / woman) "
    ":location (s / snow))",
    "This person is rock climbing .": "(r / rock-climb-01 :ARG0 (p / person :mod (t / this)))",
    "A boy and a girl are not ice-skating.": "(i / ice-skate-01 :ARG0 (a / and :op1 (b / boy) "
    ":op2 (g / girl)) :polarity -)",
    "A man who is DJ-ing at a booth.": "(m / man :ARG0-of (d / dj-01 :location (b / booth)))",
    # who does it is taken for a kind of it
    "A girl roller-skating down the street.": "(g / girl :ARG0-of (r / roller-skate-01 :path "
    "(d / down :op1 (s / street))))",
    "A woman hula-hooping in a red shirt.": "(w / woman :ARG0-of (h / hula-hoop-01) :ARG0-of "
    "(w2 / wear-01 :ARG1 (s / shirt :ARG1-of (r / red-02))))",
    # a present that is taken for a past tense, and a verb that ends as one does
    "A man windsurfs in the ocean.": "(w / windsurf-01 :ARG0 (m / man) :location (o / ocean))",
    "Two boys sled down the hill .": "(s / sled-01 :ARG0 (b / boy :quant 2) :path (d / down "
    ":op1 (h / hill)))",
    # a way, not a particle of the verb
    "A man roller-skates down a ramp.": "(r / roller-skate-01 :ARG0 (m / man) :path (d / down "
    ":op1 (r2 / ramp)))",
}  # fmt: skip
UNCHANGED = {
    "The sport is rock climbing.": "climbing",
    "A baseball player is mid-swing.": "mid-swing",
    "The animal is a mountain-climbing goat.": "goat",
    "There is mountain-climbing here.": "mountain-climbing",
    "A child is holding something.": "hold-01",
    "A boy climbs a rock-climbing wall.": "climb-01",
}


@pytest.fixture(scope="module")
def parser() -> RuleParser:
    return RuleParser(parser=build_caption_parser(num_processes=1))


def root(graph: Graph) -> str:
    return graph.nodes[graph.root].concept


@pytest.mark.parametrize("caption", REPAIRED)
def test_verbs_find_who_does_them(parser: RuleParser, caption: str):
    [parsed] = parser.parse([caption])
    assert smatch(read_penman(REPAIRED[caption]), parsed).f1 == 1, write_penman(parsed)


@pytest.mark.parametrize("caption", UNCHANGED)
def test_nouns_stay_nouns(parser: RuleParser, caption: str):
    [parsed] = parser.parse([caption])
    assert root(parsed) == UNCHANGED[caption], write_penman(parsed)


def test_words_that_become_one_verb_keep_their_place(parser: RuleParser):
    caption = "A girl is hula hooping  in a yard."
    words = parsed_words(caption, parser.parser.parse([caption])[0])
    assert [token.text for token in words.tokens][3:5] == ["hula-hooping", "in"]
    single = " ".join(caption.split())
    assert [single[start:end] for start, end in words.spans[3:5]] == ["hula hooping", "in"]


def test_every_word_leads_to_a_root(parser: RuleParser):
    for caption in (*REPAIRED, *UNCHANGED):
        tokens = parsed_words(caption, parser.parser.parse([caption])[0]).tokens
        for start in range(len(tokens)):
            at, steps = start, 0
            while tokens[at].head != at:
                at, steps = tokens[at].head, steps + 1
                assert steps <= len(tokens), caption
