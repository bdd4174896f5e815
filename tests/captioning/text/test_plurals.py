"""Plurals, there and back."""

from __future__ import annotations

import pytest

from captioning.text.object_words import COCO_OBJECTS, build_object_words
from captioning.text.plurals import pluralise


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
