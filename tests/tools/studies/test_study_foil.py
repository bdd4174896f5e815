"""Foils are of the same super-category, and no caption of the photo names them."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from captioning.data.roster import Roster, build_roster
from captioning.types import Sample

STUDIES = Path(__file__).resolve().parents[3] / "tools" / "studies"
sys.path.insert(0, str(STUDIES))

import study_foil as study  # noqa: E402


def roster_of(captions: list[tuple[str, str]]) -> Roster:
    samples = [
        Sample(
            row=row,
            sample_id=f"{image}#{row}",
            image_id=image,
            image_path=Path(image),
            caption=caption,
        )
        for row, (image, caption) in enumerate(captions)
    ]
    return build_roster("set", samples)


@pytest.mark.parametrize(
    ("word", "expected"),
    [("dog", "animal"), ("puppies", "animal"), ("Bikes", "vehicle"), ("shirt", ""), ("monkey", "")],
)
def test_words_have_the_super_category_of_their_class(word: str, expected: str) -> None:
    assert study.super_category(word) == expected


def test_foils_are_named_by_no_caption_of_the_photo() -> None:
    roster = roster_of(
        [("a", "A dog runs."), ("a", "Two cats and a horse."), ("b", "A shirt and a monkey.")]
    )
    found = {
        (place.row, place.word): {word for _, word in place.others}
        for place in study.places(roster)
    }
    assert set(found) == {(0, "dog"), (1, "cats"), (1, "horse")}
    assert found[0, "dog"] == {
        *("bird", "sheep", "cow", "elephant", "bear", "zebra", "giraffe"),
    }
    assert {"birds", "cows"} <= found[1, "cats"]
    assert not found[1, "cats"] & {"dogs", "horses"}


def test_the_most_doubted_word_is_the_one_that_another_fits_better() -> None:
    likely, unlikely = np.log([0.7, 0.2, 0.1]), np.log([0.1, 0.1, 0.8])
    start, odds = study.most_doubted([(2, 0, likely), (9, 0, unlikely)])
    assert start == 9
    assert odds == pytest.approx(np.log(8))
