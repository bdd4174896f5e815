"""The study of single words counts what it says, and its tables stand where the page has them."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from captioning.data.roster import build_roster
from captioning.data.steps.base import PlantedWord
from captioning.data.steps.plant_faults import Planting
from captioning.text.word_rows import closed_rows
from captioning.types import Sample
from curation.base import WordDoubt

STUDIES = Path(__file__).resolve().parents[3] / "tools" / "studies"
sys.path.insert(0, str(STUDIES))

import study_words  # noqa: E402
import study_words_report  # noqa: E402

CAPTIONS = ["a red dog and a blue cat", "a red cat", "a green dog and a blue bird", "a thing"]


def planting_of() -> Planting:
    """The first caption's dog is truly blue, its last word is a sound one."""
    samples = [
        Sample(
            row=row,
            sample_id=str(row),
            image_id=str(row),
            image_path=Path("a.jpg"),
            caption=caption,
        )
        for row, caption in enumerate(CAPTIONS)
    ]
    return Planting(
        roster=build_roster("toy", samples),
        truth={"0": "color"},
        words={"0": PlantedWord(start=2, wrong="red", right="blue")},
    )


def doubt(row: int, word: str, probability: float, alternative: str = "blue") -> WordDoubt:
    return WordDoubt(
        row=row,
        start=CAPTIONS[row].index(word),
        word=word,
        alternative=alternative,
        log_odds=0.0,
        probability=probability / 10,
    )


def test_caption_word_and_right_word_are_counted():
    doubts = [
        doubt(0, "red", 2.0),
        doubt(0, "cat", 3.0, "dog"),
        doubt(1, "red", 1.0),
        doubt(2, "bird", 4.0, "dog"),
    ]
    (line,) = study_words.found(planting_of(), doubts, closed_rows())
    assert line["kind"] == "color"
    assert line["faults"] == 1
    assert line["auc_all"] == pytest.approx(2 / 3, abs=1e-4)  # bird is more suspect
    assert line["auc_within"] == 1  # of captions with a colour
    assert (line["found"], line["found_in_kind"], line["right"]) == (0, 1, 1)


def test_negations_left_out_and_put_in_are_kinds_of_their_own():
    words = {
        "0": PlantedWord(start=0, wrong="a", right="no"),
        "1": PlantedWord(start=0, wrong="shoes", right="No shoes"),
        "2": PlantedWord(start=0, wrong="without", right="with"),
    }
    truth = {**dict.fromkeys(words, "negation"), "3": "color"}
    planting = study_words.with_directions(replace(planting_of(), truth=truth, words=words))
    left_out, put_in = "negation, left out", "negation, put in"
    assert list(planting.truth.values()) == [left_out, left_out, put_in, "color"]
    assert "without" in study_words.kind_words(put_in, closed_rows())
    assert "red" not in study_words.kind_words(put_in, closed_rows())


def test_vocabularies_are_compared_on_the_same_faults():
    def line(noise, evidence, seed=0):
        return {"noise": noise, "evidence": evidence, "seed": seed}

    both = [line("uniform", "all"), line("uniform", "all, open")]
    others = [line("uniform", "all", 1), line("uniform", "text"), line("open", "all, open")]
    assert study_words_report.both_vocabularies([*both, *others]) == both
    shown = [x for x in [*both, *others] if study_words_report.is_shown(x)]
    assert shown == [both[0], *others]


def test_words_are_compared_with_those_of_the_same_third():
    doubts = [doubt(0, "red", 2.0), doubt(1, "red", 1.0), doubt(2, "blue", 9.0)]
    assert study_words.by_third(planting_of(), "color", doubts) == [1.0, None, None]
    assert study_words.by_third(planting_of(), "phrase", doubts) is None


def test_the_page_has_a_place_for_every_table(tmp_path, monkeypatch):
    page = tmp_path / "words.md"
    page.write_text(study_words_report.PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(study_words_report, "PAGE", page)
    study_words_report.report()
    assert page.read_text(encoding="utf-8") == study_words_report.PAGE.read_text(encoding="utf-8")
    assert "| `color` | text |" in page.read_text(encoding="utf-8")


def test_the_first_photos_bring_all_their_captions():
    roster = planting_of().roster
    assert study_words.first_photos(roster, None) is roster
    part = study_words.first_photos(roster, 2)
    assert [(s.row, s.caption) for s in part.samples] == list(enumerate(CAPTIONS[:2]))
