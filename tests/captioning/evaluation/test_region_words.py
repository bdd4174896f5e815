"""Constraints from regions, by the words that captions have for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hydra.utils import instantiate

from captioning.config.compose import compose_config
from captioning.data.steps.take_detections import detection_line
from captioning.decoding.image_constraints import ImageConstraints
from captioning.types import UNPAIRED, Phrase, Region, Sample


@pytest.fixture
def chosen(repository: Path) -> Callable[..., Callable[..., ImageConstraints]]:
    """The constraints that ``evaluate.py constraints=NAME`` builds."""

    def build(name: str, *overrides: str) -> Callable[..., ImageConstraints]:
        config = compose_config("evaluate", [f"constraints={name}", *overrides])
        return instantiate(config.constraints)

    return build


def sample(*regions: Region, text: str = "x", phrases: tuple[Phrase, ...] = ()) -> Sample:
    return Sample(
        row=0,
        sample_id=text,
        image_id="1",
        image_path=Path("1.jpg"),
        caption=text,
        regions=regions,
        phrases=phrases,
    )


def region(label: str, left: float = 0, score: float = 1.0, width: float = 10) -> Region:
    return Region(box=(left, 0, left + width, 10), label=label, score=score)


def firsts(constraints: ImageConstraints) -> list[str]:
    return [words[0] for words in constraints.words["1"]]


def test_regions_of_a_kind_are_called_by_the_phrases_of_all_captions(chosen) -> None:
    def phrase(text: str, kind: str, *regions: int) -> Phrase:
        return Phrase(start=0, text=text, chain_id=text, kinds=(kind,), regions=regions)

    regions = (region("animals"), region("people", 20), region("other", 40))
    samples = [
        sample(*regions, text="a", phrases=(phrase("a puppy", "animals", 0),)),
        sample(*regions, text="b", phrases=(phrase("two brown dogs", "animals", 0),)),
        sample(
            *regions,
            text="c",
            phrases=(phrase("The dogs", "animals", 0), phrase("a man", "people", 1)),
        ),
    ]
    assert firsts(chosen("detections")(samples)) == ["dog", "man", "other"]


def test_plurals_say_a_label_too(chosen) -> None:
    regions = [region("dog"), region("hot dog", 20), region("scissors", 40)]
    by_rule = chosen("detections")([sample(*regions)])
    assert by_rule.words["1"] == [("dog", "dogs"), ("hot dog", "hot dogs"), ("scissors",)]
    by_forms = chosen("detections", "+constraints.forms={dog: [puppy], hot dog: []}")
    words = by_forms([sample(*regions)]).words["1"]
    assert words == [("dog", "puppy"), ("hot dog",), ("scissors",)]


def test_boxes_of_files_come_in_the_place_of_annotated_ones(chosen, tmp_path: Path) -> None:
    path = tmp_path / "boxes.jsonl"
    found = [region("bus", score=0.6), region("couch", 30, score=0.9)]
    line = detection_line("1", "1.jpg", (100, 100), found)
    path.write_text(f'{{"detector": "x"}}\n{line}\n')
    constraints = chosen("detections", f"constraints.files=[{path}]")
    assert constraints([sample(region("dog"))]).words["1"] == [
        ("couch", "couches"),
        ("bus", "buses"),
    ]
    unseen = replace(sample(region("dog")), image_id="2")
    with pytest.raises(ValueError, match="lack 1 photos, such as 2"):
        constraints([unseen])


def test_classes_of_open_images_that_say_little_are_left_out_or_renamed(chosen) -> None:
    constraints = chosen("open_images")
    settings = constraints.keywords
    assert (len(settings["blacklist"]), len(settings["renames"])) == (39, 6)
    table, man = region("kitchen & dining room table"), region("man", 20)
    requirements = constraints([sample(table, man, region("traffic light", 40))])
    assert sorted(requirements.words["1"]) == [
        ("table", "tables"),
        ("traffic light", "traffic lights"),
    ]
    assert (requirements.required, settings["max_constraints"], settings["max_overlap"]) == (
        2,
        3,
        0.85,
    )


@pytest.mark.parametrize(
    ("low", "high"),
    [
        ("dog", "carnivore"),
        ("carnivore", "animal"),
        ("ladybug", "insect"),
        ("brown bear", "bear"),
        ("limousine", "car"),
        ("car", "vehicle"),
        ("boat", "watercraft"),
        ("table", "furniture"),
        ("pastry", "baked goods"),
        ("apple", "food"),
        ("fork", "kitchen utensil"),
        ("tableware", "kitchenware"),
    ],
)
def test_of_two_classes_of_open_images_the_lower_is_said(chosen, low: str, high: str) -> None:
    regions = [region(high, score=0.9), region(low, score=0.1)]
    assert firsts(chosen("open_images")([sample(*regions)])) == [low]


def test_three_boxes_of_a_class_of_open_images_are_one_constraint(chosen) -> None:
    zebras = [region("zebra", 20 * n, score=0.9) for n in range(3)]
    regions = [*zebras, region("bird", 80, score=0.2)]
    assert firsts(chosen("open_images")([sample(*regions)])) == ["zebra"]
    assert firsts(chosen("detections")([sample(*regions)])) == ["zebra", "bird"]


def test_classes_of_coco_are_called_as_captions_call_them(chosen) -> None:
    regions = [region("person"), region("tennis racket", 20), region("couch", 40)]
    words = chosen("coco")([sample(*regions)]).words["1"]
    assert words == [
        ("couch", "couches", "sofa", "sofas"),
        ("racket", "rackets", "racquet", "racquets"),
    ]


def test_labels_of_some_classes_alone_may_be_asked_for(chosen) -> None:
    regions = [region("dog", score=0.9), region("bus", 20, score=0.5)]
    assert firsts(chosen("detections", "constraints.only=[bus, cow]")([sample(*regions)])) == [
        "bus"
    ]


def test_references_say_which_of_the_classes_are_there(chosen) -> None:
    constraints = chosen("references", "constraints.classes={dog: [dog, dogs], bus: [bus, buses]}")
    requirements = constraints([sample(text="Dogs run."), sample(text="A dog near a bus.")])
    assert requirements.words == {"1": [("dog", "dogs"), ("bus", "buses")]}
    with pytest.raises(ValueError, match="no reference names one of dog, bus"):
        constraints([sample(text="A cow.")])


def test_pseudo_labels_of_held_out_coco_are_asked_of_a_detector(tmp_path: Path) -> None:
    path = tmp_path / "boxes.jsonl"
    found = [region("zebra"), region("animal", 0.1, score=0.2), region("mammal", 0.1)]
    line = detection_line("1", "1.jpg", (100, 100), found)
    path.write_text(f'{{"detector": "x"}}\n{line}\n')
    overrides = [
        "experiment=novel_objects/coco_heldout_pseudo_labels",
        f"curation.amend.constraints.files=[{path}]",
    ]
    settings = compose_config("train", overrides).curation.amend
    unpaired = replace(sample(region("bus"), text="bus"), origin=UNPAIRED)
    words = instantiate(settings.constraints)([unpaired]).words
    assert words == {"1": [("zebra", "zebras"), ("animal", "animals")]}  # overlapping ones stay
    assert settings.plain.ended == settings.constrained.ended == "hold"  # as updown-baseline
    assert not settings.met_only  # each photo gets its captions
    without_file = compose_config("train", overrides[:1]).curation.amend.constraints
    with pytest.raises(FileNotFoundError, match=r"constraints\.files=\[FILE of captioning find"):
        instantiate(without_file)([unpaired])
