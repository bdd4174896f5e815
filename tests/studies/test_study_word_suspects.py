"""Suspected words are drawn without their probability, and judgements come into a table."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from captioning.data.roster import Roster, build_roster
from captioning.types import Sample
from curation.base import WordDoubt

STUDIES = Path(__file__).resolve().parents[2] / "studies"
sys.path.insert(0, str(STUDIES))

import study_word_suspects as study  # noqa: E402


def roster_of(folder: Path, number: int) -> Roster:
    """Photos with two captions each."""
    samples = []
    for row in range(2 * number):
        name = f"{row // 2}.png"
        Image.new("RGB", (9, 9), (row, 0, 0)).save(folder / name)
        samples.append(
            Sample(
                row=row,
                sample_id=f"{name}#{row % 2}",
                image_id=name,
                image_path=folder / name,
                caption="A red dog on the grass",
            )
        )
    return build_roster("set", samples)


def doubt(row: int, probability: float) -> WordDoubt:
    return WordDoubt(
        row=row, start=2, word="red", alternative="blue", log_odds=0, probability=probability
    )


def test_suspects_are_the_surest_and_controls_are_likely_right(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(study, "NUM_SUSPECTS", 2)
    monkeypatch.setattr(study, "NUM_CONTROLS", 3)
    roster = roster_of(tmp_path, 6)
    doubts = [doubt(0, 0.9), doubt(1, 0.95), doubt(2, 0.5), doubt(4, 0.7), doubt(6, 0.01)]
    doubts += [doubt(7, 0.02), doubt(8, 0.03), doubt(10, 0.04)]
    suspects = list(study.first_suspects(roster, doubts))
    assert [(one.row, rank) for one, rank in suspects] == [(1, 1), (4, 2)]  # one of a photo
    chosen = study.controls(roster, doubts, np.random.default_rng(0))
    assert sorted(one.row // 2 for one, _ in chosen) == [3, 4, 5]
    entry = study.entry(roster, *suspects[0])
    assert (entry["file"], entry["caption_index"], entry["place"]) == ("0.png", 1, 2)
    assert (entry["topic"], entry["rank"]) == ("color", 1)


def test_a_sheet_shows_photos_and_no_probability(tmp_path) -> None:
    roster = roster_of(tmp_path, 2)
    entries = [study.entry(roster, doubt(row, 0.5 + row / 10), row) for row in (0, 2)]
    numbered = [{"number": n, **one} for n, one in enumerate(entries, start=1)]
    paths = {sample.image_path.name: sample.image_path for sample in roster.samples}
    picture = study.sheet(numbered, paths)
    assert picture.getpixel((5, 5)) == (1, 0, 0)
    assert picture.getpixel((study.SIDE + 15, 5)) == (3, 0, 0)
    others = [{**one, "probability": 0.0, "rank": None} for one in numbered]
    assert picture.tobytes() == study.sheet(others, paths).tobytes()
    drawn = np.asarray(picture)[study.SIDE : study.SIDE + study.TEXT, : study.SIDE]
    assert (drawn == (255, 0, 0)).all(-1).any()  # the word


def test_judgements_are_kept_without_captions_and_make_a_table(tmp_path, monkeypatch) -> None:
    roster = roster_of(tmp_path, 3)
    entries = [study.entry(roster, doubt(2 * n, 0.9), [1, 2, None][n]) for n in range(3)]
    (tmp_path / study.KEY).write_text(
        "\n".join(json.dumps({"number": n, **one}) for n, one in enumerate(entries, start=1))
    )
    monkeypatch.setattr(study, "RECORDS", tmp_path / "record.jsonl")
    file = tmp_path / "judgements.tsv"
    file.write_text("1\twrong\tright\n2\tunclear\tunclear\n3\tright\twrong\n")
    study.keep(tmp_path, file)
    lines = [json.loads(line) for line in (tmp_path / "record.jsonl").read_text().splitlines()]
    assert [line["judgement"] for line in lines] == ["wrong", "unclear", "right"]
    assert "caption" not in lines[0]
    rows = study.table(lines)
    assert rows[2] == "| first 50 | 2 | 1 | 0 | 1 | 50% (9% to 91%) | 1 of 1 |"
    assert rows[-1].startswith("| controls | 1 | 0 | 1 | 0 | 0% (0% to 79%) |")
    file.write_text("1\twrong\tright\n2\tmaybe\tright\n")
    with pytest.raises(ValueError, match="judgements are wrong, right, unclear"):
        study.keep(tmp_path, file)
    file.write_text("1\twrong\tright\n")
    with pytest.raises(ValueError, match="lacks number 2"):
        study.keep(tmp_path, file)


def test_the_interval_is_wilsons() -> None:
    assert study.wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-4)
