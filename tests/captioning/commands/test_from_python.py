"""Commands called from Python: the same runs, errors to catch, and nothing left behind."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import subprocess
import sys
import warnings
from collections.abc import Iterator
from enum import Enum
from pathlib import Path, PurePosixPath

import numpy as np
import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

import captioning
from captioning.commands.from_python import as_overrides
from captioning.commands.main import main
from captioning.results.folder_config import read_folder_config
from tests.captioning.conftest import SMALL

PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False)
# OmegaConf reads "${" and "???" itself.
TEXTS = st.text().filter(lambda text: "${" not in text and text != "???")
VALUES = st.recursive(PLAIN | TEXTS, lambda inner: st.lists(inner, max_size=3), max_leaves=5)
AWKWARD = "my photos, a=b's [ü] (1)"


@pytest.fixture
def undisturbed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Compare what belongs to the calling program, a notebook's kernel, before and after a test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["ipykernel_launcher.py", "-f", "kernel.json"])
    (tmp_path / "config.yaml").write_text("empty: {}\n")
    with initialize_config_dir(str(tmp_path), version_base="1.3"):
        own, logger = GlobalHydra.instance().hydra, logging.getLogger("of the caller")
        before = _state()
        yield
        assert _state() == before
        assert not logger.disabled
        assert GlobalHydra.instance().hydra is own
        assert not HydraConfig.initialized()
        assert compose("config") == {"empty": {}}
        with pytest.raises(HydraException, match="Could not override"):
            compose("config", ["empty.key=1"])  # a config of the caller stays closed


def _state() -> dict[str, object]:
    """Everything of the process that a call must leave as it was."""
    root = logging.getLogger()
    names = ("PL_", "CUBLAS_", "WANDB_", "HYDRA_", "CAPTIONING_")  # libraries set their own
    environment = {name: text for name, text in os.environ.items() if name.startswith(names)}
    return {
        "process": (list(sys.argv), os.getcwd(), environment),
        "logging": (list(root.handlers), root.level, warnings.filters[:]),
        "numbers": (random.getstate(), torch.get_rng_state().tolist()),
        "arrays": str(np.random.get_state()),  # noqa: NPY002 - Lightning seeds it
        "exact": (torch.are_deterministic_algorithms_enabled(), torch.get_default_dtype()),
        "speed": (torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark),
        "threads": torch.get_num_threads(),
    }


@given(VALUES)
def test_values_are_read_as_they_were_given(value: object) -> None:
    (text,) = as_overrides({"key": value})
    assert OverridesParser.create().parse_override(text).value() == value


def test_settings_become_overrides_in_their_order() -> None:
    settings = {
        "data": "own",
        "data.root": Path("a, b"),
        "optimizer": {"lr": np.float32(0.5), "betas": (0.9, 1)},
        "steps": [{"name": "x"}, None],
        "template": {},
    }
    assert as_overrides(settings) == [
        "data=own",
        'data.root="a, b"',
        "optimizer.lr=0.5",
        "optimizer.betas=[0.9,1]",
        "steps=[{name:x},null]",
        "template={}",
    ]


class Choice(Enum):
    COMMA = "a,b"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.bool_(True), "true"),
        (np.int64(3), "3"),
        (torch.tensor(0.5), "0.5"),
        (Choice.COMMA, '"a,b"'),
        (PurePosixPath("a=b"), '"a=b"'),
        (range(2), "[0,1]"),
        (OmegaConf.create([1, "x"]), "[1,x]"),
        (".5", '".5"'),
    ],
)
def test_values_of_other_types(value: object, text: str) -> None:
    assert as_overrides({"key": value}) == [f"key={text}"]


def test_values_that_no_override_can_hold_are_refused() -> None:
    with pytest.raises(TypeError, match=r"optimizer\.lr: must be one of .* got \{1\} \(set\)"):
        as_overrides({"optimizer": {"lr": {1}}})
    with pytest.raises(ValueError, match=r"run_dir: a config cannot hold the path '\$\{seed\}'"):
        as_overrides({"run_dir": Path("${seed}")})
    with pytest.raises(ValueError, match="'a b': a key may contain only letters"):
        as_overrides({"steps": [{"a b": 1}]})


def test_a_run_is_that_of_the_command(tmp_path: Path, cache: Path, undisturbed: None) -> None:
    of_command, of_python = tmp_path / "command", tmp_path / AWKWARD
    own = [*SMALL, f"paths.cache={cache}", "num_epochs=2", "report=false"]
    subprocess.run(
        [sys.executable, "-m", "captioning", "train", *own, f"run_dir={of_command}"],
        env=os.environ | {"PYTHONPATH": str(Path(captioning.__file__).parents[1])},
        check=True,
        capture_output=True,
    )
    run = captioning.train(overrides=own, run_dir=of_python)
    assert (run.folder, run.checkpoint) == (of_python, of_python / "checkpoints" / "best.ckpt")
    scores = [json.loads((f / "metrics.json").read_text()) for f in (of_command, of_python)]
    assert scores[0]["test"]["corpus"] == scores[1]["test"]["corpus"] == run.scores
    assert run.scores["BLEU-1"] > 0
    configs = [read_folder_config(folder / "config.yaml") for folder in (of_command, of_python)]
    assert configs[0].run_name == configs[1].run_name
    assert captioning.train(overrides=own, run_dir=of_python) == run  # finished before

    evaluated = captioning.evaluate(run.folder, split="val", metrics="fast", resamples=0)
    assert evaluated.folder == of_python / "evaluation" / "miniworld_tiny-val"
    written = json.loads((evaluated.folder / "metrics.json").read_text())
    assert written["val"]["corpus"] == evaluated.metrics
    assert len(evaluated.captions) == evaluated.num_images > 0


def test_a_set_is_written_where_it_is_asked_for(tmp_path: Path, undisturbed: None) -> None:
    out = tmp_path / AWKWARD
    settings = {"data": "miniworld", "first_images": 100, "max_pairs": 2, "num_processes": 0}

    async def cell() -> Path:
        return captioning.augment(method="cutswap_thesis", out=out, **settings)

    assert asyncio.run(cell()) == out  # notebooks have a running loop
    assert len((out / "provenance.jsonl").read_text("utf-8").splitlines()) > 0


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"num_epoch": 3}, "num_epoch: there is no such key; did you mean num_epochs?"),
        ({"model": "updown_smal"}, "did you mean updown_small?"),
        ({"optimizer": {"rate": 3}}, "optimizer.rate: there is no such key; optimizer has"),
        ({"num_epochs": 0}, "num_epochs: must be"),
        ({"overrides": ["-m"]}, "overrides: must be KEY=VALUE or ~KEY; got '-m'"),
        ({"overrides": ["--cfg=job"]}, "overrides: must be KEY=VALUE or ~KEY; got '--cfg=job'"),
        ({"overrides": [5]}, "overrides: must be KEY=VALUE or ~KEY; got 5"),
        ({"overrides": iter(["num_epoch=3"])}, "num_epoch: there is no such key"),
        ({"photos": "${seed}"}, "the folder: a config cannot hold the path '${seed}'"),
        ({"overrides": ["seed=1,2", "hydra.mode=MULTIRUN"]}, "captioning train -m"),
    ],
)
def test_errors_can_be_caught(given: dict, told: str, undisturbed: None, tmp_path: Path) -> None:
    with pytest.raises(ValueError) as caught:
        captioning.train(**given)
    assert told in str(caught.value)


def test_errors_are_those_of_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, call, settings in (
        ("train", captioning.train, {"num_epoch": "3"}),
        ("evaluate", captioning.evaluate, {"model": "no_folder", "data": "miniworld"}),
        ("augment", captioning.augment, {"method": "cutswap", "out": "x", "seed": "-1"}),
    ):
        with pytest.raises(SystemExit) as ended:
            main([name, *(f"{key}={value}" for key, value in settings.items())])
        with pytest.raises((ValueError, OSError)) as caught:
            call(**settings)
        assert str(ended.value).partition("\n")[0] == f"{name}: {caught.value}"


def test_places_and_texts_are_refused_where_they_do_not_fit(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="data=miniworld: .* already sets this"):
        captioning.train(tmp_path, data="miniworld")
    with pytest.raises(TypeError, match=r"write \['seed=1'\]"):
        captioning.train(overrides="seed=1")
    with pytest.raises(
        TypeError, match=r"the folder must be a str or a Path; got \['a'\] \(list\)"
    ):
        captioning.train(["a"])  # type: ignore[arg-type]


def test_a_program_without_logging_sees_messages_meanwhile() -> None:
    text = """
import logging, captioning
try:
    captioning.evaluate("captions.json", data="miniworld")
except OSError:
    print(logging.getLogger().handlers, logging.getLogger().level)
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout == f"[] {logging.WARNING}\n"
