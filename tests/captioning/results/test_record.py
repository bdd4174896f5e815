"""Small copies of run folders."""

from __future__ import annotations

import json

import pytest
import yaml

from captioning.commands.main import main
from captioning.results.record import keep_record
from captioning.results.run_folders import read_runs


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "runs" / "set" / "model" / "seed3"
    (folder / "curation").mkdir(parents=True)
    (folder / "config.yaml").write_text(
        "paths:\n  data: /somewhere/of/mine\nroot: /somewhere/of/mine/set\nseed: 3\n"
    )
    images = {"a": {"CIDEr-D": 0.123456, "BLEU-4": 0.1}, "b": {"CIDEr-D": 0.9, "BLEU-4": 0.2}}
    scores = {"corpus": {"CIDEr-D": 0.5}, "per_image": images}
    (folder / "metrics.json").write_text(json.dumps({"test": scores, "val_history": []}))
    command = "/somewhere/of/mine/train.py seed=3 pool=/somewhere/of/mine/photos list=/else/a.txt"
    versions = {"command": command, "commit": "abc", "resumed": [{"command": command}]}
    (folder / "versions.json").write_text(json.dumps(versions))
    entries = [{"epoch": epoch, "auc": 0.5 + epoch / 10} for epoch in range(3)]
    (folder / "curation" / "detection.json").write_text(json.dumps(entries))
    (folder / "curation.jsonl").write_text("large")
    return folder


def test_a_record_is_a_small_run_folder_without_the_machines_paths(run, tmp_path) -> None:
    kept = keep_record(run, tmp_path / "kept")
    assert kept == tmp_path / "kept" / "set" / "model" / "seed3"
    assert "somewhere" not in (kept / "config.yaml").read_text()
    assert "$CAPTIONING_DATA/set" in (kept / "config.yaml").read_text()
    assert "per_image" not in (kept / "metrics.json").read_text()
    assert not (kept / "curation.jsonl").exists()
    (found,) = read_runs([tmp_path / "kept"])
    assert found.value("CIDEr-D", "test") == 0.5
    assert found.setting("seed") == "3"
    command = "train.py seed=3 pool=$CAPTIONING_DATA/photos list=$ELSEWHERE/a.txt"
    assert found.versions == {
        "command": command,
        "commit": "abc",
        "resumed": [{"command": command}],
    }


CONFIG = """
paths: {{data: /disk/me/data, cache: cache, runs: /disk/me/runs/}}
data: {{name: set, root: /disk/me/data/set, url: https://host.org/me/set.zip}}
cache: {{kind: cache}}
added: [{0}/pairs, /disk/me/runs/own/pairs]
lists:
- {0}/a.txt
- /disk/me/database/b.txt
- /disk//c.txt
corpus: {{train: {{path: '{0}/made/captions.txt', files: ../set/*/x/y.zip}}}}
start_from: {0}/name/seed0
"""


def test_paths_outside_the_runs_folders_are_kept_to_their_end(run, tmp_path) -> None:
    (run / "config.yaml").write_text(CONFIG.format("/disk/you/more"))
    command = "/disk/me/train.py added=[/disk/you/more/pairs,/disk/me/runs/own/pairs]"
    (run / "versions.json").write_text(json.dumps({"command": command}))
    kept = keep_record(run, tmp_path / "kept")
    found = yaml.safe_load((kept / "config.yaml").read_text())
    assert found == {
        "paths": {"data": "$CAPTIONING_DATA", "cache": "cache", "runs": "$CAPTIONING_RUNS/"},
        "data": {
            "name": "set",
            "root": "$CAPTIONING_DATA/set",
            "url": "https://host.org/me/set.zip",
        },
        "cache": {"kind": "cache"},
        "added": ["$ELSEWHERE/more/pairs", "$CAPTIONING_RUNS/own/pairs"],
        "lists": ["$ELSEWHERE/more/a.txt", "$ELSEWHERE/database/b.txt", "$ELSEWHERE/c.txt"],
        "corpus": {"train": {"path": "$ELSEWHERE/made/captions.txt", "files": "../set/*/x/y.zip"}},
        "start_from": "$ELSEWHERE/name/seed0",
    }
    command = "train.py added=[$ELSEWHERE/more/pairs,$CAPTIONING_RUNS/own/pairs]"
    assert json.loads((kept / "versions.json").read_text())["command"] == command
    (run / "config.yaml").write_text(CONFIG.format("/else/others/more"))
    again = yaml.safe_load((keep_record(run, tmp_path / "kept") / "config.yaml").read_text())
    assert again == found  # one result, wherever the files lay


def test_scores_of_single_images_are_kept_if_asked_for(run, tmp_path) -> None:
    main(["record", str(run), "--out", str(tmp_path / "kept"), "--per-image", "CIDEr-D", "SPICE"])
    (found,) = read_runs([tmp_path / "kept"])
    assert found.scores("test", "per_image") == {"a": {"CIDEr-D": 0.1235}, "b": {"CIDEr-D": 0.9}}
    main(["record", str(run), "--out", str(tmp_path / "other"), "--per-image", "SPICE"])
    (found,) = read_runs([tmp_path / "other"])
    assert found.scores("test", "per_image") == {}


def test_scores_of_further_commands_are_kept_without_captions(run, tmp_path) -> None:
    out = run / "evaluation" / "set-test"
    out.mkdir(parents=True)
    scores = {"corpus": {"IoU": 0.4}, "per_caption": {"a#0": {"IoU": 0.4}}}
    control = {"scores": scores, "swapped": {"matched": {"IoU": 0.4}}, "captions": ["a dog"]}
    control |= {"random": {"corpus": {"L": 1.5}, "captions": ["a dog"]}, "standard": None}
    evaluated = {"evaluated": {"run": "/somewhere/of/mine"}, "versions": {"commit": "abc"}}
    (out / "control.json").write_text(json.dumps(control | evaluated))
    (out / "diverse.json").write_text(json.dumps({"scores": {"20": {"Div-1": 0.3}}} | evaluated))
    (out / "candidates.json").write_text("large")
    kept = keep_record(run, tmp_path / "kept") / "evaluation" / "set-test"
    assert {path.name for path in kept.iterdir()} == {"control.json", "diverse.json"}
    assert json.loads((kept / "control.json").read_text()) == {
        "scores": {"corpus": {"IoU": 0.4}},
        "swapped": {"matched": {"IoU": 0.4}},
        "random": {"corpus": {"L": 1.5}},
        "standard": None,
        "versions": {"commit": "abc"},
    }
    assert json.loads((kept / "diverse.json").read_text())["scores"] == {"20": {"Div-1": 0.3}}


def test_detection_is_read_by_epoch(run) -> None:
    (found,) = read_runs([run])
    assert found.value("detection.auc", "test") == 0.7
    assert found.value("detection.auc@1", "test") == 0.6
    assert found.value("detection.auc@9", "test") is None


def test_unfinished_runs_are_named_and_left_out(run, tmp_path, capsys) -> None:
    (run / "metrics.json").unlink()
    main(["record", str(tmp_path / "runs"), "--out", str(tmp_path / "kept")])
    assert "left out, not finished" in capsys.readouterr().out
    assert not (tmp_path / "kept").exists()
