"""Prompts of the paper's three forms, never longer than the model reads, never cut in silence."""

from __future__ import annotations

import pytest
import torch
from squares import request

from augmentation.image_replacement.generated import (
    STYLER,
    Concatenation,
    Prompter,
    Representative,
    SingleCaption,
)

FIVE = ("one dog .", "two dogs", "three dogs", "four dogs", "five dogs")


def words(text: str) -> int:
    return len(text.split())


def prompt_of(form, *captions, limit=None, **options):
    return Prompter(form=form, **options).prompt(request(*captions), count=words, limit=limit)


class OneValue:
    """Embeds a text as the number of its letters."""

    def embed_texts(self, texts):
        angles = torch.tensor([len(text) / 50 for text in texts])
        return torch.stack([angles.cos(), angles.sin()], dim=1)


def test_a_single_caption_is_the_samples_own():
    assert prompt_of(SingleCaption(), "A dog runs .", "Two men.").text == "A dog runs ."
    assert prompt_of(SingleCaption(), " A  dog\nruns", "Two men.").text == "A dog runs"


def test_the_representative_is_nearest_to_the_mean_embedding():
    captions = ("x" * 10, "x" * 21, "x" * 30, "x" * 22, "x" * 23)  # mean 21.2
    assert prompt_of(Representative(sentences=OneValue()), *captions).text == "x" * 21


def test_equally_near_captions_give_the_samples_own():
    assert prompt_of(Representative(sentences=OneValue()), "own", "two", "six").text == "own"


def test_all_captions_are_joined_as_sentences_the_own_first():
    assert prompt_of(Concatenation(), *FIVE[:3]).text == "one dog. two dogs. three dogs."


@pytest.mark.parametrize("form", [SingleCaption(), Representative(sentences=OneValue())])
def test_the_styler_comes_last(form):
    assert prompt_of(form, "A dog runs.", styler=STYLER).text == f"A dog runs, {STYLER}"
    assert STYLER == "national geographic, high quality photography, Canon EOS R3, Flickr"


def test_whole_captions_are_left_out_from_the_end_and_counted():
    prompt = prompt_of(Concatenation(), *FIVE, styler="Canon EOS", limit=9)
    assert prompt.text == "one dog. two dogs. three dogs, Canon EOS"
    assert prompt.notes == ("caption left out of the prompt",) * 2
    whole = prompt_of(Concatenation(), *FIVE, styler="Canon EOS", limit=12)
    assert (whole.notes, words(whole.text)) == ((), 12)


def test_what_is_too_long_alone_is_shortened_at_a_word_and_the_styler_stays():
    long = " ".join(f"word{number}" for number in range(300))
    assert len(long) > 2000
    prompt = prompt_of(Concatenation(), long, *FIVE, styler="Canon EOS", limit=7)
    assert prompt.text == "word0 word1 word2 word3 word4, Canon EOS"
    assert prompt.notes == ("caption left out of the prompt",) * 5 + ("prompt shortened",)
    prompt = prompt_of(Concatenation(), *FIVE, overlong="shorten", limit=5)
    assert (prompt.text, prompt.notes) == ("one dog. two dogs. three", ("prompt shortened",))


def test_a_prompt_can_be_left_to_the_model_to_cut():
    for limit, notes in ((9, ("prompt cut by the model",)), (12, ())):
        options = {"styler": "Canon EOS", "overlong": "cut", "limit": limit}
        prompt = prompt_of(Concatenation(), *FIVE, **options)
        assert prompt.text == "one dog. two dogs. three dogs. four dogs. five dogs, Canon EOS"
        assert prompt.notes == notes


def test_a_prompt_that_is_too_long_can_be_refused():
    prompt = prompt_of(Concatenation(), *FIVE, overlong="refuse", limit=9)
    assert (prompt.text, prompt.problem) == ("", "prompt too long")


def test_nothing_is_left_where_not_even_a_word_fits():
    prompt = prompt_of(SingleCaption(), "A dog", styler="a very long styler", limit=3)
    assert prompt.problem == "prompt too long to be shortened at a word"


def test_blank_captions_make_no_prompt():
    assert prompt_of(Concatenation(), "x", " ", "a dog").text == "x. a dog."
    blank = Prompter(form=Concatenation())
    blank_request = request(" ", "")
    assert blank.prompt(blank_request, count=words, limit=None).problem == "empty prompt"


def test_an_unknown_way_with_overlong_prompts_is_refused():
    with pytest.raises(ValueError, match="overlong must be one of"):
        Prompter(form=SingleCaption(), overlong="crop")  # pyright: ignore[reportArgumentType]


def test_other_captions_may_come_before_the_samples_own():
    assert prompt_of(Concatenation(), *FIVE[:3], order="others_first").text == (
        "two dogs. three dogs. one dog."
    )
    short = prompt_of(Concatenation(), *FIVE[:3], order="others_first", limit=4)
    assert short.text == "two dogs. three dogs."
    alone = prompt_of(Concatenation(), " one  dog", order="others_first")
    assert alone.text == "one dog"


@pytest.mark.parametrize("form", [SingleCaption(), Representative(sentences=OneValue())])
def test_an_order_for_one_caption_is_refused(form):
    with pytest.raises(
        ValueError, match=f"{type(form).__name__} makes prompts of one caption only"
    ):
        Prompter(form=form, order="others_first")


def test_an_unknown_order_is_refused():
    with pytest.raises(ValueError, match="order must be others_first or null: got 'last'"):
        Prompter(form=Concatenation(), order="last")  # pyright: ignore[reportArgumentType]
