"""Rows of words, and captions with another word of a row."""

from __future__ import annotations

from collections import Counter

import pytest

from captioning.text.row_tables import joined
from captioning.text.word_rows import (
    NEGATION,
    TOPICS,
    closed_rows,
    negation_rows,
    replace_word,
    row_words,
    same_thing,
    word_rows,
)


def test_rows_are_closed_and_a_word_stands_in_one_place():
    rows = word_rows()
    assert {row.topic for row in rows} == set(TOPICS)
    counts = Counter(word for row in rows for words in row.meanings for word in words)
    twice = {word for word, number in counts.items() if number > 1}
    # forms that are spelt alike
    assert twice <= {"sheep", "pants", "shorts", "jeans", "glasses", "sunglasses"}


def test_words_of_rows_are_found_with_their_places():
    found = list(row_words("Two men in BLUE jackets, running"))
    named = [(w.start, w.word, word_rows()[w.row].topic) for w in found]
    assert named == [
        (0, "Two", "number"),
        (4, "men", "people"),
        (11, "BLUE", "color"),
        (16, "jackets", "object"),
        (25, "running", "action"),
    ]
    jackets = found[3]
    assert word_rows()[jackets.row].meanings[jackets.meaning] == ("jackets",)
    assert ("shirts",) in word_rows()[jackets.row].meanings  # rivals in the same form
    assert not list(row_words("nothing here"))


def test_forms_and_synonyms_name_the_same_thing():
    assert {"running", "runs", "races"} <= same_thing()["run"]
    assert same_thing()["grey"] == {"gray", "grey"}


def test_negations_count_where_something_is_had():
    table = joined([closed_rows(), negation_rows()])
    found = list(table.words_of("A man with no hat, without a shirt, wearing a red cap: no dog"))
    named = [w.word for w in found if table.rows[w.row].topic == NEGATION]
    assert named == ["with", "no", "without", "a"]
    assert NEGATION not in TOPICS  # judged where it is asked for
    assert [w.word for w in row_words("with no hat")] == ["hat"]
    rivals = table.rows[found[1].row].meanings[found[1].meaning]
    assert rivals == ("with",)


def test_a_word_of_two_tables_belongs_to_the_first():
    table = joined([negation_rows(), closed_rows(), negation_rows()])
    (word,) = table.words_of("without")
    assert word.row == 0
    assert table.same["grey"] == {"gray", "grey"}
    assert table.content_hash != closed_rows().content_hash


@pytest.mark.parametrize(
    ("caption", "word", "alternative", "expected"),
    [
        ("a red ball", "red", "orange", "an orange ball"),
        ("An orange ball", "orange", "red", "A red ball"),
        ("An elephant", "elephant", "dog", "A dog"),
        ("Dogs run", "Dogs", "cats", "Cats run"),
        ("A MAN WALKS", "MAN", "woman", "A WOMAN WALKS"),
        ("holding a hat", "hat", "umbrella", "holding an umbrella"),
        ("in an office", "office", "uniform", "in a uniform"),
        ("spa red", "red", "orange", "spa orange"),
        ("wearing no orange hat", "no", "a", "wearing an orange hat"),
        ("wearing no red hat", "no", "a", "wearing a red hat"),
    ],
)
def test_capital_and_article_agree(caption, word, alternative, expected):
    assert replace_word(caption, caption.index(word), word, alternative) == expected


def test_another_word_at_the_place_is_refused():
    with pytest.raises(ValueError, match="have 'red' at character 3"):
        replace_word("a red ball", 3, "red", "blue")
