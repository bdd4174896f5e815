"""Keys that only choices of a sweep have are looked at in the jobs."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from captioning.commands import sweep
from captioning.commands.command import HydraCommand
from captioning.commands.hydra_command import run_hydra
from captioning.commands.main import main
from captioning.commands.sweep import sweep_name
from captioning.commands.swept_groups import with_keys_of_jobs

POLICIES = "curation=track,remove"


def _jobs(*overrides: str, look: Callable[[Any], object]) -> list[object]:
    seen: list[object] = []

    def task(config: Any) -> None:
        seen.append(look(config))

    command = HydraCommand(name="train", summary="", config="train", task=task)
    run_hydra(command, ["-m", *overrides])
    return seen


@pytest.mark.parametrize(
    ("overrides", "look", "values"),
    [
        (
            [POLICIES, "curation.select.ratio=0.3"],
            lambda c: (c.curation.name, c.curation.select.ratio),
            [("track-select.ratio_0.3", 0.3), ("remove-select.ratio_0.3", 0.3)],
        ),
        (
            ["model=viecap,viecap_small", "model.names_path='a, b'", "+model.more="],
            lambda c: (c.model.names_path, c.model.more),
            [("a, b", ""), ("a, b", "")],
        ),
        (
            ["experiment=cutswap/updown,cutswap/cos_cvae", "steps.add_pairs.share=0.5"],
            lambda c: c.steps.add_pairs.share,
            [0.5, 0.5],
        ),
    ],
)
def test_a_key_of_swept_choices_is_set_in_each_job(
    overrides: Sequence[str],
    look: Callable[[Any], object],
    values: list[object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert _jobs(*overrides, look=look) == values


def test_what_the_whole_sweep_has_stays_its_own() -> None:
    line = ["seed=1", POLICIES, "curation.select.ratio=0.3", "paths.runs=here", "+new=1"]
    assert with_keys_of_jobs("train", line) == [
        *("seed=1", POLICIES, "paths.runs=here", "+new=1"),
        '+hydra.sweeper={params: {curation.select.ratio: "0.3"}}',
    ]
    assert with_keys_of_jobs("train", ["seed=1,2", "model.name=x"]) == ["seed=1,2", "model.name=x"]


VALUES = [
    *("null", "2024", "'2024'", '"true"', "str(3)", r"'it\'s'", "[a,'b c']", "{a: null, b: '1'}"),
    *("0.05", "${seed}", "'${data.name}/x'", "", r"a\,b", r'"x \"y\""', "a b", "1e-3"),
]


@pytest.mark.parametrize("value", VALUES)
def test_a_value_is_read_as_without_the_sweep(
    value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def name(config: Any) -> object:
        value = config.model.names_path
        return OmegaConf.to_container(value) if OmegaConf.is_config(value) else value

    line = f"model.names_path={value}"
    swept = _jobs("model=viecap,viecap_small", line, look=name)
    assert swept == _jobs("model=viecap", "seed=0,0", line, look=name)


def test_a_sweep_with_another_value_has_another_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = []
    monkeypatch.setattr(sweep, "sweep_name", lambda *lines: names.append(sweep_name(*lines)) or "")
    for ratio in (0.2, 0.3):
        assert len(_jobs(POLICIES, f"curation.select.ratio={ratio}", look=bool)) == 2
    assert len(set(names)) == 2


def test_a_key_that_no_job_has_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="as 1 of 2 would fail\n.*curation=none has no such key"):
        main(["train", "-m", *shlex.split("curation=none,remove curation.select.ratio=0.3")])
    with pytest.raises(SystemExit, match="did you mean curation.select.ratio"):
        main(["train", "-m", POLICIES, "curation.select.ratoi=0.3"])
