"""Entities of captions, their order, and the prompts made of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from captioning.text.entities import (
    PEOPLE,
    as_sentence,
    find_entities,
    hard_prompt,
    read_names,
    read_photo_names,
)
from captioning.text.parser import build_caption_parser
from captioning.types import Parse, Token


def parse(*words: tuple[str, str, str]) -> Parse:
    return tuple(
        Token(text=text, lemma=lemma, pos="X", tag=tag, dep="dep", head=0)
        for text, lemma, tag in words
    )


def test_nouns_are_found_in_their_order_each_once() -> None:
    entities = find_entities(
        parse(
            ("Two", "two", "CD"),
            ("zebras", "zebra", "NNS"),
            ("chase", "chase", "VBP"),
            ("men", "man", "NNS"),
            ("ball", "ball", "NN"),
            ("Paris", "paris", "NNP"),
            ("girl", "girl", "NN"),
            ("balls", "ball", "NNS"),
        )
    )
    assert entities == ("zebra", "person", "ball")


def test_only_known_names_count() -> None:
    words = parse(("dog", "dog", "NN"), ("idea", "idea", "NN"), ("woman", "woman", "NN"))
    assert find_entities(words, {"person", "dog"}) == ("dog", "person")
    assert find_entities((), {"dog"}) == ()


def test_entities_of_a_real_parse() -> None:
    (entities,) = build_caption_parser().parse(
        ["Two women throw balls to a brown dog on the grass."]
    )
    assert find_entities(entities, read_names()) == ("person", "ball", "dog", "grass")


def test_prompts() -> None:
    assert hard_prompt(["dog", "ball"]) == "There are dog, ball in image."
    assert hard_prompt(["dog"]) == "There are dog in image."
    assert hard_prompt([]) == "There are something in image."


@pytest.mark.parametrize(
    ("caption", "sentence"),
    [
        ("a dog runs", "A dog runs."),
        ("A dog runs .", "A dog runs."),
        (" a  dog\truns.  ", "A dog runs."),
        ("A DOG RUNS", "A dog runs."),
        ("a dog by St. James", "A dog by St. James."),
        ("a", "A."),
        (".", "."),
    ],
)
def test_captions_become_sentences(caption: str, sentence: str) -> None:
    assert as_sentence(caption) == sentence
    assert as_sentence(sentence) == sentence


def test_a_list_of_names(tmp_path: Path) -> None:
    file = tmp_path / "names.txt"
    file.write_text(
        "# Visual Genome\ntraffic light\nmicrowave,microwave oven\nman\nDog\ngirl\ndog\n"
    )
    assert read_names(file) == ("microwave", "person", "dog")
    file.write_text("# nothing\ntraffic light\n")
    with pytest.raises(ValueError, match="no one-word name"):
        read_names(file)
    with pytest.raises(FileNotFoundError, match="give a list of names"):
        read_names(tmp_path / "none.txt")


def test_names_of_photos_stay_as_they_are(tmp_path: Path) -> None:
    file = tmp_path / "names.txt"
    file.write_text("# a list\nTraffic  Light\nman\n\nperson\nman\n")
    assert read_photo_names(file) == ("traffic light", "man", "person")
    vinvl = tmp_path / "class2ind.json"
    vinvl.write_text('{"Fire hydrant": 3, "dog": 1}')
    assert read_photo_names(vinvl) == ("fire hydrant", "dog")
    assert read_photo_names("own") == read_names()
    classes = read_photo_names("coco")
    assert len(classes) == 80
    assert {"person", "traffic light", "tv", "hair drier"} <= set(classes)


@pytest.mark.parametrize(
    ("content", "message"),
    [("3", "names as keys: got int"), ("[", "is not valid JSON"), ("[]", "holds no name")],
)
def test_other_files_of_names_are_refused(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "names.json"
    file.write_text(content)
    with pytest.raises(ValueError, match=message):
        read_photo_names(file)
    with pytest.raises(FileNotFoundError, match=r"class2ind.json\): put it there, or choose"):
        read_photo_names(tmp_path / "none.json")


def test_the_packaged_names() -> None:
    names = read_names()
    assert len(names) == len(set(names)) > 600
    assert not set(names) & (PEOPLE - {"person"})
    assert {"person", "dog", "pizza", "umbrella"} <= set(names)
