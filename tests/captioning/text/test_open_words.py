"""Rows of nouns, verbs and adjectives, made of captions."""

from __future__ import annotations

import numpy as np
import pytest

from captioning.text.open_words import MIN_COUNT, MOST_IN_ROW, open_rows, with_open_rows
from captioning.text.row_tables import RowTable
from captioning.text.word_rows import same_thing

PLACES = ("hill", "slope", "cliff")
CLOTHES = ("hoodie", "kilt", "robe")
POSES = ("leans", "poses", "waits")


def captions_of(num_photos: int = 60) -> tuple[list[str], list[int]]:
    """Three captions a photo; *child* and *kid* are said for each other."""
    rng = np.random.default_rng(0)
    captions, photos = [], []
    for photo in range(num_photos):
        place, clothes, pose = (row[rng.integers(3)] for row in (PLACES, CLOTHES, POSES))
        who = ["kid", "child", "kid", "child"] if photo % 4 else ["swimmer"] * 4
        for number in range(4):
            text = f"a {who[number]} in a red {clothes} {pose} on the {place}"
            captions.append(text if number else text + " with some odd" + "ity" * photo)
            photos.append(photo)
    return captions, photos


@pytest.fixture(scope="module")
def table() -> RowTable:
    return open_rows(*captions_of(), without=same_thing().keys())


def row_of(table: RowTable, word: str):
    return next(row for row in table.rows if any(word in words for words in row.meanings))


def test_words_of_like_places_share_a_row(table):
    for words, topic in ((PLACES, "noun"), (CLOTHES, "noun"), (POSES, "verb")):
        row = row_of(table, words[0])
        assert row.topic == topic
        assert {(word,) for word in words} <= set(row.meanings)
    assert row_of(table, "leans") is not row_of(table, "hill")
    (leans,) = table.words_of("Nobody Leans")
    assert (leans.start, table.rows[leans.row].topic) == (7, "verb")


def test_words_that_captions_of_a_photo_use_for_each_other_are_one_meaning(table):
    row = row_of(table, "kid")
    assert ("kid", "child") in row.meanings or ("child", "kid") in row.meanings
    assert ("swimmer",) in row.meanings  # said of other photos
    assert table.same["kid"] == {"kid", "child"}


def test_closed_and_rare_words_stand_in_no_row(table):
    words = {word for row in table.rows for meaning in row.meanings for word in meaning}
    assert not words & same_thing().keys()
    captions, _ = captions_of()
    counts = {word: sum(word in text.split() for text in captions) for word in words}
    assert min(counts.values()) >= MIN_COUNT
    assert all(sum(map(len, row.meanings)) <= MOST_IN_ROW for row in table.rows)
    assert table.words_of("a red oddity") is not None
    assert not list(table.words_of("a red oddity"))


def test_forms_of_a_word_name_the_same_thing():
    captions, photos = captions_of()
    more = [f"{n} old swimmers {('wait', 'lean')[n % 2]} on hills" for n in range(20)]
    table = open_rows([*captions, *more], [*photos, *range(100, 120)], without=())
    assert table.same["hill"] == {"hill", "hills"}
    assert table.same["wait"] == {"wait", "waits"}


def test_all_rows_together_and_the_same_seed_gives_the_same():
    data = captions_of()
    table = with_open_rows(*data, seed=3)
    assert table.content_hash == with_open_rows(*data, seed=3).content_hash
    assert {"color", "people", "noun", "verb"} <= set(table.topics)
    words = [word.word for word in table.words_of("a kid in a red kilt")]
    assert words == ["kid", "red", "kilt"]
    nothing = with_open_rows(["a thing"], [0])
    assert "noun" not in nothing.topics
