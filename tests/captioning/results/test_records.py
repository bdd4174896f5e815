"""Records of runs: a line a run, read like run folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from captioning.commands.main import main
from captioning.results.runs import keep_record, read_runs, read_study, recordable, write_study


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "runs" / "set" / "model" / "seed3", 3)


def make_run(folder: Path, seed: int) -> Path:
    (folder / "curation").mkdir(parents=True)
    (folder / "config.yaml").write_text(
        f"paths:\n  data: /somewhere/of/mine\nroot: /somewhere/of/mine/set\nseed: {seed}\n"
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


def record_of(path: Path) -> dict[str, Any]:
    (record,) = read_study(path)
    return record


def test_a_record_is_a_line_without_the_machines_paths(run, tmp_path) -> None:
    path = keep_record(run, tmp_path / "kept")
    assert path == tmp_path / "kept" / "set.jsonl"
    assert "somewhere" not in path.read_text()
    assert "large" not in path.read_text()
    record = record_of(path)
    assert record["run"] == "set/model/seed3"
    assert record["config"]["root"] == "$CAPTIONING_DATA/set"
    assert "per_image" not in record["metrics"]["test"]
    (read,) = read_runs([path])
    assert read.value("CIDEr-D", "test") == 0.5
    assert read.value("detection.auc@1", "test") == 0.6
    assert read.setting("seed") == "3"
    command = "train.py seed=3 pool=$CAPTIONING_DATA/photos list=$ELSEWHERE/a.txt"
    assert read.versions == {"command": command, "commit": "abc", "resumed": [{"command": command}]}


def test_what_runs_share_is_said_once_and_a_run_recorded_again_takes_its_own_place(tmp_path):
    for seed in (1, 0):
        folder = make_run(tmp_path / "runs" / "set" / "model" / f"seed{seed}", seed)
        keep_record(folder, tmp_path)
    path = tmp_path / "set.jsonl"
    first, *lines = map(json.loads, path.read_text().splitlines())
    assert first["study"] == "set"
    assert first["common"]["versions"]["commit"] == "abc"
    assert [line["config"] for line in lines] == [{"seed": 0}, {"seed": 1}]
    before = read_study(path)
    (folder / "metrics.json").write_text(json.dumps({"test": {"corpus": {"CIDEr-D": 0.7}}}))
    keep_record(folder, tmp_path)
    assert [run.value("CIDEr-D", "test") for run in read_runs([path])] == [0.7, 0.5]
    assert read_study(path)[1] == before[1]


def test_records_come_back_as_they_were_written(tmp_path) -> None:
    records = [
        {"run": "a", "config": {"x": {"y": 1}, "z": {}, "list": [1]}, "only": None},
        {"run": "b", "config": {"x": {"y": True}, "z": {"w": 2}, "list": [1, 2]}},
        {"run": "c", "config": {"x": 3, "z": {}, "list": []}, "metrics": {"test": {}}},
    ]
    write_study(tmp_path / "s.jsonl", records[::-1])
    assert [json.dumps(r, sort_keys=True) for r in read_study(tmp_path / "s.jsonl")] == [
        json.dumps(r, sort_keys=True) for r in records
    ]


def test_a_damaged_line_is_named(run, tmp_path) -> None:
    path = keep_record(run, tmp_path)
    path.write_text(path.read_text()[:-20])
    with pytest.raises(ValueError, match=r"set\.jsonl line 2: not a record of a run"):
        read_runs([path])


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
    record = record_of(keep_record(run, tmp_path / "kept"))
    assert record["config"] == {
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
    assert record["versions"]["command"] == command
    (run / "config.yaml").write_text(CONFIG.format("/else/others/more"))
    again = record_of(keep_record(run, tmp_path / "kept"))
    assert again["config"] == record["config"]  # one result, wherever the files lay


def test_a_path_is_named_by_the_innermost_of_the_runs_folders(run, tmp_path) -> None:
    paths = "paths: {data: /disk/me, cache: /disk/me/cache}\nkept: /disk/me/cache/a.pt\n"
    (run / "config.yaml").write_text(paths)
    config = record_of(keep_record(run, tmp_path / "kept"))["config"]
    assert config["kept"] == "$CAPTIONING_CACHE/a.pt"


def test_scores_of_single_images_are_kept_if_asked_for(run, tmp_path) -> None:
    main(["record", str(run), "--out", str(tmp_path / "kept"), "--per-image", "CIDEr-D", "SPICE"])
    (read,) = read_runs([tmp_path / "kept"])
    assert read.scores("test", "per_image") == {"a": {"CIDEr-D": 0.1235}, "b": {"CIDEr-D": 0.9}}
    main(["record", str(run), "--out", str(tmp_path / "other"), "--per-image", "SPICE"])
    (read,) = read_runs([tmp_path / "other"])
    assert read.scores("test", "per_image") == {}


def test_scores_of_further_commands_are_kept_without_captions(run, tmp_path) -> None:
    out = run / "evaluation" / "set-test"
    out.mkdir(parents=True)
    scores = {"corpus": {"IoU": 0.4}, "per_caption": {"a#0": {"IoU": 0.4}}}
    control = {"scores": scores, "swapped": {"matched": {"IoU": 0.4}}, "captions": ["a dog"]}
    control |= {"random": {"corpus": {"L": 1.5}, "captions": ["a dog"]}, "standard": None}
    evaluated = {"evaluated": {"run": "/somewhere/of/mine"}, "versions": {"commit": "abc"}}
    (out / "control.json").write_text(json.dumps(control | evaluated))
    (out / "diverse.json").write_text(json.dumps({"scores": {"20": {"Div-1": 0.3}}} | evaluated))
    further = {"near": {"corpus": {"METEOR": 0.2}, "per_image": {"a": {"METEOR": 0.2}}}}
    (out / "metrics.json").write_text(json.dumps(further | evaluated))
    (out / "candidates.json").write_text('"large"')
    (read,) = read_runs([keep_record(run, tmp_path)])
    assert read.matching("evaluation/*/control.json") == {
        "evaluation/set-test/control.json": {
            "scores": {"corpus": {"IoU": 0.4}},
            "swapped": {"matched": {"IoU": 0.4}},
            "random": {"corpus": {"L": 1.5}},
            "standard": None,
            "versions": {"commit": "abc"},
        }
    }
    assert read.files["evaluation/set-test/metrics.json"] == {"near": {"corpus": {"METEOR": 0.2}}}
    assert set(read.files) == {
        "curation/detection.json",
        "evaluation/set-test/control.json",
        "evaluation/set-test/diverse.json",
        "evaluation/set-test/metrics.json",
    }


def test_detection_is_read_by_epoch(run) -> None:
    (read,) = read_runs([run])
    assert read.value("detection.auc", "test") == 0.7
    assert read.value("detection.auc@1", "test") == 0.6
    assert read.value("detection.auc@9", "test") is None


def test_runs_are_chosen_by_their_names(tmp_path) -> None:
    for name in ("small-none", "small-swap"):
        for seed in (0, 1):
            folder = make_run(tmp_path / "runs" / "set" / name / f"seed{seed}", seed)
            keep_record(folder, tmp_path)
    for place in (tmp_path / "runs", tmp_path / "set.jsonl"):
        for only in (["*-swap"], ["set/small-swap"], ["small-swap/seed*"]):
            assert [run.folder.name for run in read_runs([place], only=only)] == ["seed0", "seed1"]
        with pytest.raises(ValueError, match=r"no run is called x; there are small-none, small-s"):
            read_runs([place], only=["x"])


def test_unfinished_runs_are_named_and_left_out(run, tmp_path, capsys) -> None:
    (run / "metrics.json").unlink()
    main(["record", str(tmp_path / "runs"), "--out", str(tmp_path / "kept")])
    assert "left out, unfinished" in capsys.readouterr().out
    assert not (tmp_path / "kept").exists()
    with pytest.raises(FileNotFoundError, match="the run is not finished"):
        keep_record(run, tmp_path)


def test_sets_and_evaluations_of_papers_are_kept_with_their_numbers(tmp_path) -> None:
    study = tmp_path / "runs" / "papers" / "paper-small"
    pairs, evaluation, begun = (study / name for name in ("pairs/made", "cbs/seed0", "new/made"))
    for folder in (pairs, evaluation, begun):
        folder.mkdir(parents=True)
        (folder / "paper.json").write_text("[]")
    card = {"pairs": 3, "source": f"{tmp_path}/photos/of/mine"}
    (pairs / "card.json").write_text(json.dumps(card))
    (pairs / "captions.json").write_text('"large"')
    (evaluation / "metrics.json").write_text(json.dumps({"test": {"corpus": {"METEOR": 0.2}}}))
    main(["record", str(tmp_path / "runs"), "--out", str(tmp_path / "kept")])
    kept = {run.name: run for run in read_runs([tmp_path / "kept" / "paper-small.jsonl"])}
    assert set(kept) == {"paper-small/pairs/made", "paper-small/cbs/seed0"}
    files = kept["paper-small/pairs/made"].files
    assert files == {"card.json": {"pairs": 3, "source": "$ELSEWHERE/of/mine"}}
    assert kept["paper-small/cbs/seed0"].metrics["test"]["corpus"] == {"METEOR": 0.2}


def test_a_folder_without_runs_is_named(tmp_path) -> None:
    with pytest.raises(FileNotFoundError, match="no config.yaml and no paper.json"):
        recordable([tmp_path])


def named_run(folder: Path, run_name: str, score: float = 0.5) -> Path:
    make_run(folder, 0)
    with (folder / "config.yaml").open("a") as file:
        file.write(f"run_name: {run_name}\n")
    (folder / "metrics.json").write_text(json.dumps({"test": {"corpus": {"CIDEr-D": score}}}))
    return folder


def test_two_runs_of_one_name_are_refused(tmp_path, capsys) -> None:
    real = named_run(tmp_path / "runs" / "set" / "model" / "seed0", "set/model")
    smoke = named_run(tmp_path / "runs" / "smoke" / "set" / "model" / "seed0", "smoke/set/model")
    out = tmp_path / "kept"
    assert main(["record", str(tmp_path / "runs"), "--out", str(out)]) == 1
    assert f"{real} and {smoke}: the records of both" in capsys.readouterr().err
    assert not out.exists()
    path = keep_record(real, out)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="set/model/seed0 for another run .*run_name=set/model"):
        keep_record(smoke, out)
    assert path.read_bytes() == before


def test_two_runs_whose_names_end_alike_are_refused(tmp_path) -> None:
    first = named_run(tmp_path / "a" / "set" / "model" / "seed0", "first/set/model")
    second = named_run(tmp_path / "b" / "set" / "model" / "seed0", "second/set/model")
    keep_record(first, tmp_path / "kept")
    with pytest.raises(ValueError, match="for another run .*run_name=first/set/model"):
        keep_record(second, tmp_path / "kept")


def test_a_run_in_a_folder_named_by_hand_is_recorded_anew_whatever_its_settings(tmp_path) -> None:
    folder = tmp_path / "papers" / "p-small" / "row" / "seed0"
    keep_record(named_run(folder, "set/model-lr_1", score=0.1), tmp_path)
    config = folder / "config.yaml"
    config.write_text(config.read_text().replace("lr_1", "lr_2"))
    (folder / "metrics.json").write_text(json.dumps({"test": {"corpus": {"CIDEr-D": 0.9}}}))
    path = keep_record(folder, tmp_path)
    assert [run.value("CIDEr-D", "test") for run in read_runs([path])] == [0.9]


def test_texts_with_separators_of_lines_come_back(tmp_path) -> None:
    records = [{"run": "a", "config": {"text": "one\u2028two\u0085three"}}]
    write_study(tmp_path / "s.jsonl", records)
    assert read_study(tmp_path / "s.jsonl") == records
    (tmp_path / "s.jsonl").write_text("")
    assert read_study(tmp_path / "s.jsonl") == []
