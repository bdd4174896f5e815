"""What the demonstration shows: finished runs, and a table that fits into 80 columns."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from captioning.evaluation.compare import Comparison, Side
from captioning.runtime.files import write_json
from captioning.training import demo

SCORES = {f"BLEU-{n}": 0.5 for n in range(1, 5)} | {"METEOR": 0.2, "ROUGE-L": 0.4, "CIDEr-D": 0.1}


def test_table_of_all_metrics_fits_into_80_columns():
    console = Console(width=80, record=True)
    console.print(demo.score_table(dict.fromkeys(demo.POLICIES, SCORES)))
    text = console.export_text()
    assert "…" not in text
    assert all(name in text for name in SCORES)


def compared(*sides: Side, metrics: list[str]) -> Comparison:
    """What `compare_runs` gives of two runs."""
    names = [side.name for side in sides]
    return Comparison(facts={"sentences": [f"{names[1]} is better than {names[0]}"]}, photos={})


def write_epochs(run_dir: str) -> dict[str, float]:
    """What a run leaves of what it removed before training."""
    found = {"precision": 0.92, "recall": 0.9, "num_faulty": 1500}
    epochs = [{"num_removed": 1492, "detection": found}]
    (Path(run_dir) / "curation").mkdir(parents=True)
    write_json(Path(run_dir) / "curation" / "epochs.json", epochs)
    return SCORES


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ({"num_removed": 7, "detection": None}, "recommended removed 7 captions"),
        (
            {"num_removed": 0, "detection": {"precision": None, "recall": 0.0, "num_faulty": 9}},
            "recommended removed 0 captions",
        ),
    ],
)
def test_without_planted_or_removed_captions_no_share_is_told(tmp_path: Path, entry, told):
    (tmp_path / "curation").mkdir()
    write_json(tmp_path / "curation" / "epochs.json", [entry])
    assert demo.removed(tmp_path) == told


def test_the_page_of_both_runs_lies_beside_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(demo, "train", lambda config, finished: write_epochs(config.run_dir))
    monkeypatch.setattr(demo, "compare_runs", compared)
    pages = []
    page = lambda found, path: pages.append((found.facts["sentences"], path))  # noqa: E731
    demo.main([f"paths.runs={tmp_path}", "seed=7"], page=page)
    path = tmp_path / "demo" / "compared_seed7.html"
    assert pages == [(["recommended is better than none"], path)]
    out = capsys.readouterr().out
    assert "recommended is better than none" in out
    assert "removed 1,492 captions: 92% of them were swapped, and 90% of the 1,500" in out
    assert str(path) in out


def test_second_demo_says_that_it_is_finished_and_trains_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    trained = []

    def train(config, finished=None) -> dict[str, float]:
        folder = Path(config.run_dir)
        if not (folder / "metrics.json").is_file():
            trained.append(folder.parent.name)
            write_epochs(config.run_dir)
            write_json(folder / "metrics.json", {"test": {"corpus": SCORES}})
        return SCORES

    monkeypatch.setattr(demo, "train", train)
    monkeypatch.setattr(demo, "compare_runs", compared)
    overrides = [f"paths.runs={tmp_path}"]
    demo.main(overrides)
    first = capsys.readouterr().out
    demo.main(overrides)
    second = capsys.readouterr().out
    assert trained == ["track", "recommended"]
    assert "finished" not in first
    assert second.count("finished: ") == 2
    assert "CIDEr-D" in second
