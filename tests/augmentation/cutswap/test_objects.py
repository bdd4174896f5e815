"""The table of a data set's objects."""

from __future__ import annotations

from functools import partial

import pytest
from small_set import BOX, ROSTER, grounded, sample

from augmentation.cutswap.objects import (
    ObjectClass,
    boxes_of,
    build_object_table,
    labels_of,
    shares_boxes,
)
from augmentation.regions.mentions import find_mentions
from captioning.data.roster import Roster
from captioning.text.object_words import build_labels, build_object_words
from captioning.types import Region


def test_counts_attributes_and_rows_of_each_number(table):
    dog, dogs = table.by_key["dog", False], table.by_key["dog", True]
    assert (dog.count, dogs.count) == (4, 2)
    assert dog.rows_by_attribute == {"black": (0, 1), "brown": (2, 3)}
    assert dogs.rows_by_attribute == {"black": (8, 9)}
    assert (dog.noun, dogs.noun) == ("dog", "dogs")
    assert dog.slots == {"subject": 4}
    assert table.by_key["snow", False].frames == {}


def test_rare_attributes_and_a_class_with_one_instance_are_dropped_and_counted(
    table, parses, object_words
):
    assert ("truck", False) not in table.by_key
    assert (table.dropped_classes, table.dropped_pairs) == (1, 1)
    every = build_object_table(ROSTER, parses, object_words=object_words, min_uses=1)
    assert every.by_key["truck", False].attributes == ("tall",)
    assert every.dropped_classes == 0
    rules = {"min_uses": 2, "min_mentions": 1}
    thesis = build_object_table(ROSTER, parses, object_words=object_words, **rules)
    assert thesis.by_key["truck", False].attributes == ()
    assert (thesis.dropped_classes, thesis.dropped_pairs) == (0, 1)


def test_images_with_a_box_of_the_object(table):
    assert table.by_key["dog", False].boxed_images == ("photo0",)
    assert table.by_key["cat", False].boxed_images == ()


def test_captions_without_parses_have_no_objects(object_words):
    roster = Roster(name="empty", samples=(sample(0, "A dog runs ."),))
    assert build_object_table(roster, [()], object_words=object_words).classes == ()


def test_bad_arguments_are_refused(object_words):
    with pytest.raises(ValueError, match="must have one parse: got more or fewer than 18"):
        build_object_table(ROSTER, [], object_words=object_words)
    with pytest.raises(ValueError, match="min_uses must be at least 1"):
        build_object_table(ROSTER, [()] * 18, object_words=object_words, min_uses=0)


def test_a_man_has_boxes_labelled_person(parser, object_words):
    caption = "A man runs ."
    (parse,) = parser.parse([caption])
    (man,) = find_mentions(caption, parse, object_words)
    sample_with_boxes = sample(
        0, caption, regions=(BOX, type(BOX)(box=(0.0, 0.0, 5.0, 5.0), label="person"))
    )
    assert boxes_of(sample_with_boxes, man, parse, build_labels()) == (1,)
    assert boxes_of(sample_with_boxes, man, parse, {}) == ()


def people(parser, object_words, caption: str, *names: str):
    """Boxes of each mention among regions with such labels, and whether others share them."""
    (parse,) = parser.parse([caption])
    regions = tuple(
        Region(box=(10.0 * n, 0.0, 10.0 * n + 5, 9.0), label=name) for n, name in enumerate(names)
    )
    photo, labels = sample(0, caption, regions=regions), build_labels()
    mentions = find_mentions(caption, parse, object_words)
    return {
        mention.form: (
            boxes_of(photo, mention, parse, labels),
            *(
                shares_boxes(photo, parse, mention, mentions, labels, same_label=same_label)
                for same_label in (True, False)
            ),
        )
        for mention in mentions
    }


def test_boxes_of_the_objects_own_word_are_preferred(parser, object_words):
    read = partial(people, parser, object_words)
    shared, free = (True, True), (False, False)
    assert read("A man runs .", "Man", "woman", "person", "man") == {"man": ((0, 3), *free)}
    assert read("Two men run .", "man", "woman", "men") == {"men": ((0, 2), *free)}
    assert read("Two people run .", "man", "woman") == {"people": ((0, 1), *free)}
    assert read("A man sees a woman .", "woman", "man") == {
        "man": ((1,), *free),
        "woman": ((0,), *free),
    }
    assert read("A man sees a woman .", "person", "person") == {
        "man": ((0, 1), *shared),
        "woman": ((0, 1), *shared),
    }
    # either may be the man
    assert read("A man sees a woman .", "woman", "woman") == {
        "man": ((0, 1), *shared),
        "woman": ((0, 1), *shared),
    }
    assert read("A man sees two men .", "man", "man") == {
        "man": ((0, 1), True, False),
        "men": ((0, 1), True, False),
    }
    assert read("A man holds a ball .", "person") == {"man": ((0,), *free), "ball": ((), *free)}


def test_boxes_of_phrases_are_not_shared_by_labels(parser, object_words):
    caption = "A man sees another man ."
    (parse,) = parser.parse([caption])
    first, second = find_mentions(caption, parse, object_words)
    photo = grounded(caption, "A man", Region(box=(0.0, 0.0, 5.0, 9.0), label="man"))
    rules = {"mentions": (first, second), "labels": build_labels(), "same_label": True}
    assert not shares_boxes(photo, parse, first, **rules)
    assert shares_boxes(photo, parse, second, **rules)


def test_phrases_ground_their_own_objects(parser, object_words):
    caption = "A man holds a red ball ."
    (parse,) = parser.parse([caption])
    man, ball = find_mentions(caption, parse, object_words)
    sample_with_boxes = grounded(caption, "a red ball", BOX)
    assert boxes_of(sample_with_boxes, ball, parse, {}) == (0,)
    assert boxes_of(sample_with_boxes, man, parse, {}) == ()


def test_labels_come_from_a_file_too(tmp_path):
    (tmp_path / "classes.txt").write_text("television,tv\ncat\n")
    assert build_labels(str(tmp_path / "classes.txt"))["tv"] == {"television", "tv"}
    with pytest.raises(FileNotFoundError, match="does not exist; give coco"):
        build_labels("nowhere.txt")


def test_a_form_never_seen_is_inflected():
    assert ObjectClass(name="fire hydrant", plural=True, count=0).noun == "fire hydrants"


def test_grammar_must_be_seen_often_enough():
    snow = ObjectClass(name="snow", plural=False, count=100, frames={"bare": 40, "counted": 6})
    assert snow.fits_frames(("bare",))
    assert not snow.fits_frames(("counted",))  # far rarer than without article
    assert not snow.fits_frames(("of",))
    assert snow.fits_frames(())


def test_a_part_must_be_played_often_enough():
    cat = ObjectClass(
        name="cat", plural=False, count=100, slots={"subject": 50, "in": 1, "object of wear": 2}
    )
    assert cat.fills_slot("subject")
    assert cat.fills_slot("object of wear")
    assert not cat.fills_slot("in")


def test_words_of_one_class_of_the_file_share_their_boxes(parser, tmp_path):
    """A detector calls a class by the first of its names; captions have the others, too."""
    (tmp_path / "classes.txt").write_text("lamp post,lamppost\ndonuts,doughnuts\nman\n")
    file = str(tmp_path / "classes.txt")
    words, labels = build_object_words(file), labels_of(file)
    for caption, label in (("A lamppost .", "lamp post"), ("Two doughnuts .", "donuts")):
        (parse,) = parser.parse([caption])
        (mention,) = find_mentions(caption, parse, words)
        region = Region(box=(0.0, 0.0, 5.0, 9.0), label=label)
        photo = sample(0, caption, regions=(region,))
        assert boxes_of(photo, mention, parse, labels) == (0,)
        assert boxes_of(photo, mention, parse, {}) == ()
    assert "person" in labels["man"]
    assert labels_of(None) == build_labels()
