"""The rows of the curation benchmark are policies that exist, under their names."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hydra.utils import instantiate

from captioning.configuration import compose_config

SUSPECTED = "curation.select.ratio"
STUDIES = Path(__file__).resolve().parents[2] / "studies"
sys.path.insert(0, str(STUDIES))

import study_curation  # noqa: E402
import study_curation_report  # noqa: E402


@pytest.mark.parametrize("name", study_curation.ROWS)
def test_every_row_is_a_policy_that_acts_when_the_page_says(repository, name):
    overrides = [f"{o}=0.2" if o == SUSPECTED else o for o in study_curation.ROWS[name]]
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
