"""Possessives and articles."""

from __future__ import annotations

import pytest

from augmentation.regions.inflection import indefinite_article, possessive_mark


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
