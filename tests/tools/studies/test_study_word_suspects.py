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

STUDIES = Path(__file__).resolve().parents[3] / "tools" / "studies"
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


def doubt(row: int, probability: float, log_odds: float = 0.0) -> WordDoubt:
    return WordDoubt(
        row=row, start=2, word="red", alternative="blue", log_odds=log_odds, probability=probability
    )


def test_a_round_has_the_surest_by_each_ranking_and_likely_right_words(tmp_path) -> None:
    roster = roster_of(tmp_path, 6)
    doubts = [doubt(0, 0.9), doubt(1, 0.95), doubt(2, 0.5), doubt(4, 0.7, log_odds=3)]
    doubts += [doubt(row, 0.01) for row in (6, 7, 8, 10)]
    how = study.Round(
        title="some", topics=("color",), rankings=["probability", "log_odds"], num_controls=3
    )
    chosen = study.chosen(
        roster, dict.fromkeys(how.rankings, doubts), how, np.random.default_rng(0)
    )
    ranks = {(one["file"], one["caption_index"]): one["ranks"] for one in chosen}
    assert ranks["0.png", 1] == {"probability": 1, "log_odds": 2}  # one of a photo
    assert ranks["2.png", 0] == {"probability": 2, "log_odds": 1}
    assert ("0.png", 0) not in ranks
    one = next(one for one in chosen if one["file"] == "2.png")
    assert (one["place"], one["word"], one["proposal"], one["topic"]) == (2, "red", "blue", "color")
    controls = study.controls(roster, doubts, 3, np.random.default_rng(0))
    assert sorted(one.row // 2 for one in controls) == [3, 4, 5]
    assert not study.controls(roster, doubts, 0, np.random.default_rng(0))


def test_a_sheet_shows_photos_and_no_probability(tmp_path) -> None:
    roster = roster_of(tmp_path, 2)
    entries = [study.entry(roster, doubt(row, 0.5 + row / 10)) for row in (0, 2)]
    numbered = [{"number": n, **one} for n, one in enumerate(entries, start=1)]
    paths = {sample.image_path.name: sample.image_path for sample in roster.samples}
    picture = study.sheet(numbered, paths)
    assert picture.getpixel((5, 5)) == (1, 0, 0)
    assert picture.getpixel((study.SIDE + 15, 5)) == (3, 0, 0)
    others = [{**one, "probability": 0.0, "ranks": {"probability": 9}} for one in numbered]
    assert picture.tobytes() == study.sheet(others, paths).tobytes()
    drawn = np.asarray(picture)[study.SIDE : study.SIDE + study.TEXT, : study.SIDE]
    assert (drawn == (255, 0, 0)).all(-1).any()  # the word


def test_judgements_are_kept_without_captions_and_make_a_table(tmp_path, monkeypatch) -> None:
    roster = roster_of(tmp_path, 3)
    entries = [study.entry(roster, doubt(2 * n, 0.95)) for n in range(3)]
    for n in (0, 1):
        entries[n]["ranks"]["probability"] = n + 1
    write_key(tmp_path, 1, enumerate(entries, start=1))
    monkeypatch.setattr(study, "RECORDS", tmp_path / "record.jsonl")
    file = tmp_path / "judgements.tsv"
    file.write_text("1\twrong\tright\n2\tunclear\tunclear\n3\tright\twrong\n")
    study.keep(tmp_path, file)
    lines = study.read_records(study.RECORDS)
    assert [line["judgement"] for line in lines] == ["wrong", "unclear", "right"]
    assert "caption" not in lines[0]
    rows = study.table(lines)
    assert (
        "| all topics, by probability, first 50 | 2 | 1 | 0 | 1 | 50% (9% to 91%) | 1 of 1 |"
        in rows
    )
    assert rows[-1] == "| all topics, controls | 1 | 0 | 1 | 0 | 0% (0% to 79%) | 0 of 0 |"
    write_key(tmp_path, 2, [(None, entries[0]), (1, study.entry(roster, doubt(1, 0.9)))])
    file.write_text("1\tright\tright\n")
    study.keep(tmp_path, file)
    again = [(x["round"], x["judgement"]) for x in study.read_records(study.RECORDS)]
    assert again[3:] == [(2, "wrong"), (2, "right")]  # the first was judged before
    file.write_text("1\tmaybe\tright\n")
    with pytest.raises(ValueError, match="judgements are wrong, right, unclear"):
        study.keep(tmp_path, file)
    file.write_text("2\twrong\tright\n")
    with pytest.raises(ValueError, match="lacks number 1"):
        study.keep(tmp_path, file)


def write_key(folder: Path, number: int, entries) -> None:
    """A round as ``draw`` leaves it."""
    lines = [json.dumps({"number": n, "round": number, "seed": 0, **one}) for n, one in entries]
    (folder / study.KEY).write_text("\n".join(lines))


def test_the_interval_is_wilsons() -> None:
    assert study.wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-4)
