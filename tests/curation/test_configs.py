"""Every curation config builds what its name says, and every pairing exists by override."""

from __future__ import annotations

import re

import pytest
from hydra.utils import instantiate

from captioning.configuration import compose_config
from curation.loop.callback import CurationCallback
from curation.loop.probes import OnlineProbe, RescoreProbe

PRESET = r"(remove|replace_caption|replace_image)_(top_loss|random|sigma)_(\d+)"


@pytest.fixture
def build(repository):
    def function(*overrides: str):
        config = compose_config("train", overrides=list(overrides))
        return config.curation.name, instantiate(config.curation.callback)

    return function


def presets(repository):
    files = {path.stem for path in (repository / "configs/curation").glob("*.yaml")}
    return sorted(files - {"base", "none"})


def test_presets_are_what_they_are_called(build, repository):
    names = presets(repository)
    assert {"remove_top_loss_1", "replace_caption_sigma_2", "remove_random_5"} <= set(names)
    assert len(names) >= 14
    for name in names:
        built_name, callback = build(f"curation={name}")
        assert isinstance(callback, CurationCallback)
        assert built_name == callback.policy.name == name
        if found := re.fullmatch(PRESET, name):
            amend, select, amount = found.groups()
            assert type(callback.policy.amend).__module__ == f"curation.amend.{amend}"
            module = "top" if select == "top_loss" else select
            assert type(callback.policy.select).__module__ == f"curation.select.{module}"
            wanted = {"num_std": 2.0} if select == "sigma" else {"ratio": int(amount) / 100}
            found = vars(callback.policy.select)
            assert {name: found[name] for name in wanted} == wanted
            assert select == "random" or vars(found["score"]) == {"num_epochs": 1}


@pytest.mark.parametrize("ratio", [20, 40, 50, 60, 80])
def test_static_presets_act_once_before_training(build, ratio):
    _, callback = build(f"curation=static_replace_image_{ratio}")
    select, policy = callback.policy.select, callback.policy
    assert (select.ratio, select.coin) == (ratio / 100, ratio == 50)
    assert [epoch for epoch in range(-1, 5) if policy.schedule.due(epoch)] == [-1]
    assert policy.amend.changes_images


def test_any_amender_can_act_before_training(build):
    _, callback = build("curation=static_replace_image", "curation/amend=remove")
    assert type(callback.policy.amend).__name__ == "Remove"
    assert callback.policy.schedule.due(-1)


def test_replacing_images_needs_a_source(build):
    with pytest.raises(Exception, match=r"choose one with curation/image_source=NAME"):
        build("curation=remove", "curation/amend=replace_image")


def test_none_has_no_callback(build):
    assert build("curation=none") == ("none", None)


def test_every_pairing_exists_by_override(build, repository):
    selectors = sorted(path.stem for path in (repository / "configs/curation/select").iterdir())
    amenders = sorted(path.stem for path in (repository / "configs/curation/amend").iterdir())
    for amend in amenders:
        for select in selectors:
            _, callback = build(f"curation={amend}", f"curation/select={select}")
            assert type(callback.policy.amend).__module__ == f"curation.amend.{amend}"
            assert type(callback.policy.select).__module__ == f"curation.select.{select}"


def test_overrides_reach_the_parts(build):
    name, callback = build(
        "curation=remove",
        "curation.select.ratio=0.07",
        "curation/probe=rescore",
        "curation.schedule.from_epoch=2",
        "curation.name=mine",
    )
    assert callback.policy.select.ratio == 0.07
    assert callback.policy.schedule.from_epoch == 2
    assert name == callback.policy.name == "mine"
    assert isinstance(callback.probe, RescoreProbe)
    assert isinstance(build("curation=remove")[1].probe, OnlineProbe)
