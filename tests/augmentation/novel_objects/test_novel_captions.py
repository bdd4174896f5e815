"""Captions rewritten for another object."""

from __future__ import annotations

import pytest

from augmentation.novel_objects import novel_captions
from augmentation.novel_objects.novel_captions import Name, Radius, num_named, rename_object
from captioning.text.inflection import pluralise
from captioning.types import Token


def name(word: str, **more) -> Name:
    return Name(singular=word, plural=pluralise(word), **more)


@pytest.mark.parametrize(
    ("caption", "old", "new", "expected"),
    [
        # the paper's three examples
        ("A group of cows on dirt area.", "cow", "zebra", "A group of zebras on dirt area."),
        (
            "A blue plate holding a frosted cake and knife.",
            "cake",
            "pizza",
            "A plate holding a pizza and knife.",
        ),
        ("A birthday cake is on it.", "cake", "pizza", "A pizza is on it."),
        ("A dog and a cat on a sofa", "dog", "elephant", "An elephant and a cat on a sofa"),
        ("An old dog sleeps.", "dog", "cat", "A cat sleeps."),
        ("two small brown dogs play", "dog", "bus", "two buses play"),
        ("Two cows , a dog and a sheep.", "cow", "zebra", "Two zebras , a dog and a sheep."),
        ("A dog chews a large bone.", "dog", "zebra", "A zebra chews a large bone."),
        ("A dog eats an orange.", "dog", "zebra", "A zebra eats an orange."),
        ("Dog in snow.", "dog", "zebra", "Zebra in snow."),
    ],
)
def test_captions(parser, caption, old, new, expected):
    (parse,) = parser.parse([caption])
    new_caption, problem = rename_object(
        caption, parse, old=name(old), new=name(new), radius=Radius()
    )
    assert (new_caption, problem) == (expected, "")


@pytest.mark.parametrize(
    ("caption", "reason"),
    [
        ("A cat sits.", novel_captions.NO_OBJECT),
        ("The dog is brown.", novel_captions.PREDICATE),
        ("A man near a dog house.", novel_captions.OTHER_NAME),
        ("A dog and a zebra.", novel_captions.NOVEL_ALREADY),
        ("...", novel_captions.NO_OBJECT),
    ],
)
def test_captions_that_are_left_alone(parser, caption, reason):
    (parse,) = parser.parse([caption])
    caption_and_reason = rename_object(
        caption, parse, old=name("dog"), new=name("zebra"), radius=Radius()
    )
    assert caption_and_reason == ("", reason)


def test_a_caption_without_words_names_nothing():
    caption_and_reason = rename_object("", (), old=name("dog"), new=name("zebra"), radius=Radius())
    assert caption_and_reason == ("", novel_captions.NO_OBJECT)


def test_the_radius_is_a_setting(parser):
    caption = "A big dog sleeps."
    (parse,) = parser.parse([caption])
    names = {"old": name("dog"), "new": name("zebra")}
    new_caption, _ = rename_object(caption, parse, **names, radius=Radius(adjectives=0, nouns=0))
    assert new_caption == "A big zebra sleeps."


def test_names_of_several_words_and_further_forms(parser):
    caption = "Two fighter jets fly over a jet."
    (parse,) = parser.parse([caption])
    old = name("fighter jet", forms=("jet", "jets"))
    new_caption, problem = rename_object(caption, parse, old=old, new=name("kite"), radius=Radius())
    assert (new_caption, problem) == ("Two kites fly over a kite.", "")


@pytest.mark.parametrize(
    ("noun", "expected"),
    [("bus", "buses"), ("pony", "ponies"), ("toy", "toys"), ("tow man", "tow men")],
)
def test_plurals(noun, expected):
    assert pluralise(noun) == expected


@pytest.mark.parametrize(
    ("caption", "number"),
    [
        ("A dog sleeps.", 1),
        ("Dogs play in the snow.", 2),
        ("Three small dogs play.", 3),
        ("4 dogs run.", 4),
        ("A black dog looks at another black dog.", 2),
        ("A dog chews on the dog's toy while the dog lies down.", 1),
        ("Two dogs and a brown dog run.", 3),
        ("A cat sleeps.", 0),
    ],
)
def test_how_many_things_a_caption_speaks_of(parser, caption, number):
    (parse,) = parser.parse([caption])
    assert num_named(parse, name("dog")) == number


def test_a_plural_that_the_tagger_takes_for_a_singular_is_one():
    token = Token(text="Dogs", lemma="dogs", pos="PROPN", tag="NNP", dep="ROOT", head=0)
    assert num_named((token,), name("dog")) == 2


@pytest.mark.parametrize(
    ("old", "caption", "expected"),
    [
        ("sheep", "Two sheep in a field.", "Two zebras in a field."),
        ("sheep", "A sheep in a field.", "A zebra in a field."),
        ("scissors", "The scissors on a table.", "The zebra on a table."),
    ],
)
def test_one_name_for_one_and_for_several(parser, old, caption, expected):
    (parse,) = parser.parse([caption])
    unchanged = Name(singular=old, plural=old)
    assert (
        rename_object(caption, parse, old=unchanged, new=name("zebra"), radius=Radius())[0]
        == expected
    )
