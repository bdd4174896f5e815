"""Captions with another object: the same for a sample whatever else is drawn."""

from __future__ import annotations

import pytest
from small_set import CAPTIONS, ROSTER, sample

from augmentation.cutswap.clusters import cluster_words
from augmentation.cutswap.text import (
    NO_ATTRIBUTE,
    NO_BOX,
    NO_FRAME,
    NO_NUMBER,
    NO_OBJECT,
    NO_VECTOR,
    NO_WORDS,
    SINGLE_CLASS,
    CaptionSwapper,
    SwapRules,
    count_problems,
)

LOOSE = {"match_grammar": False, "match_slots": False}


@pytest.fixture
def swapper(table, embeddings, one_cluster, object_words):
    def build(*, seed: int = 0, clusters=one_cluster, **rules) -> CaptionSwapper:
        return CaptionSwapper(
            table=table,
            clusters=clusters,
            embeddings=embeddings,
            object_words=object_words,
            rules=SwapRules(**rules),
            seed=seed,
        )

    return build


@pytest.fixture
def swap(swapper, parser):
    def swapped(caption: str, *, row: int = 0, **options):
        (parse,) = parser.parse([caption])
        return swapper(**options).swap(sample(row, caption), parse)

    return swapped


def test_object_and_attribute_are_those_that_occur_together(swap):
    swaps = swap("A black dog runs .").swaps
    assert {result.caption for result in swaps} == {
        "A brown dog runs .",
        "A white cat runs .",
        "An old cat runs .",
    }
    assert {(result.old_object, result.old_attribute) for result in swaps} == {("dog", "black")}
    (old,) = (result for result in swaps if result.new_attribute == "old")
    assert [span.kind for span in old.spans] == ["article", "attribute", "object"]


def test_an_object_without_attribute_gets_none_unless_asked_for(swap):
    assert {result.caption for result in swap("A dog runs .").swaps} >= {"A cat runs ."}
    assert all(not result.new_attribute for result in swap("A dog runs .").swaps)
    some = {result.caption for result in swap("A dog runs .", insert_attributes=True).swaps}
    assert some == {
        "A black dog runs .",
        "A brown dog runs .",
        "A white cat runs .",
        "An old cat runs .",
    }


def test_articles_go_by_sound_unless_left_as_in_the_thesis(swap):
    swaps = swap("A black dog runs .", correct_articles=False).swaps
    assert "A old cat runs ." in {result.caption for result in swaps}


def test_what_other_captions_describe_gets_an_attribute_that_stays_unsaid(swapper, parser):
    caption = "A dog runs ."
    (parse,) = parser.parse([caption])
    swaps = swapper().swap(sample(0, caption), parse, described={("dog", False)}).swaps
    assert {result.caption for result in swaps} == {"A cat runs ."}
    assert {result.new_attribute for result in swaps} == {"white", "old"}


def test_plurals_are_swapped_with_plurals(swap):
    swaps = swap("Two black dogs run .").swaps
    assert [result.caption for result in swaps] == ["Two small horses run ."]
    assert swaps[0].plural


def test_captions_differ_and_are_at_most_as_many_as_asked_for(swap):
    captions = [
        result.caption for result in swap("A black dog runs .", num_captions=2, **LOOSE).swaps
    ]
    assert len(captions) == len(set(captions)) == 2
    assert "A black dog runs ." not in captions


def test_draws_depend_on_seed_and_sample_alone(swapper, parses):
    pairs = list(zip(ROSTER.samples, parses, strict=True))
    forward = [swapper().swap(*pair) for pair in pairs]
    backward = [swapper().swap(*pair) for pair in reversed(pairs)]
    assert forward == backward[::-1]
    others = [swapper(seed=1).swap(*pair) for pair in pairs]
    assert others != forward


def test_one_object_is_changed_or_each_draws_its_own(swap):
    caption = "A black dog and a brown dog sit in the grass ."

    def places(swaps) -> set[bool]:
        """Whether the first half of the caption was changed."""
        return {result.spans[-1].old_start < caption.index(" and") for result in swaps}

    for row in range(5):
        assert len(places(swap(caption, row=row).swaps)) == 1
    assert places(swap(caption, one_object=False).swaps) == {False, True}


def test_the_object_is_chosen_at_random(swap):
    caption = "A dog sits in the snow ."
    assert {swap(caption, row=row).swaps[0].old_object for row in range(12)} == {"dog", "snow"}


def test_a_mass_is_not_counted_and_a_part_is_one_that_is_played(swap):
    swaps = swap("A dog runs .", match_slots=False).swaps
    assert not {"snow", "grass", "sand"} & {result.new_object for result in swaps}
    swaps = swap("A dog runs .", match_grammar=False).swaps
    assert not {"snow", "ball"} & {result.new_object for result in swaps}
    assert {"snow", "ball"} <= {result.new_object for result in swap("A dog runs .", **LOOSE).swaps}


def test_pronouns_keep_their_owner(swap):
    caption = "A man holds his red ball ."
    heard = [swap(caption, row=row).swaps for row in range(8)]
    assert not any(result.new_object == "woman" for swaps in heard for result in swaps)
    heard = [swap(caption, row=row, match_pronouns=False).swaps for row in range(8)]
    assert any(result.new_object == "woman" for swaps in heard for result in swaps)


def test_an_object_is_not_repeated_unless_allowed(swap):
    caption = "A dog sits near a cat ."
    swaps = [result for row in range(6) for result in swap(caption, row=row, **LOOSE).swaps]
    assert not [result for result in swaps if result.new_object in ("dog", "cat")]
    swaps = [
        result
        for row in range(6)
        for result in swap(caption, row=row, allow_repeats=True, **LOOSE).swaps
    ]
    assert [result for result in swaps if result.new_object in ("dog", "cat")]


@pytest.mark.parametrize(
    ("caption", "options", "problem"),
    [
        ("It rains .", {}, NO_OBJECT),
        ("A dog runs .", {"need_boxes": True}, NO_BOX),
        ("A truck .", {}, NO_VECTOR),
        ("A woman runs .", {"num_clusters": 99, **LOOSE}, SINGLE_CLASS),
        ("A tall man runs .", {"num_clusters": 99}, NO_ATTRIBUTE),
        ("Two women run .", {"num_clusters": 99}, NO_NUMBER),
        ("A dog of stone runs .", {}, NO_FRAME),
    ],
)
def test_why_there_is_no_swap(swap, embeddings, caption, options, problem):
    number = options.pop("num_clusters", None)
    if number is not None:
        options = {**options, "clusters": cluster_words(embeddings, num_clusters=number)}
    result = swap(caption, **options)
    assert (result.swaps, result.problem) == ((), problem)


def test_a_caption_without_tags_is_counted(swapper):
    result = swapper().swap(sample(0, "A dog"), ())
    assert result.problem == NO_WORDS


def test_samples_are_counted_by_what_became_of_them(swapper, parses):
    results = [swapper().swap(*pair) for pair in zip(ROSTER.samples, parses, strict=True)]
    counts = count_problems(results)
    assert sum(counts.values()) == len(CAPTIONS)
    assert counts[NO_OBJECT] == 1
    assert counts["swapped"] >= 12


def test_boxes_of_the_old_object_come_along(swapper, parses):
    for row in range(8):
        drawn = swapper(need_boxes=True, seed=row).swap(ROSTER.samples[0], parses[0])
        assert {result.old_object for result in drawn.swaps} == {"dog"}
        assert {result.regions for result in drawn.swaps} == {(1,)}


@pytest.mark.long
def test_classes_are_drawn_alike_or_by_their_mentions(swap):
    def share_of_snow(draw_by: str) -> float:
        options = {"draw_by": draw_by, "num_captions": 1, **LOOSE}
        drawn = [swap("A woman runs .", row=row, **options).swaps[0] for row in range(200)]
        return sum(result.new_object == "snow" for result in drawn) / len(drawn)

    # a quarter of the mentions, but one of 8 classes
    assert share_of_snow("count") > share_of_snow("uniform") + 0.05


def test_bad_rules_are_refused():
    with pytest.raises(ValueError, match="draw_by must be uniform or count"):
        SwapRules(draw_by="rows")


def test_no_captions_cannot_be_asked_for():
    with pytest.raises(ValueError, match="num_captions must be at least 1"):
        SwapRules(num_captions=0)
