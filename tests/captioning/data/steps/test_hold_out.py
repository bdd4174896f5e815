"""What is left of a training set without some classes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from captioning.data.roster import Roster, build_roster
from captioning.data.steps.base import StepContext
from captioning.data.steps.hold_out import HoldOut, classes_shown, hold_out
from captioning.text.lemmas import load_lemmas
from captioning.text.object_words import LEMMAS
from captioning.types import UNPAIRED, Phrase, Region, Sample

LEMMATIZER = load_lemmas(LEMMAS)
BUS, DOG = {"bus": ["bus", "buses"]}, {"hot dog": ["hot dog"], "dog": ["dog", "dogs"]}


def roster(**captions: tuple[str, ...]) -> Roster:
    return build_roster(
        "some/train",
        [
            Sample(
                row=0, sample_id=f"{image}#{number}", image_id=image, image_path=Path(image),
                caption=text,
            )
            for image, texts in captions.items()
            for number, text in enumerate(texts)
        ],
    )  # fmt: skip


def test_all_captions_of_a_photo_go_if_one_mentions_the_class() -> None:
    everything = roster(a=("Two Buses.", "A street"), b=("A busy street", "a bush"))
    remaining = hold_out(everything, classes=BUS, lemmatizer=LEMMATIZER)
    assert [sample.sample_id for sample in remaining.samples] == ["b#0", "b#1"]
    assert [(entry.item, entry.rule) for entry in remaining.dropped] == [
        ("a#0", "held out: bus"),
        ("a#1", "held out: bus"),
    ]


def test_photos_can_wait_for_captions() -> None:
    everything = roster(a=("A dog eats a hot dog", "x"), b=("y",))
    remaining = hold_out(everything, classes=DOG, samples_per_photo=2, lemmatizer=LEMMATIZER)
    waiting = remaining.samples[1:]
    assert [sample.sample_id for sample in waiting] == ["a#unpaired0", "a#unpaired1"]
    assert {sample.caption for sample in waiting} == {"dog, hot dog"}
    assert {(sample.origin, sample.weight) for sample in waiting} == {(UNPAIRED, 0.0)}
    assert remaining.samples[0].weight == 1
    assert "A dog" not in " ".join(sample.caption for sample in remaining.samples)


def test_regions_of_waiting_photos_are_called_by_the_phrases_that_go() -> None:
    everything = roster(a=("two dogs", "x"), b=("y",))
    phrase = Phrase(start=0, text="two dogs", chain_id="1", kinds=("animals",), regions=(0,))
    first, second, other = everything.samples
    region = Region(box=(0, 0, 9, 9), label="animals")
    samples = [
        replace(first, regions=(region,), phrases=(phrase,)),
        replace(second, regions=(region,)),
    ]
    remaining = hold_out(
        build_roster("some/train", [*samples, other]),
        classes={"dog": ["dogs"]},
        samples_per_photo=1,
        lemmatizer=LEMMATIZER,
    )
    assert [region.label for region in remaining.samples[-1].regions] == ["dog"]
    assert remaining.samples[-1].phrases == ()


def test_phrases_are_found_as_wholes() -> None:
    shown = classes_shown(roster(a=("hot dogs",), b=("a HOT DOG",), c=("dogged",)), DOG)
    assert shown == {"a": {"dog"}, "b": {"dog", "hot dog"}}


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        ({"bus": []}, "'bus' has no words"),
        ({"bus": ["bus"], "zebra": ["zebra"]}, "no caption mentions the held-out zebra"),
        ({"x": ["a"]}, "every photo shows a held-out class"),
    ],
)
def test_what_makes_no_sense_is_refused(classes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        hold_out(roster(a=("a bus",), b=("a car",)), classes=classes, lemmatizer=LEMMATIZER)


@pytest.mark.parametrize("number", [-1, 0.5, "two"])
def test_a_number_of_samples_that_cannot_be_is_named(number) -> None:
    with pytest.raises(ValueError, match=r"steps\.hold_out\.samples_per_photo must be .* got"):
        HoldOut(classes=BUS, samples_per_photo=number)


def test_the_step_counts_the_words_that_are_left(tmp_path: Path, caplog) -> None:
    context = StepContext(split="train", seed=0, cache_folder=tmp_path)
    everything = roster(a=("a bus",), b=("two buses",), c=("a car",))
    remaining = HoldOut(classes={"bus": ["bus"]})(everything, context)
    assert [sample.sample_id for sample in remaining.samples] == ["b#0", "c#0"]
    assert context.held_out_remaining == {"buses": 1}
    assert "buses (1); to hold them out too, add them to steps.hold_out.classes" in caplog.text


def test_a_part_of_the_photos_may_mention_no_held_out_class(tmp_path: Path, caplog) -> None:
    context = StepContext(split="train", seed=0, cache_folder=tmp_path, is_cut=True)
    step = HoldOut(classes={"bus": ["bus"], "zebra": ["zebra"]})
    with caplog.at_level("WARNING"):
        remaining = step(roster(a=("a bus",), b=("a car",)), context)
    assert [sample.sample_id for sample in remaining.samples] == ["b#0"]
    assert "no caption of these photos mentions the held-out zebra" in caplog.text
    assert len(step(roster(b=("a car",)), context)) == 1
