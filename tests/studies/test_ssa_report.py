"""The page of structured semantic augmentation, from run folders."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

STUDIES = Path(__file__).resolve().parents[2] / "studies"
PEOPLE, MADE = "toy-test", "toy-test-ssa_made"


@pytest.fixture
def report(monkeypatch):
    monkeypatch.syspath_prepend(str(STUDIES))
    return importlib.import_module("ssa_report")


def run(
    folder: Path, name: str, *, seed: int = 0, short: bool = False, **evaluations: dict[str, Any]
) -> None:
    """A run folder; ``people`` and ``made`` are what is in their control.json."""
    place = folder / "toy" / name / f"seed{seed}"
    for key, scores in evaluations.items():
        path = place / "evaluation" / {"people": PEOPLE, "made": MADE}[key] / "control.json"
        path.parent.mkdir(parents=True)
        further = {name: scores.pop(name) for name in ("random", "standard") if name in scores}
        path.write_text(json.dumps({"scores": scores, "swapped": None} | further))
    place.mkdir(parents=True, exist_ok=True)
    config = {"run_name": f"toy/{name}", "seed": seed, "loader": {"own_updates": short}}
    (place / "config.yaml").write_text(json.dumps(config | {"added": ["made"]}))
    scores = {"test": {"corpus": {"CIDEr-D": 0.5}}, "val_history": [{"step": 30}, {"step": 60}]}
    (place / "metrics.json").write_text(json.dumps(scores))


def control(iou: float, **settings: object) -> dict[str, Any]:
    low = {"low": 0.0, "high": 0.5, "share": 0.25, "means": {"IoU": iou / 2, "Hal": 0.5}}
    high = {"low": 0.5, "high": 1.0, "share": 0.75, "means": {"IoU": iou}}
    all_settings = {"parser": "captions", "num_captions": 4} | settings
    return {"corpus": {"IoU": iou, "sC": 0.7}, "bands": [low, high], "settings": all_settings}


def further(score: float, **settings: object) -> dict[str, Any]:
    """What random controls and single references give."""
    drawn = {"controls": 10, "best": 5, "shortest": 5, "longest": 29} | settings
    return {
        "random": {"corpus": {"D-1": score, "D-2": 0.9, "L": 1.5}, "settings": drawn},
        "standard": {"corpus": {"BLEU-4": score / 2}, "settings": {"tokenizer": "ptb"}},
    }


def built(report, folder: Path) -> tuple[list[str], dict]:
    table = report.read_rows([folder], data="toy", model="cic")
    evaluations = report.read_evaluations("toy", table)
    return report.page("toy", "cic", table, evaluations), evaluations


def test_rows_are_mixtures_in_the_order_of_the_paper(report, tmp_path):
    run(tmp_path, "cic_ssa-all-none-none", people=control(0.6), made=control(0.8))
    run(tmp_path, "cic_ssa-all-none-none", seed=1, people=control(0.5))
    run(tmp_path, "cic_ssa-random25-none-none", people=control(0.4))
    run(tmp_path, "cic_paraphrase-all-none-none")
    run(tmp_path, "cic-none-none", people=control(0.3), made=control(0.2))
    run(tmp_path, "cic_set-none-none", people=control(0.9))  # another control
    run(tmp_path, "cic_ssa-all-swap20-none", people=control(0.9))  # planted faults
    lines, _ = built(report, tmp_path)
    title = "## Asked for people's captions, 4 of them (the paper's Tables 1, 3, 4, 6 and 10)"
    first = lines.index(title)
    assert lines[first + 2 : first + 7] == [
        "| trained on | seeds | IoU | sC |",
        "| --- | --- | --- | --- |",
        "| people's captions alone | 1 | 0.3000 | 0.7000 |",
        "| + SSA, 25% | 1 | 0.4000 | 0.7000 |",
        "| + SSA, 100% | 2 | 0.5500 ± 0.0707 | 0.7000 ± 0.0000 |",
    ]
    assert "Not asked for people's captions yet: + paraphrases, 100%." in lines
    second = lines.index(
        "## Asked for captions of ssa_made, 4 of them (the paper's Tables 2, 5 and 7)"
    )
    assert "| + SSA, 100% | 1 | 0.8000 | 0.7000 |" in lines[second:]
    assert "| + paraphrases, 100% | 1 | 60 | - | - | - | 0.5000 | - |" in lines
    assert not any("0.9000" in line for line in lines)


def test_random_controls_and_single_references_have_tables(report, tmp_path):
    run(tmp_path, "cic-none-none", people=control(0.4) | further(0.6))
    run(tmp_path, "cic_ssa-all-none-none", people=control(0.5) | further(0.7))
    run(tmp_path, "cic_ssa-all-none-none", seed=1, people=control(0.5) | further(0.8))
    run(tmp_path, "cic_ssa-random25-none-none", people=control(0.5))  # not asked at random
    lines, _ = built(report, tmp_path)
    first = next(n for n, line in enumerate(lines) if line.startswith("Random controls (Table 8"))
    assert "10 an image, of 5 to 29 words; D-1 and D-2 are of the best 5" in lines[first]
    assert lines[first + 2 : first + 6] == [
        "| trained on | seeds | D-1 | D-2 | L |",
        "| --- | --- | --- | --- | --- |",
        "| people's captions alone | 1 | 0.6000 | 0.9000 | 1.5000 |",
        "| + SSA, 100% | 2 | 0.7500 ± 0.0707 | 0.9000 ± 0.0000 | 1.5000 ± 0.0000 |",
    ]
    assert "| + SSA, 100% | 2 | 0.3750 ± 0.0354 |" in lines[first + 6 :]
    run(tmp_path, "cic_ssa-random50-none-none", people=control(0.4) | further(0.6, controls=20))
    with pytest.raises(ValueError, match="controls of 10 and of 20"):
        built(report, tmp_path)


def test_runs_for_the_same_updates_have_a_row_of_their_own(report, tmp_path):
    run(tmp_path, "cic_ssa-random0-none-none", short=True, people=control(0.4))
    run(tmp_path, "cic_ssa-random0-none-none", seed=1, people=control(0.6))
    run(tmp_path, "cic_ssa-all-none-none", people=control(0.7))
    run(tmp_path, "cic_ssa-all_short-none-none", short=True, people=control(0.8))
    lines, _ = built(report, tmp_path)
    assert "| + SSA, 0% | 2 | 0.5000 ± 0.1414 | 0.7000 ± 0.0000 |" in lines
    assert "| + SSA, 100% | 1 | 0.7000 | 0.7000 |" in lines
    assert "| + SSA, 100%, for the same updates | 1 | 0.8000 | 0.7000 |" in lines


def test_scores_of_part_of_the_captions_are_told_apart(report, tmp_path):
    run(tmp_path, "cic_ssa-all-none-none", people=control(0.5))
    run(tmp_path, "cic-none-none", people=control(0.4, num_captions=1400))
    lines, _ = built(report, tmp_path)
    titles = [line for line in lines if line.startswith("## Asked for people's captions, ")]
    assert [title.split(",", 1)[1].split(" of")[0] for title in titles] == [" 1,400", " 4"]
    assert "| people's captions alone | 1 | 0.4000 | 0.7000 |" in lines
    assert not any(line.startswith("Not asked for") for line in lines)


def test_the_test_split_of_miniworld_is_that_of_people(report):
    assert report.captions_used("miniworld", "miniworld-test_in") == report.PEOPLE
    assert report.captions_used("miniworld", "miniworld-test_in-made") == "captions of made"
    assert (
        report.captions_used("miniworld", "miniworld-test_out") == "captions of miniworld-test_out"
    )
    assert report.captions_used("toy", "toy-test-made") == "captions of made"


def test_bands_of_coverage_are_tabled_and_drawn(report, tmp_path):
    run(tmp_path, "cic-none-none", people=control(0.4))
    run(tmp_path, "cic_ssa-all-none-none", people=control(0.6))
    run(tmp_path, "cic_ssa-all-none-none", seed=1, people=control(0.8))
    lines, evaluations = built(report, tmp_path)
    assert "| of the photo | captions | people's captions alone | + SSA, 100% |" in lines
    assert "| 0 to 50% | 25.0% | 0.2000 | 0.3500 ± 0.0707 |" in lines
    assert "| 50 to 100% | 75.0% | - | - |" in lines  # of Hal, which that band lacks
    report.draw("toy", evaluations, tmp_path / "bands.png")
    assert (tmp_path / "bands.png").read_bytes().startswith(b"\x89PNG")


def test_scores_of_different_tools_are_refused(report, tmp_path):
    run(tmp_path, "cic-none-none", people=control(0.4))
    run(tmp_path, "cic_ssa-all-none-none", people=control(0.6, parser="other"))
    with pytest.raises(ValueError, match='parser of "captions" and of "other"'):
        built(report, tmp_path)


def test_no_runs_are_an_error(report, capsys):
    with pytest.raises(SystemExit):
        report.main(["--data", "nowhere"])
    assert "no finished run of nowhere/cic_bart_small" in capsys.readouterr().err
