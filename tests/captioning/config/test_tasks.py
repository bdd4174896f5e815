from __future__ import annotations

import pytest
from omegaconf import OmegaConf

from captioning.config.tasks import arguments_of, plain
from captioning.training.settings import Corpus


def recorded(*, corpus: Corpus, seed: int = 0) -> object:
    return plain({"corpus": corpus, "seed": seed})


def test_recorded_settings_have_keys_and_order_of_the_config() -> None:
    corpus = {"share_seed": 0, "theirs": {"more": "${seed}"}, "name": "lines", "train": None}
    config = OmegaConf.create({"seed": 3, "corpus": corpus})
    kept = recorded(**arguments_of(recorded, config))
    expected = corpus | {"theirs": {"more": 3}}
    assert kept == {"corpus": expected, "seed": 3}
    assert isinstance(kept, dict)
    assert list(kept["corpus"]) == list(corpus)


def test_settings_that_python_made_are_recorded_whole() -> None:
    expected = {"name": "none", "train": None, "share": None, "share_seed": 0}
    assert recorded(corpus=Corpus()) == {"corpus": expected, "seed": 0}


def number(*, seed: int | None = None, corpus: Corpus | None = None) -> None:
    """A task whose keys all have defaults."""


def test_a_value_that_cannot_be_resolved_is_refused() -> None:
    config = OmegaConf.create({"seed": "${nokey}"})
    with pytest.raises(ValueError, match="^seed: Interpolation key 'nokey' not found$"):
        arguments_of(number, config)


def test_a_group_for_other_uses_has_its_default() -> None:
    config = OmegaConf.create({"seed": 1, "corpus": {"train": "${nokey}"}})
    assert arguments_of(number, config) == {"seed": 1}
