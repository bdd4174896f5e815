"""A finished run, asked for captions that hold given words, as ``evaluate.py`` does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

from captioning.training.predict import predict_run
from captioning.training.run import train
from evaluate import evaluate


def test_a_run_says_the_words_asked_for(
    small, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(small("num_epochs=1", "search.max_length=20"))
    run = tmp_path / "run"
    (free, *_), roster, _ = predict_run(run)
    image_id = free[0].image_id
    words = sorted({w for s in roster.samples for w in s.caption.lower().strip(".").split()})
    word = next(w for w in words if len(w) > 3 and w not in free[0].caption.split())
    path = tmp_path / "words.json"
    path.write_text(json.dumps({image_id: [word, "xylophone"]}))

    def captions(*overrides: str) -> dict[str, dict]:
        options = [f"run={run}", f"out={tmp_path / 'out'}", "metrics=fast", *overrides]
        with initialize_config_dir(str(repository / "configs"), version_base="1.3"):
            evaluate(compose("evaluate", options))
        entries = json.loads((tmp_path / "out" / "predictions.json").read_text())
        return {str(entry["image_id"]): entry for entry in entries}

    constrained = ("search=constrained", "constraints=words", f"constraints.path={path}")
    found = captions(*constrained)
    assert word in found[image_id]["caption"].split()
    assert {"constraints_met"} == {key for e in found.values() for key in e} - {
        "image_id",
        "caption",
    }
    evaluated = json.loads((tmp_path / "out" / "metrics.json").read_text())["evaluated"]
    assert evaluated["constraints"]["path"] == str(path)
    assert "constraints_met" not in captions()[image_id]
    forbidden = captions("search=beam", f"+search.forbidden_words=[{word}]", "search.num_best=3")
    assert all(word not in entry["caption"].split() for entry in forbidden.values())
    groups = json.loads((tmp_path / "out" / "candidates.json").read_text())
    assert {len(group["captions"]) for group in groups} == {3}
    with pytest.raises(ValueError, match="needs machines"):
        captions("search=constrained")
