"""What a language model may answer, and what becomes of it."""

from __future__ import annotations

import pytest

from augmentation.writing import acceptance
from augmentation.writing.acceptance import Judge
from augmentation.writing.writers import TIMED_OUT, Answer

WORDS = ("man", "riding", "horse")


def judge(text: str, words: tuple[str, ...] = WORDS) -> tuple[str, str]:
    verdict = Judge(known_captions=["The man is riding a horse"]).judge(Answer(text=text), words)
    return verdict.caption, verdict.problem


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
    ("text", "caption"),
    [
        ("A man riding a horse!", "A man riding a horse."),
        ("A man riding a horse ?!", "A man riding a horse."),
        ("A man riding a horse...", "A man riding a horse."),
        ('A man riding a "horse."', 'A man riding a "horse".'),
        ('A man riding a "horse"', 'A man riding a "horse".'),
    ],
)
def test_a_caption_has_one_full_stop(text: str, caption: str) -> None:
    assert judge(text) == (caption, "")


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
    first_judge = Judge()
    assert first_judge.judge(Answer(text="A man riding a horse"), WORDS).caption
    again = first_judge.judge(Answer(text="a man, riding a horse!"), WORDS)
    assert again.problem == acceptance.DUPLICATE
    second_judge = Judge()
    second_judge.remember("A man riding a horse.")
    assert (
        second_judge.judge(Answer(text="A man riding a horse"), WORDS).problem
        == acceptance.DUPLICATE
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("A man in a t-shirt", ("shirt",)),
        ("A man in a t-shirt", ("t-shirt",)),
        ("A man in a t shirt", ("t-shirt",)),
        ("A well dressed person", ("well-dressed",)),
        ("A man's well-dressed dog", ("man", "dressed", "dog")),
        ("A man’s dog isn’t here", ("man", "isn't", "here")),  # noqa: RUF001
    ],
)
def test_words_of_a_word_count(text: str, words: tuple[str, ...]) -> None:
    assert judge(text, words)[1] == ""


def test_words_within_words_do_not() -> None:
    assert judge("A shirtless man is here", ("shirt",))[1] == acceptance.MISSING
    assert judge("A t-shirt on a bed", ("shirt", "shirt"))[1] == acceptance.MISSING
    assert judge("A person is here", ("isn't",))[1] == acceptance.MISSING


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("A man walks down the street after sunset.", ("man", "walk", "street")),
        (
            "A woman fishing with a pierced lip in the clear waters of a lake.",
            ("woman", "pier", "water"),
        ),
        (
            "A kid playing a video game on a car seat next to another kid.",
            ("kid", "playing", "game", "other", "video", "car"),
        ),
        (
            "A person is passionately discussing the strategies and rules of a chess game.",
            ("person", "discussing", "s", "game"),
        ),
    ],
)
def test_captions_that_the_paper_prints_are_accepted_by_parts_of_words(
    text: str, words: tuple[str, ...]
) -> None:
    """ToCa, Tables 9, 10 and 12."""
    by_parts = Judge(whole_words=False)
    assert by_parts.judge(Answer(text=text), words).caption == text
    assert judge(text, words)[1] == acceptance.MISSING
    assert by_parts.judge(Answer(text=text), (*words, "dog")).problem == acceptance.MISSING


@pytest.mark.parametrize(
    "text",
    [
        "A t shirt can't walk.",
        "A t-shirt ca n't walk",
        "A tshirt can’t walk",  # noqa: RUF001
    ],
)
def test_a_copy_is_one_however_it_is_written(text: str) -> None:
    verdict = Judge(known_captions=["A t-shirt can't walk ."]).judge(Answer(text=text), ())
    assert verdict.problem == acceptance.COPY


def test_a_word_given_twice_must_be_there_twice() -> None:
    assert judge("A man riding a horse", ("horse", "horse"))[1] == acceptance.MISSING
    assert judge("A horse beside a horse", ("horse", "horse"))[1] == ""
