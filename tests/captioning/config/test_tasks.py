from __future__ import annotations

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
