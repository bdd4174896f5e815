"""Words that may both be right of one thing are no rivals, by a table and by the captions."""

from __future__ import annotations

import numpy as np
import pytest

from captioning.text.judged_words import log_odds, odds_of_each
from captioning.text.word_rivals import are_rivals, exclusive, words_alike
from captioning.text.word_rows import closed_rows

ALIKE = """
    hat cap, hats caps, helmet hat, glasses sunglasses, coat jacket, sweater shirt, shirt shorts,
    woman girl, women girls, lady girl, guy man, guys boys, man boy, young old, bike bicycle,
    motorcycle bike, car truck, canoe boat, bird duck, puppy dog, sofa couch, couch chair,
    table desk, road street, street sidewalk, lake ocean, beach ocean, field park, snow ice,
    mud dirt, tree bush, wall fence, football soccer, red orange, orange brown, yellow brown,
    gray black, tan brown, blue black, pink red, white yellow, cup bottle, head hand
"""
RIVALS = """
    dog cat, dogs horses, bear dog, cow sheep, man woman, boys girls, man girl, boy woman, his her,
    two three, four three, red blue, black white, green red, snowboard skateboard, boat sled,
    scooter skateboard, tennis baseball, beach street, snow sand, frisbee ball, guitar violin,
    male female
"""


def pairs(text: str) -> list[tuple[str, str]]:
    return [(a, b) for a, b in (pair.split() for pair in text.split(","))]


@pytest.mark.parametrize(("first", "second"), pairs(ALIKE))
def test_what_may_be_right_of_one_thing_is_no_rival(first, second):
    assert not are_rivals(closed_rows(), first, second)
    assert not are_rivals(closed_rows(), second, first)


@pytest.mark.parametrize(("first", "second"), pairs(RIVALS))
def test_what_excludes_each_other_is(first, second):
    assert are_rivals(closed_rows(), first, second)
    assert second not in words_alike(closed_rows(), first)


def of(rivals: np.ndarray, first: str, second: str) -> bool:
    """Whether two words of one form are rivals in the array."""
    table = closed_rows()
    (row, one), (same, other) = (table._places[word] for word in (first, second))
    assert row == same
    return bool(rivals[row, one, other])


def captions_of_photos(*, faults: float) -> tuple[list[str], list[int]]:
    """Photos of a sheep that captions call goat as well, and of other animals; some are wrong."""
    rng = np.random.default_rng(0)
    animals = ("dog", "cat", "horse", "cow", "bird", "lion")
    captions, photos = [], []
    for photo in range(400):
        right = animals[photo % len(animals)] if photo % 4 else ("sheep", "goat")
        for _ in range(5):
            word = right if isinstance(right, str) else right[rng.integers(2)]
            if rng.random() < faults:
                word = animals[rng.integers(len(animals))]
            captions.append(f"a {word} stands there")
            photos.append(photo)
    return captions, photos


def test_words_that_captions_use_for_each_other_are_no_rivals():
    assert of(exclusive(closed_rows()), "sheep", "goat")
    rivals = exclusive(closed_rows(), *captions_of_photos(faults=0.0))
    assert not of(rivals, "sheep", "goat")
    assert not of(rivals, "goat", "sheep")
    assert of(rivals, "dog", "cat")
    assert not rivals[:, range(rivals.shape[1]), range(rivals.shape[1])].any()


def test_faults_do_not_make_all_words_alike():
    rivals = exclusive(closed_rows(), *captions_of_photos(faults=0.4))
    assert of(rivals, "dog", "cat")
    assert of(rivals, "horse", "bird")
    assert not of(rivals, "sheep", "goat")


def test_words_alike_count_for_the_written_one():
    log_probs = np.log([[0.1, 0.6, 0.3], [0.1, 0.6, 0.3]])
    rivals = np.ones((2, 3, 3), dtype=bool) & ~np.eye(3, dtype=bool)
    rivals[0, 0, 1] = rivals[0, 1, 0] = False
    odds, best = log_odds(log_probs, np.array([0, 0]), rivals)
    assert best.tolist() == [2, 1]
    assert odds == pytest.approx(np.log([0.3 / 0.7, 0.6 / 0.1]))
    each = odds_of_each(log_probs, rivals)
    assert each[0] == pytest.approx(np.log([0.3 / 0.7, 0.3 / 0.7, 0.6 / 0.3]))
    rivals[1] = False
    assert log_odds(log_probs, np.array([0, 0]), rivals)[0][1] == -np.inf
