"""What a page of wrong words would show is counted by threshold."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from captioning.data.roster import PlantedWord, build_roster
from captioning.data.steps.plant_faults import Planting
from captioning.types import Sample
from curation.base import WordDoubt
from curation.check.checks import THRESHOLDS
from curation.check.evidence import Scores
from curation.check.result import CheckResult
from curation.check.word_checks import NAME

STUDIES = Path(__file__).resolve().parents[3] / "tools" / "studies"
sys.path.insert(0, str(STUDIES))

import study_check_words  # noqa: E402

CHANCES = (0.95, 0.75, 0.72, 0.6, np.nan)


def doubt(row: int, start: int) -> tuple[WordDoubt, ...]:
    own = {"word": "red", "alternative": "blue", "log_odds": 1.0, "probability": CHANCES[row]}
    return (WordDoubt(row=row, start=start, **own),)


def test_what_is_shown_from_each_threshold():
    samples = [
        Sample(row=n, sample_id=str(n), image_id=str(n), image_path=Path("a.jpg"), caption="a red")
        for n in range(5)
    ]
    roster = build_roster("toy", samples)
    planted = PlantedWord(start=2, wrong="red", right="blue")
    planting = Planting(
        roster=roster,
        truth=dict.fromkeys("014", "color"),
        words=dict.fromkeys("014", planted),
    )
    # the first marks the planted word, the second another one
    words = {n: doubt(n, start) for n, start in enumerate((2, 0, 2, 2))}
    scores = Scores(values=np.array(CHANCES, np.float32), words=words)
    limits = {**THRESHOLDS, NAME: 0.9}
    result = CheckResult(roster=roster, scores={NAME: scores}, thresholds=limits)
    assert study_check_words.shown(result, planting) == [
        {"from": 0.5, "shown": 4, "planted": 2, "named": 1},
        {"from": 0.7, "shown": 3, "planted": 2, "named": 1},
        {"from": 0.8, "shown": 1, "planted": 1, "named": 1},
    ]


def test_the_page_has_a_place_for_both_tables(tmp_path, monkeypatch):
    page = tmp_path / "check.md"
    text = study_check_words.PAGE.read_text(encoding="utf-8")
    page.write_text(text, encoding="utf-8")
    monkeypatch.setattr(study_check_words, "PAGE", page)
    study_check_words.report()
    assert page.read_text(encoding="utf-8") == text
    assert "| uniform | 2,000 | 10,000 | 600 | 0.7 | 218 | 88% | 32% | 32% |" in text
