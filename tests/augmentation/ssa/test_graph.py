"""Graphs: notation, agreement, clustering, verbs."""

from __future__ import annotations

import numpy as np
import pytest

from augmentation.ssa.graph import Edge, Graph
from augmentation.ssa.merging import distances, merge_order, smatch, without_cycles
from augmentation.ssa.penman import read_penman, write_penman
from captioning.text.inflection import ing, participle, third_person

RIDE = "(r / ride-01 :ARG0 (m / man :mod (y / young)) :ARG1 (b / bike :ARG1-of (r2 / red-02)))"


def test_notation_goes_there_and_back():
    text = '(a / and :op1 (s / see-01 :ARG0 (i / i) :polarity - :quant 2 :name "x y") :op2 i)'
    graph = read_penman(text)
    assert smatch(graph, read_penman(write_penman(graph))).f1 == 1
    assert [edge.role for edge in graph.into["i"]] == ["ARG0", "op2"]


def test_alignments_are_read():
    graph = read_penman("(d / dog~e.3 :quant~e.1 2~e.1)")
    assert graph.nodes["d"].names[0].token == 3
    assert write_penman(graph) == "(d / dog :quant 2)"


@pytest.mark.parametrize(
    "text", ["", "dog", "(d dog)", "(d / dog", "(d / dog :ARG0)", "(d / dog x)"]
)
def test_broken_notation_is_refused(text: str):
    with pytest.raises(ValueError, match="invalid PENMAN notation"):
        read_penman(text)


def test_agreement_of_equal_and_of_different_graphs():
    first = read_penman(RIDE)
    assert smatch(first, first).f1 == 1
    second = read_penman("(r / ride-01 :ARG0 (w / woman) :ARG1 (b / bike))")
    # common: two labels, the root, two roles
    assert smatch(first, second).common == smatch(second, first).common == 5
    assert smatch(first, read_penman("(c / cat)")).common == 0


def test_the_match_is_the_best_of_all():
    """Variables of one label are told apart by their relations alone."""
    first = read_penman("(a / x :p (b / x :q (c / x :r (d / x))))")
    second = read_penman("(d / x :r-of (c / x :q-of (b / x :p-of (a / x))))")
    assert smatch(first, second).common == 7  # all but the root


def test_the_closest_are_merged_first():
    graphs = [read_penman(text) for text in ("(c / cat)", RIDE, RIDE.replace("man", "boy"))]
    assert merge_order(distances(graphs)) == [(1, 2), (0, 1)]
    distance = np.array([[0, 4, 2], [4, 0, 9], [2, 9, 0.0]])
    assert merge_order(distance) == [(0, 2), (0, 1)]


def test_a_cycle_is_cut_where_the_fewest_captions_say_it():
    nodes = read_penman("(a / x :r (b / y))").nodes
    often = Edge("a", "r", "b", captions=frozenset((0, 1)))
    graph = Graph(nodes, (Edge("b", "s", "a"), often), "a")
    assert without_cycles(graph).edges == (often,)


def test_edges_to_nowhere_are_refused():
    with pytest.raises(ValueError, match="edges name missing nodes"):
        Graph(read_penman("(a / x)").nodes, (Edge("a", "r", "z"),), "a")


@pytest.mark.parametrize(
    ("verb", "forms"),
    [
        ("ride", "rides riding ridden"),
        ("sit", "sits sitting sat"),
        ("carry", "carries carrying carried"),
        ("lie", "lies lying lain"),
        ("watch", "watches watching watched"),
        ("play", "plays playing played"),
        ("open", "opens opening opened"),
        ("take off", "takes off/taking off/taken off"),
        ("quit", "quits quitting quit"),
        ("picnic", "picnics picnicking picnicked"),
        ("equip", "equips equipping equipped"),
        ("water-ski", "water-skis water-skiing water-skied"),
        ("belly-flop", "belly-flops belly-flopping belly-flopped"),
    ],
)
def test_forms_of_verbs(verb: str, forms: str):
    written = [third_person(verb), ing(verb), participle(verb)]
    assert written == forms.split("/" if "/" in forms else None)


def test_irregular_participles():
    participles = """
        found stolen beaten known felt heard flung slung strung risen crept sworn clung swung spun
        dug stuck struck hung lain laid sat torn worn woven wound bent sprung stung wept sewn sawn
    """
    verbs = """
        find steal beat know feel hear fling sling string rise creep swear cling swing spin
        dig stick strike hang lie lay sit tear wear weave wind bend spring sting weep sew saw
    """
    assert [participle(verb) for verb in verbs.split()] == participles.split()
    assert participle("lean") == "leaned"
