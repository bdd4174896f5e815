"""Object words: singular and plural, pairs before single words, lists by name and by file."""

from __future__ import annotations

from pathlib import Path

import pytest

from captioning.text.object_words import (
    COCO_OBJECTS,
    NONE,
    PLURAL,
    SINGULAR,
    ObjectWords,
    build_labels,
    build_object_words,
)

S, P, N = SINGULAR, PLURAL, NONE


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        ("a dog runs", [N, S, N]),
        ("two dogs run", [N, P, N]),
        ("men and women with children", [P, N, P, N, P]),
        ("people on a bus", [P, N, N, S]),
        ("three buses", [N, P]),
        ("a hot dog on a plate", [N, S, S, N, N, N]),
        ("two hot dogs", [N, P, P]),
        ("a fire hydrant and stop signs", [N, S, S, N, P, P]),
        ("the grass is wet", [N, N, N, N]),
        ("", []),
    ],
)
def test_numbers_of_words(caption: str, expected: list[int]) -> None:
    assert build_object_words("coco").numbers(caption.split()) == expected


def test_a_context_has_one_stand_in_for_a_pair() -> None:
    words = build_object_words("coco")
    caption = ["two", "men", "eat", "hot", "dogs", "at", "a", "table"]
    assert words.spans(caption) == [(1, 2, P), (3, 5, P), (7, 8, S)]
    assert words.context(caption) == "two things eat things at a something"
    assert words.context(["nothing", "here"]) == "nothing here"


def test_of_overlapping_pairs_the_earlier_one_counts() -> None:
    names = ["table tennis", "tennis balls"]
    words = ObjectWords(names=names, lemmatizer=build_object_words("coco")._lemmatizer)
    assert words.numbers(["table", "tennis", "balls"]) == [SINGULAR, SINGULAR, PLURAL]
    assert words.spans(["table", "tennis", "balls"]) == [(0, 2, SINGULAR)]


def test_all_classes_of_coco_are_there() -> None:
    assert len(COCO_OBJECTS) == 80
    words = build_object_words("coco")
    for names in COCO_OBJECTS:
        for name in names.split(","):
            assert set(words.numbers(name.split())) <= {SINGULAR, PLURAL}, name


def test_a_file_of_visual_genome(shared_data: Path) -> None:
    words = build_object_words(str(shared_data / "lists" / "vg_vocab" / "objects_vocab.txt"))
    caption = "a girl with jeans and tennis shoes near giraffes on grass"
    numbers = words.numbers(caption.split())
    assert numbers == [N, S, N, P, N, P, P, N, P, N, S]


def test_a_file_in_neural_baby_talks_layout(tmp_path: Path) -> None:
    """It has doubles, double blanks, blanks at the end and capitals."""
    path = tmp_path / "coco_class_name.txt"
    lines = "bus, minibus, bus\ncow, ox, bison \ncake,  cupcake\ncell phone, phone, iPhone"
    path.write_text(lines, encoding="utf-8")
    words = build_object_words(str(path))
    assert words.words == {"bus", "minibus", "cow", "ox", "bison", "cake", "cupcake"} | {
        "phone",
        "iphone",
    }
    assert words.pairs == {("cell", "phone")}
    assert build_labels(str(path))["bison"] == {"cow", "ox", "bison"}


def test_lists_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere.txt does not exist"):
        build_object_words(str(tmp_path / "nowhere.txt"))
    (tmp_path / "long.txt").write_text("a very long name\n")
    with pytest.raises(ValueError, match="one or two words"):
        build_object_words(str(tmp_path / "long.txt"))
