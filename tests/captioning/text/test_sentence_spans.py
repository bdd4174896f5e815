"""Captions are cut at the ends of their sentences, and nowhere else."""

from __future__ import annotations

import pytest

from captioning.text.sentence_spans import sentence_numbers, sentence_spans, without
from captioning.types import MaskedSpan


@pytest.mark.parametrize(
    ("caption", "sentences"),
    [
        ("A dog runs. It is brown .", ["A dog runs.", "It is brown ."]),
        ("a dog runs . a man sits", ["a dog runs .", "a man sits"]),
        (
            "Dr. Lee holds 3.5 kg at 5 p.m. Then he left! Why?",
            ["Dr. Lee holds 3.5 kg at 5 p.m.", "Then he left!", "Why?"],
        ),
        ("J. Smith and more... Wait. ... End", ["J. Smith and more...", "Wait. ...", "End"]),
        ('A sign says "stop." A man waits.', ['A sign says "stop."', "A man waits."]),
        (
            "the U.S. flag hangs. He lives in the U.S. It is big",
            ["the U.S. flag hangs.", "He lives in the U.S.", "It is big"],
        ),
        ("1. A dog.\n2. A cat.\n\nA bird", ["1. A dog.", "2. A cat.", "A bird"]),
        ("- a dog\n- a cat", ["- a dog", "- a cat"]),
        ("一只狗。两只猫\uff01跑", ["一只狗。", "两只猫\uff01", "跑"]),
        ("a dog", ["a dog"]),
        ("...", ["..."]),
        ("  ", []),
    ],
)  # fmt: skip
def test_sentences_end_at_stops(caption: str, sentences: list[str]) -> None:
    assert [caption[start:stop] for start, stop in sentence_spans(caption)] == sentences


def test_tokens_belong_to_the_sentence_that_they_begin_in() -> None:
    spans = [(0, 0), (0, 1), (2, 5), (5, 6), (7, 8), (0, 0)]
    assert sentence_numbers(spans, ((0, 6), (7, 9))) == [-1, 0, 0, 0, 1, -1]


@pytest.mark.parametrize(
    ("gone", "rest"),
    [
        ([0], "B c!  D."),
        ([1], "A b. D."),
        ([2], "A b. B c!"),
        ([0, 1], "D."),
        ([0, 2], "B c!"),
        ([0, 1, 2], ""),
        ([], "A b. B c!  D."),
    ],
)
def test_a_caption_without_some_of_its_sentences(gone: list[int], rest: str) -> None:
    caption = "A b. B c!  D."
    spans = sentence_spans(caption)
    masks = [MaskedSpan(start=start, stop=stop) for start, stop in map(spans.__getitem__, gone)]
    assert without(caption, masks) == rest
    assert without("一只狗。两只猫\uff01", [MaskedSpan(start=0, stop=4)]) == "两只猫\uff01"
