"""Regions called as captions call them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from captioning.data.region_labels import relabel_roster
from captioning.data.roster import build_roster
from captioning.text.lemmas import load_lemmas
from captioning.text.object_words import LEMMAS
from captioning.types import Phrase
from tests.augmentation.regions.scenes import sample

REGIONS = [("animals", (0, 0, 9, 9)), ("animals", (1, 1, 5, 5)), ("other", (2, 2, 5, 5))]


def labels(*phrases: tuple[str, tuple[int, ...]]) -> list[str]:
    samples = []
    for number, (text, regions) in enumerate(phrases):
        phrase = Phrase(start=0, text=text, chain_id="1", kinds=("animals",), regions=regions)
        sample_ = sample(Path("a.png"), text, REGIONS, number=number)
        samples.append(replace(sample_, phrases=(phrase,)))
    relabelled = relabel_roster(build_roster("r", samples), load_lemmas(LEMMAS))
    assert len({s.regions for s in relabelled.samples}) == 1
    return [region.label for region in relabelled.samples[0].regions]


def test_a_region_gets_the_last_word_of_most_phrases():
    names = labels(("a puppy", (0,)), ("two brown dogs", (0, 1)), ("The dogs", (0, 1)))
    assert names == ["dog", "dog", "other"]


def test_only_kinds_are_replaced():
    assert labels(("a ball", (2,)))[2] == "other"  # of another kind than the phrase


def test_data_without_phrases_stays():
    roster = build_roster("r", [sample(Path("a.png"), "A dog.", REGIONS)])
    assert relabel_roster(roster, load_lemmas(LEMMAS)).samples == roster.samples
