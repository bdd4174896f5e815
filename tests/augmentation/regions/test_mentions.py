"""Objects and attributes found in parsed captions."""

from __future__ import annotations

import pytest

from augmentation.regions.mentions import MentionRules, clean, find_mentions, offsets
from captioning.text.lemmas import load_lemmas
from captioning.text.object_words import LEMMAS, ObjectWords


@pytest.fixture
def mentions(parser, object_words):
    def find(caption: str):
        return find_mentions(caption, parser.parse([caption])[0], object_words)

    return find


@pytest.mark.parametrize(
    ("rules", "caption", "expected"),
    [
        ({}, "The other dog is wet .", [("dog", "", "dog")]),
        ({"closed_classes": False}, "The other dog is wet .", [("dog", "other", "dog")]),
        ({}, "A group of dogs runs .", [("dog", "", "dogs")]),
        (
            {"closed_classes": False},
            "A group of dogs runs .",
            [("group", "", "group"), ("dog", "", "dogs")],
        ),
        ({}, "A golf ball lies near a car door .", [("ball", "", "golf ball")]),
        (
            {"whole_compounds": False},
            "A golf ball lies near a car door .",
            [("ball", "", "ball"), ("car", "", "car")],
        ),
    ],
)  # fmt: skip
def test_the_thesis_has_neither_lists_nor_compounds(parser, object_words, rules, caption, expected):
    (parse,) = parser.parse([caption])
    found = find_mentions(caption, parse, object_words, MentionRules(**rules))
    texts = [" ".join(token.text for token in parse[m.start : m.head + 1]) for m in found]
    assert [(m.name, m.attribute, text) for m, text in zip(found, texts, strict=True)] == expected


def described(mentions, caption: str) -> list[tuple[str, bool, str]]:
    return [(mention.name, mention.plural, mention.attribute) for mention in mentions(caption)]


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        ("A red fire hydrant on grass .", [("fire hydrant", False, "red"), ("grass", False, "")]),
        ("Two fire hydrants stand here .", [("fire hydrant", True, "")]),
        ("Three men ride buses .", [("man", True, ""), ("bus", True, "")]),
        ("Some children run .", [("child", True, "")]),
        ("Many people wait .", [("person", True, "")]),
        ("Two sheep stand in the snow .", [("sheep", True, ""), ("snow", False, "")]),
        ("A sheep stands in the snow .", [("sheep", False, ""), ("snow", False, "")]),
        ("A black and white dog runs .", [("dog", False, "black and white")]),
        ("A young , happy woman smiles .", [("woman", False, "young, happy")]),
        ("A very old man sleeps .", [("man", False, "very old")]),
        ("A young man sleeps .", [("man", False, "young")]),
        ("A boy in a multi-colored hat .", [("boy", False, ""), ("hat", False, "multi-colored")]),
        ("A boy in a blue t-shirt .", [("boy", False, ""), ("t-shirt", False, "blue")]),
        ("The other dog is wet .", [("dog", False, "")]),
    ],
)  # fmt: skip
def test_objects_with_number_and_attributes(mentions, caption, expected):
    assert described(mentions, caption) == expected


@pytest.mark.parametrize(
    "caption",
    ["It is raining .", "Running fast", ".", "A dog-friendly place", "A man-made lake"],
)
def test_captions_without_object(mentions, caption):
    assert mentions(caption) == ()


@pytest.mark.parametrize(
    ("caption", "ours", "thesis"),
    [
        # Figure A1: "A few people that are walking" becomes "A many children ..."
        ("A few people that are walking on a beach .", "", "few"),
        ("A long haired cat sits .", "long haired", "haired"),
        ("A very old man sleeps .", "very old", "old"),
        ("A black and white dog runs .", "black and white", "black and white"),
    ],
)
def test_attributes_in_the_thesis_are_all_adjectives_that_depend_on_an_object(
    parser, object_words, caption, ours, thesis
):
    rules = MentionRules(closed_classes=False, whole_compounds=False)
    parse = parser.parse([caption])[0]
    assert find_mentions(caption, parse, object_words)[0].attribute == ours
    mention = find_mentions(caption, parse, object_words, rules)[0]
    assert mention.attribute == thesis
    assert mention.attributes == tuple(thesis.split(" and "))


def test_a_class_of_adjective_and_noun_is_one_object_in_the_thesis(parser):
    """Visual Genome has "young man" and "little girl"; the thesis' objects are its classes."""
    words = ObjectWords(names=["young man", "man"], lemmatizer=load_lemmas(LEMMAS))
    caption = "A young man sleeps ."
    (parse,) = parser.parse([caption])
    (ours,) = find_mentions(caption, parse, words)
    (thesis,) = find_mentions(caption, parse, words, MentionRules(closed_classes=False))
    assert (ours.name, ours.attribute) == ("man", "young")
    assert (thesis.name, thesis.attribute) == ("young man", "")


def test_no_parse_has_no_objects(object_words):
    assert find_mentions("A dog runs", (), object_words) == ()


def test_words_of_compounds_places_and_amounts_are_no_objects(mentions):
    assert [mention.name for mention in mentions("A group of dogs in front of a car door .")] == [
        "dog"
    ]
    assert [mention.name for mention in mentions("A dog sits on the side of a boat .")] == [
        "dog",
        "boat",
    ]
    assert "hot dog" in [mention.name for mention in mentions("A man eats a hot dog .")]


def test_a_noun_before_an_object_belongs_to_it(mentions):
    (bag,) = mentions("a leather bag")
    assert (bag.name, bag.start, bag.head) == ("bag", 1, 2)
    (car,) = mentions("A four wheel drive car is driving through the mud .")
    assert (car.name, car.start, car.head) == ("car", 1, 4)


def test_the_grammar_around_an_object(mentions):
    frames = {
        mention.name: mention.frames for mention in mentions("A dog plays in snow near the sand .")
    }
    assert frames == {"dog": ("counted",), "snow": ("bare",), "sand": ()}
    (man, hat) = mentions("A man who wears a hat .")
    assert "who" in man.frames
    assert man.slot == "subject"
    assert hat.slot == "object of wear"
    assert mentions("A dog in the snow .")[1].slot == "in"
    assert mentions("A group of dogs .")[0].slot == "group of"


def test_a_parse_of_another_caption_is_refused(parser, object_words):
    (parse,) = parser.parse(["A dog runs"])
    with pytest.raises(ValueError, match="'dog' does not follow at character 1 of 'A cat runs'"):
        find_mentions("A cat runs", parse, object_words)


def test_offsets_count_characters_of_single_blanks(parser):
    caption = " A  dog's\tball, "
    (parse,) = parser.parse([caption])
    text = clean(caption)
    assert text == "A dog's ball,"
    assert [text[a:b] for a, b in offsets(caption, parse)] == ["A", "dog", "'s", "ball", ","]
