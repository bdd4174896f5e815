"""Grounding, merging, sampling and saying of a photo's captions."""

from __future__ import annotations

import numpy as np
import pytest

from augmentation.ssa.amr_parser import read_words
from augmentation.ssa.dependency_parse import parsed_words
from augmentation.ssa.event_sampling import Sampler
from augmentation.ssa.graph import MULTI_SENTENCE, Graph
from augmentation.ssa.merging import Merging, smatch
from augmentation.ssa.method import ground
from augmentation.ssa.penman import read_penman, write_penman
from augmentation.ssa.realiser import STYLES, Realiser
from augmentation.ssa.word_usage import NounForms
from augmentation.ssa.written_captions import caption_of
from captioning.text.parser import SpacyParser, build_caption_parser
from captioning.types import Phrase, Region

SAME = {frozenset(("jump", "leap")): 0.8, frozenset(("boy", "kid")): 0.6}


def alike(first: str, second: str) -> float:
    return 1.0 if first == second else SAME.get(frozenset((first, second)), 0.0)


MERGING = Merging(similarity=alike)


@pytest.fixture(scope="module")
def parser() -> SpacyParser:
    return build_caption_parser(num_processes=1)


def grounded(parser: SpacyParser, caption: str, **boxes: int) -> Graph:
    """The graph of a caption; ``dog=3`` grounds "dog" in region 3."""
    words = parsed_words(caption, parser.parse([caption])[0])
    phrases = [
        Phrase(start=caption.index(word), text=word, chain_id=str(box), regions=(box,))
        for word, box in boxes.items()
    ]
    regions = [Region(box=(n, 0, n + 1, 1), label="thing") for n in range(10)]
    return ground(read_words(words), words, phrases, regions)


def sentence(graph: Graph, style: str = "progressive") -> str:
    return caption_of(Realiser(graph=graph, style=style, nouns=NounForms()).pieces()).text


def variables(graph: Graph, concept: str) -> list[str]:
    return [v for v, node in graph.nodes.items() if concept in {n.concept for n in node.names}]


def test_boxes_are_those_of_the_heads(parser: SpacyParser):
    caption = "A young boy with a red ball runs."
    graph = grounded(parser, caption, **{"A young boy": 2, "a red ball": 5})
    boxes = {node.concept: node.regions for node in graph.nodes.values() if node.regions}
    assert boxes == {"boy": {2}, "ball": {5}}


@pytest.mark.parametrize("ending", [" in a park.", " stands in a park."])
def test_a_phrase_at_the_root_grounds_its_head(parser: SpacyParser, ending: str):
    graph = grounded(parser, "A group of people" + ending, **{"A group of people": 1})
    assert {node.concept for node in graph.nodes.values() if node.regions} == {"group"}


def test_a_box_of_both_is_that_of_and(parser: SpacyParser):
    caption = "Men and women dance."
    graph = grounded(parser, caption, **{"Men and women": 1})
    [joint] = variables(graph, "and")
    assert graph.nodes[joint].regions == {1}
    assert not graph.nodes[variables(graph, "man")[0]].regions


def test_things_of_one_box_are_one_with_both_names(parser: SpacyParser):
    first = grounded(parser, "A boy jumps over a fence.", boy=0, fence=1)
    second = grounded(parser, "The kid is leaping over a fence.", kid=0, fence=1)
    merged = MERGING.merge_all([first, second])
    [boy] = variables(merged, "boy")
    assert variables(merged, "kid") == [boy]
    assert {name.word for name in merged.nodes[boy].names} == {"boy", "kid"}


def test_things_of_other_boxes_stay_apart(parser: SpacyParser):
    first = grounded(parser, "A dog runs.", dog=0)
    second = grounded(parser, "A dog runs.", dog=1)
    assert len(variables(MERGING.merge_all([first, second]), "dog")) == 2
    assert len(variables(MERGING.merge_all([first, second]), "run-02")) == 2


def test_events_with_the_same_arguments_are_one(parser: SpacyParser):
    first = grounded(parser, "A boy rides a horse.", boy=0, horse=1)
    second = grounded(parser, "A boy rides a horse on a beach.", boy=0, horse=1, beach=2)
    merged = MERGING.merge_all([first, second])
    [ride] = variables(merged, "ride-01")
    assert {edge.role for edge in merged.out[ride]} == {"ARG0", "ARG1", "location"}
    other = grounded(parser, "A boy rides a horse.", boy=0, horse=3)
    assert len(variables(MERGING.merge_all([first, other]), "ride-01")) == 2


def test_captions_without_anything_in_common_stand_side_by_side(parser: SpacyParser):
    graphs = [grounded(parser, text) for text in ("A dog runs.", "Rain falls.", "A cat sleeps.")]
    merged = MERGING.merge_all(graphs)
    assert merged.nodes[merged.root].concept == MULTI_SENTENCE
    assert len(merged.out[merged.root]) == 3


@pytest.mark.parametrize("caption", ["747.", "2", "A 4-wheeler in the mud."])
def test_a_number_at_the_root_is_merged_as_a_thing(parser: SpacyParser, caption: str):
    number = grounded(parser, caption)
    assert smatch(number, number).f1 == 1
    assert smatch(read_penman(write_penman(number)), number).f1 == 1
    merged = MERGING.merge_all([number, grounded(parser, "A dog runs."), number])
    assert variables(merged, "run-02")
    assert number.nodes[number.root].concept in {n.concept for n in merged.nodes.values()}


def test_a_thing_that_a_number_names_is_one_with_its_other_name(parser: SpacyParser):
    first = grounded(parser, "A man looks at a 747.", **{"747": 0})
    second = grounded(parser, "A plane flies.", plane=0)
    merged = MERGING.merge_all([first, second])
    assert variables(merged, "747") == variables(merged, "plane")


def test_pairs_without_anything_in_common_keep_all_their_sentences(parser: SpacyParser):
    # two dogs, two cats: each pair has equal graphs and is merged first, and no boxes are shared
    texts = {0: ("A dog runs.", "dog"), 1: ("A dog runs.", "dog"),
             2: ("A cat sleeps.", "cat"), 3: ("A cat sleeps.", "cat")}  # fmt: skip
    graphs = [grounded(parser, text, **{word: box}) for box, (text, word) in texts.items()]
    merged = MERGING.merge_all(graphs)
    assert not any(edge.source == edge.target for edge in merged.edges)
    tops = variables(merged, MULTI_SENTENCE)
    assert [[e.role for e in merged.out[top]] for top in tops] == [
        ["snt1", "snt2", "snt3"],
        ["snt1", "snt2"],
    ]
    assert merged.reachable(merged.root) == set(merged.nodes)


def test_captions_that_close_a_circle_are_one_graph_without_it(parser: SpacyParser):
    box = {"boy": 0, "dog": 1, "cat": 2}
    texts = {"A boy beside a dog.": ("boy", "dog"), "A dog near a cat.": ("dog", "cat"),
             "A cat in front of a boy.": ("cat", "boy")}  # fmt: skip
    graphs = [grounded(parser, text, **{w: box[w] for w in words}) for text, words in texts.items()]
    merged = MERGING.merge_all(graphs)
    assert (
        len(variables(merged, "boy"))
        == len(variables(merged, "dog"))
        == len(variables(merged, "cat"))
        == 1
    )
    assert len(merged.edges) == sum(len(graph.edges) for graph in graphs) - 1
    remaining = dict(merged.nodes)
    while ends := [
        v for v in remaining if not any(edge.target in remaining for edge in merged.out[v])
    ]:
        for variable in ends:
            del remaining[variable]
    assert not remaining  # what leads nowhere is taken away again and again: no circle is left


def test_no_graphs_are_refused():
    with pytest.raises(ValueError, match="merging needs at least one graph"):
        MERGING.merge_all([])


def test_samples_say_what_somebody_has_said(parser: SpacyParser):
    first = grounded(parser, "A young boy rides a horse.", boy=0, horse=1)
    second = grounded(parser, "A kid in a hat rides a brown horse on a beach.", kid=0, horse=1)
    sampler = Sampler(MERGING.merge_all([first, second]), np.random.default_rng(0))
    sentences = {sentence(graph, "simple") for _ in range(30) for graph in sampler.samples()}
    assert "A young boy rides a brown horse." in sentences
    assert "A kid in a hat rides a horse on a beach." in sentences
    assert "A kid wears a hat." in sentences
    assert not any("young kid" in text for text in sentences)  # no caption calls a kid young
    again = Sampler(MERGING.merge_all([first, second]), np.random.default_rng(0))
    assert {sentence(graph, "simple") for _ in range(30) for graph in again.samples()} == sentences


@pytest.mark.parametrize(
    ("caption", "styles"),
    [
        ("A man rides a horse.", ["A man is riding a horse.", "A man rides a horse.",
                                  "A man riding a horse."]),
        ("Two women sit.", ["Two women are sitting.", "Two women sit.", "Two women sitting."]),
        ("An old man holds his hat.", ["An old man is holding his hat.",
                                       "An old man holds his hat.", "An old man holding his hat."]),
        ("A person hang-glides.", ["A person is hang-gliding.", "A person hang-glides.",
                                   "A person hang-gliding."]),
        ("A plane takes off.", ["A plane is taking off.", "A plane takes off.",
                                "A plane taking off."]),
    ],
)  # fmt: skip
def test_a_graph_is_said_in_three_ways(parser: SpacyParser, caption: str, styles: list[str]):
    assert [sentence(grounded(parser, caption), style) for style in STYLES] == styles


@pytest.mark.parametrize(
    "caption",
    [
        "A black and white dog is jumping over a log.",
        "A woman is walking down a street in front of a store.",
        "A boy is throwing a ball to a dog.",
        "A group of people is standing behind a truck.",
        "The dog is brown.",
        "A building is surrounded by trees.",
    ],
)
def test_captions_survive_reading_and_saying(parser: SpacyParser, caption: str):
    text = sentence(grounded(parser, caption))
    rewritten = {"A building is surrounded by trees.": "Trees surround a building."}
    assert text == rewritten.get(caption, caption)


def test_mentions_are_where_the_text_has_them(parser: SpacyParser):
    graph = grounded(parser, "A boy rides a brown horse.", boy=0, horse=1)
    caption = caption_of(Realiser(graph=graph, style="simple", nouns=NounForms()).pieces())
    assert [text for _, text, _ in caption.mentions] == ["A boy", "a brown horse"]
    for start, text, _ in caption.mentions:
        assert caption.text[start : start + len(text)] == text


@pytest.mark.parametrize(
    "caption",
    [
        "A boy wears dark clothes and sunglasses.",  # these have no singular
        "Two gangas are running.",  # the tagger takes them for one
    ],
)
def test_plurals_are_as_the_captions_have_them(parser: SpacyParser, caption: str):
    graph = grounded(parser, caption)
    forms = NounForms([graph])
    assert caption_of(Realiser(graph=graph, style="progressive", nouns=forms).pieces()).text == (
        caption
    )


def test_most_captions_decide_on_a_plural(parser: SpacyParser):
    graphs = [
        grounded(parser, f"Two {word} are in the water.") for word in ("fish", "fishes", "fish")
    ]
    assert NounForms(graphs).plural("fish") == "fish"
    assert NounForms(graphs[1:2]).plural("fish") == "fishes"
    assert NounForms(graphs[1:2]).plural("fishes") == "fishes"
    assert NounForms().plural("ostrich") == "ostriches"


def test_what_belongs_to_somebody_not_named_before(parser: SpacyParser):
    for caption in ("A catcher is holding his glove.", "Two dirtbikers are riding their bikes."):
        assert sentence(grounded(parser, caption)) == caption
    with pytest.raises(ValueError, match="a pronoun has no known referent"):
        sentence(grounded(parser, "He is jumping over a hurdle."))
