"""Negations that are missing, and those that stand where none belongs."""

from __future__ import annotations

from pathlib import Path

import pytest

from captioning.data.roster import PlantedWord, Roster, build_roster
from captioning.data.steps.plant_faults import negations, plant
from captioning.types import Sample


def roster_of(*photos: tuple[str, ...]) -> Roster:
    samples = [
        Sample(
            row=0,
            sample_id=f"{n}#{k}",
            image_id=str(n),
            image_path=Path(f"{n}.jpg"),
            caption=caption,
        )
        for n, captions in enumerate(photos)
        for k, caption in enumerate(captions)
    ]
    return build_roster("negations", samples)


def faults_of(*captions: str, number: int = 1) -> dict[int, tuple[str, PlantedWord]]:
    roster = roster_of(captions)
    return negations(roster, number, free=[True] * len(captions), seed=0)


@pytest.mark.parametrize(
    ("caption", "faulty", "planted"),
    [
        ("a boy without a hat", "a boy with a hat", (6, "with", "without")),
        ("a boy wearing no shirt", "a boy wearing a shirt", (14, "a", "no")),
        ("a boy with no apron", "a boy with an apron", (11, "an", "no")),
        ("a boy with no shoes", "a boy with shoes", (11, "shoes", "no shoes")),
        ("No shirt on a boy", "Shirt on a boy", (0, "Shirt", "No shirt")),
        ("With his hat on", "Without his hat on", (0, "Without", "With")),
        ("a boy wears a hat", "a boy wears no hat", (12, "no", "a")),
    ],
)
def test_a_negation_is_left_out_or_put_in(caption, faulty, planted):
    start, wrong, right = planted
    text, word = faults_of(caption)[0]
    assert text == faulty
    assert word == PlantedWord(start=start, wrong=wrong, right=right)
    assert text[start : start + len(wrong)] == wrong


@pytest.mark.parametrize(
    "captions",
    [
        ("a boy without a hat", "a boy wearing a hat"),  # one of them may be right
        ("a shirtless boy with a hat",),
        ("a boy with a hat", "somebody who is not there"),
        ("a boy with friends", "a dog"),
    ],
)
def test_what_other_captions_contradict_is_left_alone(captions):
    with pytest.raises(ValueError, match="1 faults of kind 'negation' are wanted, but 0 captions"):
        faults_of(*captions)


def test_half_are_left_out_where_there_are_so_many():
    photos = [("a boy without a hat",)] * 5 + [("a boy with a hat",)] * 20 + [("a dog",)] * 15
    roster = roster_of(*photos)
    planting = plant(roster, kinds={"negation": 0.2}, seed=0)
    assert plant(roster, kinds={"negation": 0.2}, seed=0) == planting
    assert set(planting.truth.values()) == {"negation"}
    rights = [word.right for word in planting.words.values()]
    assert len(rights) == 8
    assert rights.count("without") == 4
    many = plant(roster, kinds={"negation": 0.5}, seed=0).words.values()
    assert [word.right for word in many].count("without") == 5  # all there are
    assert plant(roster, kinds={"negation": 0.2}, seed=1) != planting
    for sample in planting.roster.samples:
        assert (sample.sample_id in planting.truth) == (
            sample.caption != roster.by_id[sample.sample_id].caption
        )


def test_a_caption_bears_one_fault():
    roster = roster_of(*[("a boy with a red hat",)] * 20)
    planting = plant(roster, kinds={"negation": 0.5, "color": 0.5}, seed=0)
    assert sorted(planting.truth.values()) == ["color"] * 10 + ["negation"] * 10
