"""Words and levels of captions."""

from __future__ import annotations

import pytest

from captioning.text.lengths import ReadingLimit, count_pieces, count_words, length_level


@pytest.mark.parametrize(
    ("caption", "words"), [("", 0), (" . ", 0), ("A dog runs .", 3), ("the man 's 2 t-shirts", 5)]
)
def test_words_hold_a_letter_or_a_digit(caption: str, words: int) -> None:
    assert count_words(caption) == words


def test_levels_begin_at_ten_twenty_thirty_and_forty() -> None:
    borders = (0, 1, 9, 10, 19, 20, 29, 30, 39, 40, 400)
    assert [length_level(number) for number in borders] == [0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]


def test_pieces_are_whatever_stands_between_blanks() -> None:
    assert [count_pieces(text) for text in ("a dog runs .", "a dog runs.", " - ", "")] == [
        4, 3, 1, 0,
    ]  # fmt: skip


def test_texts_that_reach_a_networks_limit_are_told_once(caplog) -> None:
    limit = ReadingLimit("toy", 7)
    limit.look([False, False])
    assert not caplog.text
    limit.look([True, False, True])
    limit.look([True])
    assert [record.message.partition(";")[0] for record in caplog.records] == [
        "toy reads 7 tokens of a text: 2 of 3 reach this limit, and the remaining text is ignored "
        "(logged once)"
    ]
