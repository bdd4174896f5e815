"""Structures and lexical words by the sets of Table 1."""

from __future__ import annotations

import pytest

from augmentation.toca.templates import (
    MAX_LETTERS,
    MAX_TOKENS,
    NO_LEXICAL_WORD,
    TOO_LONG,
    deconstruct,
    fill_structure,
    sentence_template,
)
from captioning.text.tagger import CaptionTagger, Tagged


def tagged(text: str) -> Tagged:
    """``word/TAG`` pairs."""
    return tuple(tuple(pair.rsplit("/", 1)) for pair in text.split())


@pytest.mark.parametrize(
    ("caption", "structure", "words"),
    [
        (
            "A/DT woman/NN holding/VBG a/DT white/JJ Tennis/NNP racket/NN ./.",
            "[N] [VBG] [J] [N] [N] .",
            "woman holding white tennis racket",
        ),
        (
            "Two/CD dogs/NNS that/WDT quickly/RB ran/VBD to/TO it/PRP and/CC slept/VBD",
            "[N] that [R] [VBD] and [VBD] .",
            "dogs quickly ran slept",
        ),
        ("There/EX are/VBP cats/NNS ,/, dogs/NNS !/.", "there [VBP] [N] , [N] .", "are cats dogs"),
        (
            "Man/NN next/RB to/IN a/DT car/NN ,/, to/IN go/VB",
            "[N] [R] [N] , [VB] .",
            "man next car go",
        ),
        ("Dog/NN", "[N] .", "dog"),
        ("dog/NN http://a.b/NN 🙂/NN 犬/NN 12/NN runs/VBZ", "[N] [VBZ] .", "dog runs"),
        ("[N]/NN dog/NN [X]/IN on/IN", "[N] on .", "dog"),
    ],
)
def test_table_1(caption: str, structure: str, words: str) -> None:
    parts = deconstruct(tagged(caption))
    assert parts.structure == structure
    assert " ".join(word for word, _ in parts.words) == words
    assert parts.problem == ""


def test_all_marks_at_the_end_are_one_full_stop() -> None:
    assert deconstruct(tagged("Dogs/NNS ,/, cats/NNS ,/, !/. ./.")).structure == "[N] , [N] ."


def test_words_of_too_many_letters_are_left_out() -> None:
    for letters, structure in ((MAX_LETTERS, "[N] [N] ."), (MAX_LETTERS + 1, "[N] .")):
        assert deconstruct(tagged(f"dog/NN {'x' * letters}/NN")).structure == structure


def test_captions_without_structure_say_why() -> None:
    assert deconstruct(()).problem == NO_LEXICAL_WORD
    assert deconstruct(tagged("on/IN ./.")).problem == NO_LEXICAL_WORD
    assert deconstruct(tagged("dog/NN " * 200)).problem == TOO_LONG
    assert deconstruct(tagged("dog/NN " * (MAX_TOKENS + 1))).problem == TOO_LONG
    assert deconstruct(tagged("dog/NN " * MAX_TOKENS)).problem == ""


def test_the_sentence_template_of_table_8() -> None:
    tokens = list(fill_structure("[J] [N] with [N] .", ["dining", "area", "chairs"]))
    assert sentence_template(tokens) == "[ ] dining [ ] area [ ] with [ ] chairs [ ] ."


def test_the_tagger_of_the_package() -> None:
    captions = ["A  man is riding\na horse.", "", "two dogs run"]
    tagged_captions = list(CaptionTagger().tag(captions))
    assert [token for token, _ in tagged_captions[0]] == [
        "A",
        "man",
        "is",
        "riding",
        "a",
        "horse",
        ".",
    ]
    assert deconstruct(tagged_captions[0]).structure == "[N] [VBZ] [VBG] [N] ."
    assert tagged_captions[1] == ()
    assert deconstruct(tagged_captions[2]).words[0] == ("dogs", "N")
