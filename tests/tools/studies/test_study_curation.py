"""The rows of the curation benchmark are policies that exist, under their names."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from pathlib import Path

import pytest
from hydra.utils import instantiate

from captioning.config.compose import compose_config
from captioning.results.runs import Run

SUSPECTED = "curation.select.ratio"
STUDIES = Path(__file__).resolve().parents[3] / "tools" / "studies"
sys.path.insert(0, str(STUDIES))

import study_curation  # noqa: E402
import study_curation_report  # noqa: E402


@pytest.mark.parametrize("name", study_curation.ROWS)
def test_every_row_is_a_policy_that_acts_when_the_page_says(repository, name):
    values = {SUSPECTED: 0.2, study_curation.SPACE: "joint_space"}
    rows = study_curation.ROWS[name]
    overrides = [f"{o}={values[o]}" if o in values else o for o in rows]
    overrides += [f"curation.name={name}"]
    config = compose_config("train", ["experiment=data_curation/benchmark_flickr8k", *overrides])
    amender = config.curation.amend._target_.rpartition(".")[0].rpartition(".")[2]
    assert name.startswith(amender)
    due = [epoch for epoch in range(-1, 4) if instantiate(config.curation.schedule).due(epoch)]
    by_loss = "top_loss" in name or "sigma" in name
    assert due == ([-1] if name.endswith("_before") else [1, 2, 3] if by_loss else [1])
    assert config.run_name.endswith(f"/{name}")


def test_panels_without_data_are_left_out(tmp_path, monkeypatch):
    """A noise of which nothing was found and nothing gained has no panel."""
    axes = []
    monkeypatch.setattr(study_curation_report.plt, "close", lambda figure: axes.extend(figure.axes))
    panels = {
        "none": (None, None, lambda axis: axis.set_title("gains of none")),
        "swap20": (None, lambda axis: axis.set_title("found in swap20"), None),
    }
    monkeypatch.setattr(study_curation_report, "_panels", lambda table, runs, noise: panels[noise])
    table = {(noise, "track"): {} for noise in panels}
    study_curation_report.draw(table, tmp_path, tmp_path / "figure.png")
    assert {axis.get_title() for axis in axes} == {"gains of none", "found in swap20"}


@pytest.mark.parametrize(
    ("noise", "steps", "share"),
    [("none", "steps=[]", 0.05), ("mixed", "steps=[plant_mixed]", 0.3)],
)
def test_as_much_is_suspected_as_was_planted(monkeypatch, noise, steps, share):
    commands = []
    monkeypatch.setattr(study_curation, "run", commands.append)
    study_curation.train("miniworld", noise, 0, study_curation.POLICIES["remove_random"])
    assert steps in commands[0]
    assert f"curation.select.ratio={share}" in commands[0]


@pytest.fixture
def one_caption(tmp_path, monkeypatch):
    """The cache and a token file of two photos with two captions each."""
    data = tmp_path / "data" / "flickr8k"
    data.mkdir(parents=True)
    lines = [f"{name}.jpg#{number}\tA {name}.\n" for name in ("cat", "dog") for number in (0, 1)]
    (data / "Flickr8k.token.txt").write_text("".join(lines))
    monkeypatch.setenv("CAPTIONING_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("CAPTIONING_CACHE", str(tmp_path / "cache"))
    return tmp_path


def test_one_caption_a_photo_is_trained_on_and_all_are_tested_against(monkeypatch, one_caption):
    commands = []
    monkeypatch.setattr(study_curation, "run", commands.append)
    row = study_curation.ROWS["remove_recommended_before"]
    study_curation.train("flickr8k_one", "swap5", 1, row, space="heads.safetensors")
    config = compose_config("train", commands[0][2:])
    kept = Path(config.data.train.token_file).read_text().splitlines()
    assert kept == ["cat.jpg#0\tA cat.", "dog.jpg#0\tA dog."]
    assert config.data.test.token_file.endswith("Flickr8k.token.txt")
    assert "flickr8k_one-swap5" in config.run_dir
    assert config.curation.score.space == "heads.safetensors"
    assert (config.seed, config.steps.plant_faults.kinds.swap) == (1, 0.05)


def test_rows_before_training_need_no_tracked_signals(monkeypatch, tmp_path):
    """They share no epochs with the run without curation, so that one measures nothing more."""
    trained = []

    def train(data, noise, seed, overrides, space):
        trained.append(overrides)

    monkeypatch.setattr(study_curation, "train", train)
    monkeypatch.setattr(study_curation, "detect", pytest.fail)
    options = Namespace(
        data="flickr8k", noise=["swap20"], seeds=[0], space="joint_space",
        policies=["remove_recommended_before", "remove_oracle_before"],
    )  # fmt: skip
    study_curation.make_runs(options, [], tmp_path)
    assert [row[0] for row in trained] == [
        "curation=track",
        "curation=recommended",
        "curation=remove",
    ]
    assert not any(
        "branch_from" in word or "visual_gain" in word for row in trained for word in row
    )


def test_what_would_be_removed_is_a_row_of_each_noise(tmp_path, monkeypatch):
    monkeypatch.setattr(study_curation_report, "RECORDS", tmp_path)
    about = {"data": "flickr8k_one", "space": "heads", "commit": "0" * 40}
    about |= {"machine": "box", "date": "2026-11-28", "captions": 100}
    found = [
        {"noise": "none", "seed": 0, "planted": 0, "removed": 1, "right": 0, "estimated": 0.0},
        {"noise": "swap20", "seed": 0, "planted": 20, "removed": 20, "right": 18, "estimated": 0.2},
        {"noise": "swap20", "seed": 1, "planted": 20, "removed": 12, "right": 10, "estimated": 0.1},
    ]
    lines = [json.dumps(about | line) + "\n" for line in found]
    (tmp_path / "recommended.jsonl").write_text("".join(lines))
    text = study_curation_report.recommended()
    assert "| one | 0% | 1 | 0.0% | 1.0% | - | - |" in text
    assert "| one | 20% | 2 | 15.0% | 16.0% | 88% | 70% |" in text
    assert "- space: heads\n" in text
    assert f"- commit: {'0' * 40}\n" in text
    assert "Trained" not in text


def judged(score: float, seed: int, **settings) -> Run:
    """A run of four photos, each with this score."""
    metrics = {
        "corpus": {"CIDEr-D": score},
        "per_image": {str(number): {"CIDEr-D": score} for number in range(4)},
    }
    return Run(
        folder=Path("benchmark"),
        config={"seed": seed, "num_epochs": 4, **settings},
        versions={"commit": "1" * 40, "machine": "box", "date": "2026-11-28"},
        metrics={"test": metrics},
        detection=(),
        timing=(),
        files={},
    )


def test_what_was_won_back_is_told_of_seeds_that_all_three_have(monkeypatch):
    scores = {
        "track": {0: 0.30, 1: 0.32, 2: 0.9},
        "remove_recommended_before": {0: 0.38, 1: 0.40},
        "remove_oracle_before": {0: 0.40, 1: 0.42, 2: 0.1},
    }
    tables = {
        "flickr8k_2000": {
            ("swap20", name): {s: judged(v, s, first_images=2000) for s, v in by_seed.items()}
            for name, by_seed in scores.items()
        },
        "flickr8k_one": {
            ("none", name): {0: judged(0.3, 0)} for name in ("track", "remove_recommended_before")
        },
        "flickr8k": {("swap20", "track"): {0: judged(0.4, 0)}},
    }
    studies = study_curation_report
    monkeypatch.setattr(studies, "studies", lambda folder, pattern: pattern.removesuffix("-*"))
    monkeypatch.setattr(studies, "read_table", lambda data: tables[data])
    lines = studies._what_it_is_worth()
    five = "| five | 2,000 photos, 4 epochs | 20% | 2 | 0.310 ± 0.0141 | 0.390 ± 0.0141 "
    five += "| 0.410 ± 0.0141 | 80% | +0.080 ± 0.0000; +0.0800 to +0.0800, p 0.125 |"
    assert lines[4:6] == [
        five,
        "| one | all photos, 4 epochs | 0% | 1 | 0.300 | 0.300 | - | - | +0.000; "
        "+0.0000 to +0.0000, p 1.000 |",
    ]
    assert len({line.count("|") for line in lines[2:6]}) == 1
    assert f"- commit: {'1' * 40}" in lines
    assert not any("0.9" in line for line in lines[2:6])


def test_without_trainings_nothing_is_told_of_their_worth(monkeypatch):
    monkeypatch.setattr(study_curation_report, "read_table", lambda sources: {})
    assert study_curation_report._what_it_is_worth() == []


def test_the_selector_counts_all_photos_or_none(capsys):
    with pytest.raises(SystemExit):
        study_curation.main(["--selector", "--data", "flickr8k_2000"])
    assert "--selector counts all photos" in capsys.readouterr().err
