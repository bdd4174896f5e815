from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from omegaconf import DictConfig, OmegaConf

from captioning.config.ranges import PositiveInt
from captioning.config.tasks import arguments_of, plain, recorded
from captioning.evaluation.settings import OtherData
from captioning.training.settings import Corpus, NeededFile


def keep(*, corpus: Corpus, seed: int = 0) -> object:
    return plain({"corpus": corpus, "seed": seed})


def test_recorded_settings_have_keys_and_order_of_the_config() -> None:
    corpus = {"share_seed": 0, "theirs": {"more": "${seed}"}, "name": "lines", "train": None}
    config = OmegaConf.create({"seed": 3, "corpus": corpus})
    kept = keep(**arguments_of(keep, config))
    expected = corpus | {"theirs": {"more": 3}}
    assert kept == {"corpus": expected, "seed": 3}
    assert isinstance(kept, dict)
    assert list(kept["corpus"]) == list(corpus)


def test_settings_that_python_made_are_recorded_whole() -> None:
    expected = {"name": "none", "train": None, "share": None, "share_seed": 0}
    assert keep(corpus=Corpus()) == {"corpus": expected, "seed": 0}


def number(*, seed: int | None = None, corpus: Corpus | None = None) -> None:
    """A task whose keys all have defaults."""


def test_a_value_that_cannot_be_resolved_is_refused() -> None:
    config = OmegaConf.create({"seed": "${nokey}"})
    with pytest.raises(ValueError, match="^seed: Interpolation key 'nokey' not found$"):
        arguments_of(number, config)


def test_a_group_for_other_uses_has_its_default() -> None:
    config = OmegaConf.create({"seed": 1, "corpus": {"train": "${nokey}"}})
    assert arguments_of(number, config) == {"seed": 1}


def test_a_group_of_which_nothing_is_chosen_is_not_recorded() -> None:
    given = {"search": None, "out": None, "corpus": None}
    assert recorded(given, groups=("search", "corpus")) == {"out": None}


@dataclass(frozen=True)
class Sizes:
    """A record that is no group of settings."""

    widths: Sequence[int]


def several(
    *, files: Sequence[NeededFile], sizes: Sizes, depth: PositiveInt, data: OtherData | None = None
) -> None:
    """A task with a value of each kind."""


VALUES = {
    "files": [{"path": "${name}", "what": "photos", "source": "them"}],
    "sizes": {"widths": [1, "${depth}"]},
    "depth": 2,
    "name": "photos.zip",
    "data": {"name": "${theirs}", "train": None},
    "theirs": "own",
}


def test_records_are_built_within_lists_and_a_group_may_stay_in_its_place() -> None:
    config = OmegaConf.create(VALUES)
    given = arguments_of(several, config)
    assert given["files"] == [NeededFile(path="photos.zip", what="photos", source="them")]
    assert given["sizes"] == Sizes(widths=[1, 2])
    assert type(given["sizes"].widths) is list
    assert isinstance(given["data"], DictConfig)
    assert given["data"]._get_full_key("name") == "data.name"


def test_a_group_that_stays_in_its_place_is_checked_as_one() -> None:
    config = OmegaConf.create({**VALUES, "data": {"nme": "own"}})
    with pytest.raises(ValueError, match=r"data.nme: there is no such key; did you mean name\?"):
        arguments_of(several, config)
    config = OmegaConf.create({**VALUES, "data": {"train": None}})
    with pytest.raises(ValueError, match="^data.name: must be given"):
        arguments_of(several, config)
