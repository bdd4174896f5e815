"""Edits of captions keep number, articles, capitals, punctuation, possessives and hyphens."""

from __future__ import annotations

import pytest

from augmentation.regions.caption_edits import replace_object
from augmentation.regions.mentions import clean, find_mentions


@pytest.fixture
def edit(parser, object_words):
    def edited(caption: str, old: str, noun: str, attribute: str = ""):
        (parse,) = parser.parse([caption])
        mentions = find_mentions(caption, parse, object_words)
        mention = next(mention for mention in mentions if mention.name == old)
        return replace_object(caption, parse, mention, noun=noun, attribute=attribute)

    return edited


@pytest.mark.parametrize(
    ("caption", "old", "noun", "attribute", "expected"),
    [
        ("A dog runs .", "dog", "cat", "", "A cat runs ."),
        ("A red fire hydrant .", "fire hydrant", "bus", "old", "An old bus ."),
        ("A man eats an orange .", "orange", "banana", "", "A man eats a banana ."),
        ("A man holds a ball .", "ball", "umbrella", "", "A man holds an umbrella ."),
        ("He holds a red ball .", "ball", "umbrella", "orange", "He holds an orange umbrella ."),
        ("A man holds an old ball .", "ball", "umbrella", "red", "A man holds a red umbrella ."),
        ("Dogs run .", "dog", "fire hydrants", "", "Fire hydrants run ."),
        ("Two fire hydrants .", "fire hydrant", "sheep", "", "Two sheep ."),
        ("Three men ride buses .", "man", "children", "", "Three children ride buses ."),
        ("A black and white dog runs .", "dog", "cat", "brown", "A brown cat runs ."),
        ("A young , happy woman smiles .", "woman", "man", "old", "An old man smiles ."),
        ("Black and white dog runs", "dog", "cat", "orange", "Orange cat runs"),
        ("A very old man sleeps .", "man", "boy", "young", "A young boy sleeps ."),
        ("The other dog is wet .", "dog", "cat", "", "The other cat is wet ."),
        ("A small brown dog runs .", "dog", "cat", "", "A cat runs ."),
        ("The dog's leash is red .", "dog", "horse", "", "The horse's leash is red ."),
        ("The dogs' leash is red .", "dog", "men", "", "The men's leash is red ."),
        ("The men's hats .", "man", "girls", "", "The girls' hats ."),
        ("A boy in a blue t-shirt .", "t-shirt", "jacket", "red", "A boy in a red jacket ."),
        ("A boy in a multi-colored hat .", "hat", "t-shirt", "blue", "A boy in a blue t-shirt ."),
        ('A dog, "Rex", runs!', "dog", "cat", "", 'A cat, "Rex", runs!'),
        (" A  dog\truns . ", "dog", "cat", "", "A cat runs ."),
        ("A DOG IN A CAR .", "dog", "orange cat", "", "AN ORANGE CAT IN A CAR ."),
        ("A leather bag .", "bag", "umbrella", "", "An umbrella ."),
        ("A dog runs .", "dog", "cat", "old", "An old cat runs ."),
    ],
)  # fmt: skip
def test_captions_stay_correct(edit, caption, old, noun, attribute, expected):
    assert edit(caption, old, noun, attribute).caption == expected


def test_every_span_is_what_changed(edit):
    old = clean("A man's  red ball and an old dog .")
    edited = edit("A man's  red ball and an old dog .", "ball", "umbrella", "orange")
    assert edited.caption == "A man's orange umbrella and an old dog ."
    assert [(span.old_text, span.text, span.kind) for span in edited.spans] == [
        ("red", "orange", "attribute"),
        ("ball", "umbrella", "object"),
    ]
    for span in edited.spans:
        assert edited.caption[span.start : span.start + len(span.text)] == span.text
        assert old[span.old_start : span.old_start + len(span.old_text)] == span.old_text


def test_an_article_is_a_span_of_its_own(edit):
    edited = edit("A dog and a red ball .", "ball", "bag", "old")
    first = edited.spans[0]
    assert (first.old_text, first.text, first.kind) == ("a", "an", "article")


def test_the_same_words_change_nothing(edit):
    edited = edit("A red ball .", "ball", "ball", "red")
    assert (edited.caption, edited.spans) == ("A red ball .", ())


def test_an_edit_needs_a_noun(edit):
    with pytest.raises(ValueError, match="noun must be the word of the new object"):
        edit("A dog .", "dog", " ")
