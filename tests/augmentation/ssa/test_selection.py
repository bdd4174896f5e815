"""Which of a photo's new captions are kept: of small parts, of larger ones, and long ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from augmentation.captions.new_captions import NewCaption
from augmentation.ssa.method import Selection
from captioning.types import Phrase, Region, Sample

PHOTO = Sample(
    row=0,
    sample_id="p#0",
    image_id="p",
    image_path=Path("p.jpg"),
    caption="",
    regions=(Region(box=(0, 0, 40, 100), label="man"),),
    size=(100, 100),
)
MAN = Phrase(start=0, text="man", chain_id="1", regions=(0,))
NONE = {"max_small": 0, "min_captions": 0, "max_long": 0}
LENGTHS = {"min_long_words": 8, "max_long_words": 10}


def caption(text: str, *phrases: Phrase) -> NewCaption:
    """Of the whole photo, or of the man, who is .4 of it."""
    return NewCaption(sample=PHOTO, text=text, phrases=phrases)


def selected(candidates: Sequence[NewCaption], *, seed: int = 0, **settings) -> list[str]:
    options = {"small_coverage": 0.5, "seed": seed, **LENGTHS, **NONE}
    return [new.text for new in Selection(**options | settings).select(candidates)]


SMALL = [caption(f"man {number}", MAN) for number in range(3)]
LARGE = [caption(f"all {number}") for number in range(3)]


def test_captions_of_larger_parts_fill_up_to_the_number_that_is_wanted():
    for max_small, min_captions, num_small, num_large in (
        (9, 5, 3, 2),
        (9, 2, 3, 0),
        (1, 3, 1, 2),
        (0, 9, 0, 3),
    ):
        kept = selected(LARGE + SMALL, max_small=max_small, min_captions=min_captions)
        assert sum(text.startswith("man") for text in kept) == num_small
        assert sum(text.startswith("all") for text in kept) == num_large


def test_a_part_of_just_the_bound_is_not_small():
    for bound, expected in ((0.4, []), (0.41, ["man 0"])):
        assert selected(SMALL[:1], max_small=9, small_coverage=bound) == expected


def test_the_seed_draws_and_the_order_of_the_candidates_plays_no_part():
    kept = [selected(SMALL, seed=seed, max_small=1) for seed in range(20)]
    assert kept == [selected(SMALL[::-1], seed=seed, max_small=1) for seed in range(20)]
    assert len({text for (text,) in kept}) == 3


@pytest.mark.parametrize(("max_long", "lengths"), [(1, 1), (9, 3)])
def test_long_captions_have_words_from_the_least_to_the_most(max_long: int, lengths: int):
    candidates = [caption(" ".join(["w"] * number)) for number in range(7, 12)]
    kept = selected(candidates, max_long=max_long)
    assert len(kept) == len({*kept}) == lengths
    assert {len(text.split()) for text in kept} <= {8, 9, 10}
