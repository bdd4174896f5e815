"""Long captions are joined of a photo's short ones, and planted faults keep their places."""

from __future__ import annotations

from pathlib import Path

import pytest

from captioning.data.roster import CurationView, PlantedWord, Roster, build_roster
from captioning.data.steps.base import StepContext
from captioning.data.steps.compose_captions import ComposeCaptions
from captioning.data.steps.plant_faults import PlantFaults
from captioning.text.sentence_spans import sentence_spans
from captioning.types import Edit, Sample
from curation.loop.planted_faults import faulty_kinds, wrong_sentences

TEXTS = ("a {} dog runs .", "A {} dog.", " two dogs play", "A {} dog.", "the dog barks !")
COLOURS = ("red", "blue", "brown", "black", "white", "yellow")


def make_roster() -> Roster:
    samples = [
        Sample(
            row=0,
            sample_id=f"{image}#{number}",
            image_id=image,
            image_path=Path(f"{image}.jpg"),
            caption=text.format(COLOURS[place]),
        )
        for place, image in enumerate("pqrstu")
        for number, text in enumerate(TEXTS)
    ]
    return build_roster("toy/train", samples)


def context() -> StepContext:
    return StepContext(split="train", seed=0, cache_folder=Path("nowhere"))


def test_captions_become_sentences_of_one() -> None:
    long = ComposeCaptions()(make_roster(), context())
    assert [sample.sample_id for sample in long.samples] == [f"{name}#long" for name in "pqrstu"]
    text = "A red dog runs. A red dog. Two dogs play. The dog barks !"
    assert long.samples[0].caption == text
    assert len(sentence_spans(text)) == 4
    short = ComposeCaptions(num_sentences=2)(make_roster(), context())
    assert short.samples[0].caption == "A red dog runs. A red dog."
    assert [item.item for item in short.dropped[:3]] == ["p#2", "p#3", "p#4"]


def test_planted_sentences_are_told_by_kind_and_place() -> None:
    known = context()
    kinds = {"swap": 0.1, "color": 0.1}  # three of thirty captions each
    planted = PlantFaults(kinds=kinds, seed=1, one_per_photo=True)(make_roster(), known)
    assert len({planted.by_id[name].image_id for name in known.truth}) == 6
    faulty = {planted.by_id[name].image_id: planted.by_id[name].caption for name in known.truth}
    long = ComposeCaptions()(planted, known)
    assert sorted(known.truth.values()) == ["color"] * 3 + ["swap"] * 3
    assert known.truth == long.planted
    assert known.planted_words == long.planted_words
    starts = wrong_sentences(CurationView(roster=long))
    for sample in long.samples:
        word = known.planted_words[sample.sample_id]
        assert sample.caption[word.start : word.start + len(word.wrong)] == word.wrong
        stop = dict(sentence_spans(sample.caption))[starts[sample.row]]
        sentence = sample.caption[starts[sample.row] : stop]
        body = faulty[sample.image_id].strip().rstrip(" .")
        assert sentence.lower().startswith(body.lower())


def test_a_caption_is_sound_when_its_wrong_sentence_is_gone_and_not_before() -> None:
    word = PlantedWord(start=12, wrong="A cat sits.", right="")
    sample = Sample(
        row=0, sample_id="a", image_id="a", image_path=Path("a"),
        origin="noise:swap:12:A cat sits.>",
        caption="A dog runs. A cat sits. It rains.",
    )  # fmt: skip
    roster = build_roster("toy", [sample])
    assert roster.planted_words == {"a": word}
    view = CurationView(roster=roster)
    for caption, kinds, starts in (
        ("A cat sits. It rains.", {0: "swap"}, {0: 0}),
        ("A dog runs. It rains.", {}, {}),
        ("A dog runs. A cow eats. It rains.", {}, {}),
    ):
        edit = Edit(sample_id="a", action="replace_caption", value=caption, origin="sentence:0-11")
        after = view.apply([edit])
        assert faulty_kinds(after, roster.planted) == kinds
        assert wrong_sentences(after) == starts


def test_what_cannot_be_joined_is_refused() -> None:
    for kinds, problem in (
        ({"swap": 0.9}, r"more than one planted fault.*one_per_photo=true"),
        ({"image": 0.1}, r"another photo \(fault 'image'\)"),
    ):
        known = context()
        planted = PlantFaults(kinds=kinds, seed=1)(make_roster(), known)
        with pytest.raises(ValueError, match=problem):
            ComposeCaptions()(planted, known)
    with pytest.raises(ValueError, match=r"one_per_photo=true goes with .*: got 'negation'"):
        PlantFaults(kinds={"negation": 0.1}, seed=1, one_per_photo=True)(make_roster(), context())
