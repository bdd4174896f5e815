"""Held-out classes: which photos are novel, and what is left of the classes elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from augmentation.novel_objects.method import count_candidates, read_predictions
from augmentation.novel_objects.novel_class import read_words, split_held_out
from captioning.data.roster import Roster, build_roster
from captioning.runtime.files import write_json
from captioning.text.lemmas import load_lemmas
from captioning.text.object_words import LEMMAS
from tests.augmentation.regions.scenes import sample

LEMMATIZER = load_lemmas(LEMMAS)


def captions(**by_image: list[str]) -> Roster:
    samples = [
        sample(Path(f"{image}.png"), text, [], number=number)
        for image, texts in by_image.items()
        for number, text in enumerate(texts)
    ]
    return build_roster("r", samples)


def test_one_caption_that_names_a_class_holds_its_photo_out():
    roster = captions(a=["A cat.", "Two ZEBRAS."], b=["A cat.", "A zebrafish."], c=["A big bus!"])
    words = {"zebra": ["zebra", "zebras"], "bus": ["bus"]}
    split = split_held_out(roster, words, lemmatizer=LEMMATIZER)
    assert [(p.image_id, p.classes) for p in split.novel] == [("a", ("zebra",)), ("c", ("bus",))]
    assert [s.sample_id for s in split.in_domain.samples] == ["b#0", "b#1"]
    assert [s.row for s in split.in_domain.samples] == [0, 1]
    assert split.leaks == {}


def test_forms_that_a_list_lacks_are_counted():
    roster = captions(a=["Buses, buses.", "Some buses."], b=["A bus."], c=["No busy man."])
    split = split_held_out(roster, {"bus": ["bus", "busses"]}, lemmatizer=LEMMATIZER)
    assert split.leaks == {"buses": 2}


def test_names_of_several_words_are_found_in_a_row():
    roster = captions(a=["A tennis racket."], b=["A racket for tennis."])
    split = split_held_out(roster, {"racket": ["tennis racket"]}, lemmatizer=LEMMATIZER)
    assert [photo.image_id for photo in split.novel] == ["a"]


def test_nothing_left_and_no_words_are_refused():
    roster = captions(a=["A dog."])
    with pytest.raises(ValueError, match="every photo"):
        split_held_out(roster, {"dog": ["dog"]}, lemmatizer=LEMMATIZER)
    with pytest.raises(ValueError, match="has no words"):
        split_held_out(roster, {"dog": [" "]}, lemmatizer=LEMMATIZER)


def test_the_words_of_dcc_are_read(shared_data: Path):
    path = shared_data / "lists" / "dcc_heldout" / "transfer_words_coco1.txt"
    words = read_words(path, lemmatizer=LEMMATIZER)
    assert words["bus"] == ["bus", "busses"]
    assert words["zebra"] == ["zebra", "zebras"]
    assert len({form for forms in words.values() for form in forms}) == 20


def test_a_missing_or_empty_list_is_refused(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        read_words(tmp_path / "none.txt", lemmatizer=LEMMATIZER)
    (tmp_path / "empty.txt").write_text("\n")
    with pytest.raises(ValueError, match="no words"):
        read_words(tmp_path / "empty.txt", lemmatizer=LEMMATIZER)


def test_candidates_are_counted_in_all_mentions_equals_by_name():
    predictions = {
        "1": "A cup and a Cup.",
        "2": "A vase by a cup.",
        "3": "A glass.",
        "4": "Glasses.",
    }
    names = {name: [name] for name in ("vase", "cup", "glass")}
    assert count_candidates(predictions, ["1", "2", "3"], names, max_candidates=2) == (
        "cup",
        "glass",
    )
    assert count_candidates(predictions, ["4", "5"], names, max_candidates=2) == ()
    several = {"1": "A glass, a glass.", "2": "A vase.", "3": "A cup."}
    assert count_candidates(several, ["1", "2", "3"], names, max_candidates=1) == ("glass",)


def test_a_hot_dog_is_counted_as_no_dog():
    predictions = {"1": "A hot dog.", "2": "Hot  dogs and a dog.", "3": "Two glasses of wine."}
    names = {
        "dog": ("dog", "dogs"),
        "hot dog": ("hot dog", "hot dogs"),
        "wine glass": ("wine glass", "glasses"),
        "mug": ("mug", "glasses"),
    }
    counted = count_candidates(predictions, list(predictions), names, max_candidates=4)
    assert counted == ("hot dog", "dog", "mug", "wine glass")
    assert count_candidates(predictions, ["1"], names, max_candidates=2) == ("hot dog",)
    assert count_candidates(predictions, ["1"], {}, max_candidates=2) == ()


def test_predictions_are_read_as_runs_write_them(tmp_path: Path):
    path = tmp_path / "p.json"
    write_json(path, [{"image_id": 7, "caption": "a"}, {"image_id": "x", "captions": ["b", "c"]}])
    assert read_predictions(path) == {"7": "a", "x": "b"}
    write_json(path, [{"caption": "a"}])
    with pytest.raises(ValueError, match="image_id"):
        read_predictions(path)
