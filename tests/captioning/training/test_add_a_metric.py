"""docs/extend/add_a_metric.md, followed to the letter: its files score a training's test."""

from __future__ import annotations

import json
from pathlib import Path

from captioning.config.plugins import import_plugins
from tests.pages import write_files
from tests.run_calls import train


def test_the_files_of_the_page_score(small, repository: Path, tmp_path: Path, monkeypatch):
    files = write_files(repository / "docs" / "extend" / "add_a_metric.md", tmp_path / "user")
    assert files == ["my_metrics/words.py", "configs/extra_metrics/words.yaml"]
    monkeypatch.syspath_prepend(tmp_path / "user")
    import_plugins(["my_metrics"])
    search_path = f"hydra.searchpath=[file://{tmp_path / 'user' / 'configs'}]"
    choice = ("extra_metrics=[words]", "extra_metrics.words.most=3")
    scores = train(small("num_epochs=1", *choice, search_path))
    assert 0 < scores["words"] <= 3
    test = json.loads((tmp_path / "run" / "metrics.json").read_text())["test"]
    assert test["settings"]["words"] == {"most": 3}
    assert {entry["words"] for entry in test["per_image"].values()} <= {0, 1, 2, 3}
