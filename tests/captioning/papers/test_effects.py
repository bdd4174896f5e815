"""Effects that papers claim: by hand, by known p-values, and as their page has them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from captioning.papers.cells import Results
from captioning.papers.effects import Found, effect_lines, judgement, t_p_value
from captioning.papers.paper_file import load_paper
from captioning.papers.paper_report import record_folders
from tests.captioning.papers.conftest import paper_of


def write_run(runs: Path, name: str, seed: int, score: float) -> None:
    folder = runs / "papers" / "mine-flickr8k" / name / f"seed{seed}"
    folder.mkdir(parents=True)
    metrics = {"test": {"corpus": {"CIDEr-D": score}}}
    (folder / "metrics.json").write_text(json.dumps(metrics), encoding="utf-8")


@pytest.mark.parametrize(
    ("t", "degrees", "p_value"),
    [  # tables of Student's t
        (12.706, 1, 0.05),
        (4.303, 2, 0.05),
        (3.182, 3, 0.05),
        (2.776, 4, 0.05),
        (-2.571, 5, 0.05),
        (9.925, 2, 0.01),
        (3.707, 6, 0.01),
        (0.0, 2, 1.0),
    ],
)
def test_p_values_are_those_of_tables(t: float, degrees: int, p_value: float) -> None:
    assert t_p_value(t, degrees) == pytest.approx(p_value, abs=1e-4)


@pytest.mark.parametrize(
    ("sign", "values", "judged"),
    [
        (1, (1.0, 1.1, 0.9), "agrees"),
        (-1, (1.0, 1.1, 0.9), "contradicted"),
        (0, (1.0, 1.1, 0.9), "contradicted"),
        (1, (1.0, 0.1, -0.4), "too small to tell"),
        (1, (5.0,), "too small to tell"),
        (1, (2.0, 2.0), "agrees"),
        (0, (0.0, 0.0), "too small to tell"),
    ],
)
def test_a_judgement_follows_from_sign_and_p(sign, values, judged) -> None:
    assert judgement(sign, Found(values=values, base=10)) == judged


def test_nothing_measured_is_no_judgement() -> None:
    assert judgement(1, None) == "not measured"


EFFECT = {
    "claim": "Ours is better",
    "item": "table1",
    "column": "C",
    "rows": ["Ours", "Base"],
    "cause": {"flickr8k": "few photos"},
}


@pytest.fixture
def with_effect(content):
    content["runs"]["base"] = {
        "full": {"steps": ["train base=1"], "hours": 3, "memory": "8 GB"},
        "flickr8k": {"steps": ["train base=1"]},
    }
    content["runs"]["ours"]["full"] = {"steps": ["train"], "hours": 2, "memory": "30 GB"}
    content["items"]["table1"]["rows"].append(
        {"name": "Base", "published": [100, 2], "run": "base"}
    )
    content["effects"] = {"ours": {**EFFECT}}
    return content


def test_an_effect_is_of_seeds_that_both_rows_have(tmp_path: Path, with_effect) -> None:
    for seed, (ours, base) in enumerate([(0.5, 0.4), (0.62, 0.5), (0.58, 0.5)]):
        write_run(tmp_path / "runs", "ours", seed, ours)
        write_run(tmp_path / "runs", "base", seed, base)
    write_run(tmp_path / "runs", "ours", 7, 9.0)  # no base
    lines = effect_lines(paper_of(tmp_path, with_effect), Results(tmp_path / "runs"))
    row = [cell.strip() for cell in lines[2].strip("|").split("|")]
    assert row[:2] == ["Ours is better", "C +1.5 (+1.5%)"]
    assert row[2:6] == ["flickr8k", "+10.00 ± 2.00 (+21.4%)", "3", "0.013"]
    assert row[6] == f"{4.3027 * 2 / 3**0.5:.2f}"
    assert row[7:] == ["agrees [1]", "`ours` `base` 15 h 30 GB"]
    assert lines[-1] == "1. few photos"


def test_an_effect_without_a_run_is_not_measured(tmp_path: Path, with_effect) -> None:
    lines = effect_lines(paper_of(tmp_path, with_effect), Results(tmp_path / "runs"))
    assert "| — | — | — | — | — | not measured |" in lines[2]


def test_rows_of_our_own_may_stand_for_the_papers(tmp_path: Path, with_effect) -> None:
    with_effect["effects"]["ours"]["here"] = {"flickr8k": ["table1", "C", "Base", "Ours"]}
    write_run(tmp_path / "runs", "ours", 0, 0.5)
    write_run(tmp_path / "runs", "base", 0, 0.4)
    lines = effect_lines(paper_of(tmp_path, with_effect), Results(tmp_path / "runs"))
    assert "| -10.00 (-20.0%) | 1 | — | — | too small to tell" in lines[2]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": ["Ours"]}, r"effects\.ours\.rows: must be 2 names"),
        ({"rows": ["Ours", "Nobody"]}, "table1 has no 'Nobody'"),
        ({"column": "X"}, "table1 has no 'X'"),
        ({"item": "table9"}, "there is no item 'table9'; there are table1"),
        ({"direction": "better"}, "direction: must be up, down or level: got 'better'"),
        ({"cause": {"moon": "far"}}, "'moon' is not one of"),
        ({"here": {"flickr8k": ["table1", "C", "Ours"]}}, "must be 4 names"),
        ({"size": 3}, "'size' is not known"),
    ],
)
def test_a_wrong_effect_is_refused_by_place(tmp_path: Path, with_effect, change, message) -> None:
    with_effect["effects"]["ours"] |= change
    with pytest.raises(ValueError, match=message):
        paper_of(tmp_path, with_effect)


def test_a_claim_without_numbers_needs_a_direction(tmp_path: Path, with_effect) -> None:
    with_effect["items"]["table1"]["rows"][2]["published"] = [None, 2]
    with pytest.raises(ValueError, match="no numbers for it; give direction"):
        effect_lines(paper_of(tmp_path, with_effect), Results(tmp_path / "runs"))
    with_effect["effects"]["ours"]["direction"] = "up"
    lines = effect_lines(paper_of(tmp_path, with_effect), Results(tmp_path / "runs"))
    assert "| C rises; no numbers published |" in lines[2]


def test_rows_of_our_own_decide_nothing_at_full_size() -> None:
    results = Results(Path("nowhere"), record_folders())
    lines = effect_lines(load_paper("data_curation"), results)
    of_photos = [line for line in lines if "(here: by real photos" in line]
    assert of_photos
    assert all("none: the row replaces rows of the paper" in line for line in of_photos)
