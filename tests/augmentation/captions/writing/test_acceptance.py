"""What a language model may answer, and what becomes of it."""

from __future__ import annotations

import pytest

from augmentation.captions.writing import acceptance
from augmentation.captions.writing.acceptance import Judge
from augmentation.captions.writing.writers import TIMED_OUT, Answer

WORDS = ("man", "riding", "horse")


def judge(text: str, words: tuple[str, ...] = WORDS) -> tuple[str, str]:
    found = Judge(known=["The man is riding a horse"]).judge(Answer(text=text), words)
    return found.caption, found.problem


@pytest.mark.parametrize(
    "text",
    [
        "A man riding a horse",
        '"a man riding a horse."',
        "Sentence: A man riding a horse.",
        "1. A man riding a horse\n2. A dog",
        "Here is the sentence:\n\nA man riding a horse.\nI hope it helps!",
    ],
)
def test_a_sentence_is_found_in_an_answer(text: str) -> None:
    assert judge(text) == ("A man riding a horse.", "")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", acceptance.NO_ANSWER),
        ("I'm sorry, but I cannot describe a man riding a horse.", acceptance.REFUSAL),
        ("A man riding a horse. He is happy.", acceptance.ESSAY),
        ("A man [ ] riding a horse", acceptance.NOT_TEXT),
        ("A man riding a horse at https://a.b", acceptance.NOT_TEXT),
        ("A man riding a horse 🙂", acceptance.NOT_TEXT),
        ("A man riding a horse 馬", acceptance.NOT_TEXT),
        ("A man riding a horse " + "and so on " * 20, acceptance.TOO_LONG),
        ("A man on a horse", acceptance.MISSING),
        ("A woman riding a horse", acceptance.MISSING),
        ("A man riding a horse, a horse, a horse a horse", acceptance.REPEATS),
        ("A man man man riding a horse", acceptance.REPEATS),
        ("The man is riding a horse.", acceptance.COPY),
    ],
)
def test_other_answers_are_refused_with_a_reason(text: str, problem: str) -> None:
    assert judge(text) == ("", problem)


def test_short_ones_and_failures() -> None:
    assert judge("A man", ("man",))[1] == acceptance.TOO_SHORT
    failed = Judge().judge(Answer(problem=TIMED_OUT), WORDS)
    assert (failed.caption, failed.problem) == ("", TIMED_OUT)


def test_no_caption_is_made_twice() -> None:
    one = Judge()
    assert one.judge(Answer(text="A man riding a horse"), WORDS).caption
    again = one.judge(Answer(text="a man, riding a horse!"), WORDS)
    assert again.problem == acceptance.DUPLICATE
    other = Judge()
    other.remember("A man riding a horse.")
    assert other.judge(Answer(text="A man riding a horse"), WORDS).problem == acceptance.DUPLICATE


def test_a_word_given_twice_must_be_there_twice() -> None:
    assert judge("A man riding a horse", ("horse", "horse"))[1] == acceptance.MISSING
    assert judge("A horse beside a horse", ("horse", "horse"))[1] == ""
