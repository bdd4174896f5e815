"""Wrong words that language would expect, and the truth that is kept of them."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from captioning.data.roster import build_roster
from captioning.data.steps.base import PlantedWord, StepContext
from captioning.data.steps.plant_faults import PlantFaults, plant
from captioning.data.steps.plausible_faults import (
    Candidate,
    changed_word,
    match_sound,
    photo_words,
    phrases,
)
from captioning.text.masked_words import WordTraining
from captioning.text.word_rows import row_words, same_thing, word_rows
from captioning.types import Sample

COLORS = ("red", "blue", "green", "black")
PLACES = ("bench", "tower")
THINGS = ("dog", "ball", "car", "hat")


def roster_of(num_photos: int = 40):
    rng = np.random.default_rng(0)
    samples = []
    for photo in range(num_photos):
        color, thing = COLORS[rng.integers(4)], THINGS[rng.integers(4)]
        for k, text in enumerate(
            (f"A {color} {thing} near a {PLACES[photo % 2]} .", f"the {thing}")
        ):
            samples.append(
                Sample(
                    row=0,
                    sample_id=f"{photo}#{k}",
                    image_id=str(photo),
                    image_path=Path(f"{photo}.jpg"),
                    caption=text,
                )
            )
    return build_roster("plausible", samples)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    module = "captioning.data.steps.plausible_faults"
    monkeypatch.setattr(f"{module}._TRAINING", WordTraining(num_epochs=1, batch_size=16))
    monkeypatch.setattr(f"{module}._NUM_NETWORKS", 2)


def test_truth_keeps_kind_place_and_right_word():
    roster = roster_of()
    kinds = {"plausible_color": 0.1, "plausible_object": 0.1, "color": 0.1, "phrase": 0.05}
    planting = plant(roster, kinds=kinds, seed=0)
    assert plant(roster, kinds=kinds, seed=0) == planting
    counts = [list(planting.truth.values()).count(kind) for kind in kinds]
    assert counts == [8, 8, 8, 4]
    assert planting.words.keys() == planting.truth.keys() == planting.roster.planted.keys()
    for sample_id, word in planting.words.items():
        before, after = roster.by_id[sample_id].caption, planting.roster.by_id[sample_id].caption
        end = word.start + len(word.wrong)
        assert after[word.start : end] == word.wrong
        if planting.truth[sample_id] != "phrase":
            assert after.split()[-1] == before.split()[-1] or word.right == before.split()[-1]
            assert word.right in before.split()
    clean = set(roster.by_id) - set(planting.truth)
    assert all(planting.roster.by_id[i] == roster.by_id[i] for i in clean)


def test_a_wrong_word_is_a_rival_that_no_caption_of_the_photo_names():
    roster = roster_of()
    planting = plant(roster, kinds={"plausible_object": 0.3}, seed=1)
    named = photo_words(roster)
    for sample_id, word in planting.words.items():
        (wrong,) = row_words(word.wrong)
        rivals = [w for words in word_rows()[wrong.row].meanings for w in words]
        assert word.right in rivals
        assert not same_thing()[word.wrong] & named[roster.by_id[sample_id].image_id]


def test_open_faults_are_words_outside_the_closed_rows():
    places = (("grassy", "hill"), ("wooden", "pier"), ("rocky", "cave"), ("sandy", "shore"))
    texts = [f"a dog on a {a} {b}" for n in range(80) for a, b in [places[n * n % 4 + n % 2]]]
    samples = [
        Sample(row=0, sample_id=f"{n}", image_id=f"{n}", image_path=Path("a.jpg"), caption=text)
        for n, text in enumerate(texts)
    ]
    roster = build_roster("open", samples)
    kinds = {"open_noun": 0.1, "open_adjective": 0.1}
    planting = plant(roster, kinds=kinds, seed=0)
    assert plant(roster, kinds=kinds, seed=0) == planting
    assert Counter(planting.truth.values()) == dict.fromkeys(kinds, 8)
    for sample_id, word in planting.words.items():
        column = 1 if planting.truth[sample_id] == "open_noun" else 0
        named = {place[column] for place in places}
        assert {word.wrong, word.right} <= named
        assert word.wrong != word.right
        assert not list(row_words(word.right))


def test_candidates_are_as_suspect_as_sound_captions():
    rng = np.random.default_rng(0)
    planted = PlantedWord(start=0, wrong="a", right="b")
    pool = {
        row: Candidate(row=row, caption="a", planted=planted, suspicion=value)
        for row, value in enumerate(rng.normal(1, 2, 5000).tolist())
    }
    sound = rng.normal(-1, 1, 3000)
    chosen = match_sound(pool, sound, 300, seed=0)
    values = [one.suspicion for one in chosen]
    assert len({one.row for one in chosen}) == 300
    assert np.quantile(values, [0.1, 0.5, 0.9]) == pytest.approx(
        np.quantile(sound, [0.1, 0.5, 0.9]), abs=0.1
    )
    assert len(match_sound(pool, sound, 5000, seed=0)) == 5000  # all there are


def test_phrases_name_what_the_photo_does_not_show():
    roster = build_roster(
        "phrases",
        [
            Sample(
                row=0, sample_id=f"{n}#0", image_id=f"{n}", image_path=Path("a.jpg"), caption=text
            )
            for n, text in enumerate(["A dog runs .", "A boy with a red hat .", "A cat sits"])
        ],
    )
    found = phrases(roster, seed=0)
    assert found[0].caption == "A dog runs with a red hat ."
    assert found[0].planted == PlantedWord(start=11, wrong="with a red hat", right="")
    assert found[2].caption == "A cat sits with a red hat"
    assert 1 not in found


def test_the_changed_word_is_found_behind_its_article():
    assert changed_word("an orange cat", "a red cat") == PlantedWord(
        start=2, wrong="red", right="orange"
    )
    with pytest.raises(ValueError, match="no word differs"):
        changed_word("a cat", "a cat")


def test_too_many_are_refused_and_the_step_tells_the_context(tmp_path):
    with pytest.raises(ValueError, match="80 faults of kind 'plausible_color' are wanted, but 40"):
        plant(roster_of(), kinds={"plausible_color": 1.0}, seed=0)
    context = StepContext(split="train", seed=0, cache_folder=tmp_path)
    PlantFaults(kinds={"color": 0.1}, seed=0)(roster_of(), context)
    assert len(context.planted_words) == len(context.truth) == 8
    assert json.dumps({i: asdict(word) for i, word in context.planted_words.items()})


def test_what_language_says_is_kept(tmp_path, monkeypatch):
    kinds = {"plausible_color": 0.1}
    first = plant(roster_of(), kinds=kinds, seed=0, cache_folder=tmp_path)
    assert first == plant(roster_of(), kinds=kinds, seed=0)
    kept = sorted(path.name for path in (tmp_path / "judged_words").iterdir())
    assert len(kept) == 2  # one of each network
    module = "captioning.data.steps.plausible_faults"
    with monkeypatch.context() as patch:
        patch.setattr(f"{module}.CrossFittedWords", None)  # nothing is trained
        assert plant(roster_of(), kinds=kinds, seed=0, cache_folder=tmp_path) == first
    monkeypatch.setattr(f"{module}._TRAINING", WordTraining(num_epochs=2, batch_size=16))
    plant(roster_of(), kinds=kinds, seed=0, cache_folder=tmp_path)
    assert len(list((tmp_path / "judged_words").iterdir())) == 4  # other settings, other files
