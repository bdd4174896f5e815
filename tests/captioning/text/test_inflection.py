"""Plurals, there and back; articles and possessives. Verbs: tests of ssa/test_graph.py."""

from __future__ import annotations

import pytest

from captioning.text.inflection import indefinite_article, pluralise, possessive_mark
from captioning.text.object_words import COCO_OBJECTS, build_object_words


@pytest.mark.parametrize(
    ("singular", "plural"),
    [
        ("man", "men"),
        ("snowman", "snowmen"),
        ("german", "germans"),
        ("child", "children"),
        ("person", "people"),
        ("salesperson", "salespeople"),
        ("sheep", "sheep"),
        ("bus", "buses"),
        ("fire hydrant", "fire hydrants"),
        ("hot dog", "hot dogs"),
        ("wine glass", "wine glasses"),
        ("knife", "knives"),
        ("scarf", "scarves"),
        ("bookshelf", "bookshelves"),
        ("cliff", "cliffs"),
        ("puppy", "puppies"),
        ("toy", "toys"),
        ("bench", "benches"),
        ("box", "boxes"),
        ("tomato", "tomatoes"),
        ("photo", "photos"),
        ("goose", "geese"),
        ("mongoose", "mongooses"),
        ("mouse", "mice"),
        ("scissors", "scissors"),
        ("pair of scissors", "pairs of scissors"),
        ("broccoli", "broccoli"),
        ("blue jeans", "blue jeans"),
        ("baseball glove", "baseball gloves"),
        ("cup of coffee", "cups of coffee"),
    ],
)
def test_plurals(singular: str, plural: str):
    assert pluralise(singular) == plural


def test_lemmas_lead_back_from_the_plurals_of_all_coco_words():
    lemma = build_object_words().lemma
    names = {name for line in COCO_OBJECTS for name in line.split(",")}
    # words that are plurals already, or whose plural English uses for something else
    unlike = {"people", "scissors", "cattle", "ski", "person", "die", "luggage"}
    wrong = {
        name: pluralise(name)
        for name in names - unlike
        if lemma(pluralise(name).split()[-1]) != name.split()[-1]
    }
    assert set(wrong) <= {"calf", "ox"}


@pytest.mark.parametrize(
    ("word", "article"),
    [
        ("dog", "a"),
        ("orange", "an"),
        ("umbrella", "an"),
        ("uniform", "a"),
        ("unicycle", "a"),
        ("uninterested", "an"),
        ("unidentified", "an"),
        ("used", "a"),
        ("hour", "an"),
        ("horse", "a"),
        ("one", "a"),
        ("european", "a"),
        ("SUV", "an"),
        ("suv", "an"),
        ("led-lit", "an"),
        ("ledge", "a"),
        ("TV", "a"),
        ("8-year-old", "an"),
        ("80s", "an"),
        ("11th", "an"),
        ("18", "an"),
        ("180", "a"),
        ("1-year-old", "a"),
        ("Asian", "an"),
        ("", "a"),
    ],
)
def test_articles_go_by_sound(word: str, article: str):
    assert indefinite_article(word) == article


def test_possessives_of_plurals_with_s_have_the_apostrophe_alone():
    assert possessive_mark("dogs", plural=True) == "'"
    assert possessive_mark("men", plural=True) == "'s"
    assert possessive_mark("bus", plural=False) == "'s"
