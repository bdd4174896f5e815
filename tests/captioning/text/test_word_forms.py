"""The words of captions by the two rules."""

from __future__ import annotations

import pytest

from captioning.text.word_forms import whole_words_of, words_of


@pytest.mark.parametrize(
    ("caption", "words", "whole"),
    [
        ("A dog, two cats.", "a dog two cats", "a dog two cats"),
        ("The zebra's T-shirt", "the zebra s t shirt", "the zebra t-shirt"),
        ("rock'n'roll; 3 o'clock", "rock n roll 3 o clock", "rock'n'roll 3 o'clock"),
        ("IMG_12 -- a-", "img_12 a", "img 12 a"),
        ("Über Straße", "über straße", "ber stra e"),
        ("", "", ""),
    ],
)
def test_words(caption: str, words: str, whole: str) -> None:
    assert words_of(caption) == words.split()
    assert whole_words_of(caption) == whole.split()
