"""What other captions say of a doubted word, and which sentences bear another one."""

from __future__ import annotations

import pytest

from captioning.text.word_rows import row_words, word_rows
from curation.base import WordDoubt
from curation.check.mend import not_fitting
from curation.check.support import NOTHING, Support, support_of
from curation.check.word_checks import THRESHOLD, chance_of


def doubt_of(caption: str, word: str, new: str) -> WordDoubt:
    """Of the first such word."""
    found = next(w for w in row_words(caption) if w.word == word)
    topic = word_rows()[found.row].topic
    known = {"row": 0, "log_odds": 3.0, "probability": 0.9}
    return WordDoubt(start=found.start, word=word, alternative=new, topic=topic, **known)


@pytest.mark.parametrize(
    ("caption", "word", "new", "others", "expected"),
    [
        ("A red ball .", "red", "blue", ["A blue ball .", "The blue ball ."], (2, 0)),
        ("A red ball .", "red", "blue", ["A dog in a blue shirt .", "Blue sky ."], (0, 0)),
        ("A red ball .", "red", "blue", ["A blue ball .", "An orange ball ."], (1, 1)),
        ("A red ball .", "red", "blue", ["A blue ball and a ball ."], (0, 1)),
        ("A red ball .", "red", "blue", ["A blue and white ball ."], (0, 1)),
        ("A red and white ball .", "red", "blue", ["A blue ball ."] * 3, (0, 0)),
        ("Four boys play .", "Four", "three", ["Three boys .", "Three kids sit ."], (2, 0)),
        ("Four boys play .", "Four", "three", ["Three dogs .", "Four men ."], (0, 1)),
        ("Four boys play .", "Four", "three", ["A group of three boys ."], (0, 1)),
        ("Four boys watch two men .", "Four", "three", ["Three boys ."] * 3, (0, 0)),
        ("A woman climbs .", "woman", "man", ["A man climbs .", "The guy on a rock ."], (2, 0)),
        ("A woman climbs .", "woman", "man", ["A man and a girl .", "A girl ."], (0, 2)),
        ("A woman climbs .", "woman", "man", ["A man with two others ."], (0, 1)),
        ("A man and a woman .", "woman", "man", ["A man ."] * 3, (0, 0)),
        ("A boy teenager .", "boy", "girl", ["A girl ."] * 3, (0, 0)),
        ("A child on his or her bike .", "her", "his", ["A boy on his bike ."] * 3, (0, 0)),
        ("A man walks his dog .", "his", "her", ["She walks a dog ."] * 3, (0, 0)),
        ("A bear runs .", "bear", "dog", ["A dog runs .", "A puppy .", "A wolf ."], (2, 0)),
        ("A bear runs .", "bear", "dog", ["A dog and a bear ."], (0, 1)),
        ("A bear and a dog .", "bear", "dog", ["A dog runs ."] * 3, (0, 0)),
        ("A race car driver .", "car", "boat", ["A boat ."] * 3, (0, 0)),
    ],
)
def test_only_what_is_said_of_the_same_thing_counts(caption, word, new, others, expected):
    found = support_of(doubt_of(caption, word, new), caption, others)
    assert (found.agree, found.against) == expected
    assert found.is_firm == (expected[0] >= 2 and not expected[1])


@pytest.mark.parametrize(
    ("caption", "word", "new", "why"),
    [
        ("A bear runs .", "bear", "dog", ""),
        ("An orange ball .", "orange", "blue", ""),
        ("Four boys play .", "Four", "three", ""),
        ("A man stands with her arms folded .", "man", "woman", ""),
        ("Three boy teenagers .", "boy", "girl", "part of a compound"),
        ("A man and woman .", "woman", "man", "'man' is in the caption already"),
        ("A man and guys .", "man", "guy", "is in the caption already"),
        ("A man walks his dog .", "man", "woman", "not agree"),
        ("A race car driver .", "car", "boat", "part of a compound"),
        ("A white-haired man .", "white", "red", "part of a compound"),
        ("A black man runs .", "black", "white", "more than a colour of 'man'"),
        ("A hat on a rock .", "hat", "glasses", "'a' does not go with 'glasses'"),
    ],
)
def test_a_sentence_must_bear_the_other_word(caption, word, new, why):
    found = not_fitting(caption, doubt_of(caption, word, new))
    assert why in found if why else not found


def test_a_chance_is_never_certain_and_rises_with_what_is_known():
    levels = [NOTHING, *(Support(agree=n) for n in (1, 2, 3, 4))]
    for level in levels:
        chances = [chance_of(p, level) for p in (0.0, 0.01, 0.5, 0.9, 0.99, 1.0)]
        assert chances == sorted(chances)
        assert 0 < chances[0] < chances[-1] < 0.95
    doubtful = [chance_of(0.3, level) for level in levels]
    assert doubtful == sorted(doubtful)
    assert doubtful[0] < 0.5 < THRESHOLD < doubtful[3]
    assert chance_of(0.9, Support(agree=3, against=1)) == chance_of(0.9, NOTHING)
