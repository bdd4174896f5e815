"""The words by which a caption is asked for."""

from __future__ import annotations

import pytest

from captioning.models.cic_bart import ControlText
from captioning.text.control_tokens import CONTROL_TOKENS
from captioning.text.tokenizers.words import WordTokenizer
from captioning.types import Control

NUMBERS = [str(number) for number in range(1, 60)]
WORDS = WordTokenizer(words=["caption", "region", "runs", "held", *NUMBERS, *CONTROL_TOKENS])


def as_text(control: Control) -> str:
    ids = ControlText(WORDS, prompt="caption region:").ids(control)
    return " ".join(WORDS.words[index] for index in ids)


def test_it_is_the_authors_text() -> None:
    control = Control(regions=(4, 0), num_words=12, verbs=("runs", "held"))
    assert as_text(control) == (
        "<bos> caption region runs held "
        "<cap_len_level_2> 12 <vis_extra_id_1> <vis_extra_id_2> <eos>"
    )
    assert as_text(Control()) == as_text(Control(regions=())) == "<bos> caption region <eos>"
    assert as_text(Control(level=5)) == "<bos> caption region <cap_len_level_5> <eos>"
    assert as_text(Control(num_words=99)).split()[3:5] == ["<cap_len_level_5>", "<unk>"]


@pytest.mark.parametrize(
    ("num_words", "level"),
    [(1, 1), (9, 1), (10, 2), (19, 2), (20, 3), (29, 3), (30, 4), (39, 4), (40, 5), (59, 5)],
)
def test_levels_at_their_borders(num_words: int, level: int) -> None:
    words = as_text(Control(num_words=num_words)).split()
    assert words[3:5] == [f"<cap_len_level_{level}>", str(num_words)]
    assert as_text(Control(num_words=num_words, level=4)).split()[3] == "<cap_len_level_4>"


def test_tokens_elsewhere_and_too_many_regions_are_refused() -> None:
    for words in (["caption"], ["caption", *CONTROL_TOKENS, "late"], CONTROL_TOKENS[::-1]):
        with pytest.raises(ValueError, match="must have id"):
            ControlText(WordTokenizer(words=words), prompt="caption")
    assert as_text(Control(regions=tuple(range(99)))).count("<vis_extra") == 99
    with pytest.raises(ValueError, match="at most 99 regions: got 100"):
        as_text(Control(regions=tuple(range(100))))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"regions": (1, 1)}, "different positions"),
        ({"regions": (0, -1)}, "different positions"),
        ({"num_words": 0}, "at least 1"),
        ({"level": 6}, "1 to 5"),
        ({"level": 0}, "1 to 5"),
    ],
)
def test_controls_that_no_caption_has_are_refused(wrong: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Control(**wrong)
