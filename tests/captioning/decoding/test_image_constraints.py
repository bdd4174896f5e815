"""Constraints of a data set's images, from a file and from regions."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from captioning.decoding.image_constraints import (
    constraints_from_classes,
    constraints_from_file,
    constraints_from_regions,
)
from captioning.text.tokenizers.words import WordTokenizer
from captioning.types import UNPAIRED, Region, Sample

TOKENIZER = WordTokenizer(words=["a", "dog", "dogs", "cat", "traffic", "light"])


def samples(regions: dict[str, tuple[Region, ...]]) -> list[Sample]:
    return [
        Sample(
            row=row,
            sample_id=f"{image_id}#0",
            image_id=image_id,
            image_path=Path("x.jpg"),
            caption="a",
            regions=image_regions,
        )
        for row, (image_id, image_regions) in enumerate(regions.items())
    ]


def met(constraints, image_id: str, caption: str) -> int:
    (machine,) = constraints.machines([image_id], TOKENIZER)
    return machine.met[machine.run(TOKENIZER.encode(caption))]


def test_a_file_gives_words_and_alternatives(tmp_path: Path):
    path = tmp_path / "c.json"
    path.write_text(json.dumps({"1": [["dog", "dogs"], "traffic light"], "2": ["zebra"]}))
    constraints = constraints_from_file(samples({"1": (), "2": ()}), path=path, required=1)
    assert met(constraints, "1", "dogs") == met(constraints, "1", "a traffic light") == 1
    assert met(constraints, "1", "a dog a traffic light") == 2
    first, second = constraints.machines(["1", "2"], TOKENIZER)
    assert (first.required, first.num_constraints) == (1, 2)
    assert (second.required, second.num_constraints) == (0, 0)
    assert constraints.missing(TOKENIZER) == [("zebra",)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]", "must be an object of image ids: got list"),
        ("{", "not valid JSON"),
        (
            '{"9": ["dog"]}',
            "none of its 1 images is in the dataset: the file has ids such as '9', the",
        ),
        ('{"1": "dog"}', "'1' must have a list of constraints: got 'dog'"),
        ('{"1": [3]}', "'1' must have a list of words or of lists of words"),
        ('{"1": [[]]}', "'1' must have a list of words or of lists of words"),
        ('{"1": [""]}', "'1' must have a list of words or of lists of words"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, text: str, message: str):
    path = tmp_path / "c.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as error:
        constraints_from_file(samples({"1": ()}), path=path)
    assert str(path) in str(error.value)


def test_too_many_constraints_name_the_image(tmp_path: Path):
    path = tmp_path / "c.json"
    path.write_text(json.dumps({"1": ["dog"] * 9}))
    with pytest.raises(ValueError, match="image 1: constraints must be at most 8: got 9"):
        constraints_from_file(samples({"1": ()}), path=path).machines(["1"], TOKENIZER)


def test_entries_of_other_images_are_not_used(tmp_path: Path):
    path = tmp_path / "c.json"
    path.write_text(json.dumps({"1": ["dog", "zebra"], "3": ["dog"] * 9, "4": ["lion"]}))
    constraints = constraints_from_file(samples({"1": (), "2": ()}), path=path)
    assert constraints.missing(TOKENIZER) == [("zebra",)]


def test_regions_give_their_surest_labels():
    def region(label: str, score: float, left: float) -> Region:
        return Region(box=(left, 0, left + 10, 10), label=label, score=score)

    regions = (region("dog", 0.5, 0), region("cat", 0.9, 20), region("hair", 0.99, 40))
    constraints = constraints_from_regions(
        samples({"1": regions, "2": ()}),
        blacklist=["hair"],
        forms={"dog": ["dogs"]},
        max_constraints=2,
    )
    assert constraints.words == {"1": [("cat",), ("dog", "dogs")], "2": []}
    assert met(constraints, "1", "a cat dogs") == 2


def test_a_data_set_without_regions_is_refused():
    with pytest.raises(ValueError, match="needs a dataset with labelled regions, but this one has"):
        constraints_from_regions(samples({"1": ()}))


CLASSES = {"dog": ["dog", "dogs"], "cat": ["cat"]}


def test_names_of_classes_are_constraints_only_where_they_stand_in_for_captions():
    first, second, captioned = samples({"1": (), "2": (), "3": ()})
    waiting = [
        replace(first, caption="cat, dog", origin=UNPAIRED, weight=0.0),
        replace(second, caption="dog", origin=UNPAIRED, weight=0.0),
    ]
    constraints = constraints_from_classes(
        [*waiting, replace(captioned, caption="dog")], classes=CLASSES
    )
    assert constraints.words == {"1": [("cat",), ("dog", "dogs")], "2": [("dog", "dogs")]}
    assert constraints.required == 1


@pytest.mark.parametrize("classes", [{}, None])
def test_held_out_words_need_classes(classes):
    unpaired = [replace(sample, origin=UNPAIRED) for sample in samples({"1": ()})]
    with pytest.raises(ValueError, match="needs classes, .* choose steps=.* in training"):
        constraints_from_classes(unpaired, classes=classes)


def test_held_out_words_need_photos_without_captions():
    with pytest.raises(
        ValueError, match="none of the 2 samples has origin 'unpaired'; in training"
    ):
        constraints_from_classes(samples({"1": (), "2": ()}), classes=CLASSES)
