"""Packaged policies without a Hydra app."""

from __future__ import annotations

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra

from curation import preset
from curation.score.fit import Fit
from curation.select.sigma import Sigma
from tests.matching_folders import save_blip_captioner, save_blip_matching


def test_a_preset_is_the_policy_of_the_command_line():
    policy = preset("remove", "curation.select.ratio=0.05", "curation.schedule.from_epoch=1")
    assert policy.name == "remove-schedule.from_epoch_1-select.ratio_0.05"
    assert (policy.select.ratio, policy.schedule.from_epoch) == (0.05, 1)
    policy = preset("replace_caption", "curation/score=sibling_words", "curation/select=sigma")
    assert isinstance(policy.select, Sigma)
    assert preset("remove", "curation.name=mine").name == "mine"


def test_the_recommended_policy_acts_before_training_on_its_own_estimate():
    policy = preset("recommended")
    assert policy.name == "recommended"
    assert isinstance(policy.select.score, Fit)
    assert [epoch for epoch in range(-1, 3) if policy.schedule.due(epoch)] == [-1]
    fewer = preset("recommended", "curation.select.threshold=0.8")
    assert (fewer.name, fewer.select.threshold) == ("recommended-select.threshold_0.8", 0.8)


@pytest.mark.long
def test_other_groups_may_be_put_below_curation(tmp_path):
    scorer = save_blip_matching(tmp_path / "matching")
    captioner = save_blip_captioner(tmp_path / "captioner")
    pairs = "matching@curation.score.pairs=blip_itm"
    named = f"curation.score.pairs.scorer.name={scorer}"
    match = preset("remove", "curation/score=siglip", pairs, named)
    assert "blip_itm" in match.name
    assert "matching" in match.select.score.name
    space = preset("remove", "curation/score=clip_score", "similarity@curation.score=joint_space")
    assert "joint-space" in space.select.score.name
    models = (f"accept.scorer.name={scorer}", f"source.captioner.name={captioner}")
    accept = "+matching@curation.amend.accept=blip_itm"
    checked = preset("replace_caption_model", accept, *(f"curation.amend.{m}" for m in models))
    assert checked.amend.accept.is_probability


def test_scores_of_images_take_another_score():
    for name in ("per_image", "within_image"):
        other = "curation/score@curation.score.score=sibling_words"
        score = preset("remove", f"curation/score={name}", other).select.score
        assert "words in common" in score.name


def test_a_hydra_app_goes_on_as_it_was(repository):
    with initialize_config_dir(str(repository / "configs"), version_base="1.3"):
        state = GlobalHydra.instance().hydra
        assert preset("remove").name == "remove"
        assert GlobalHydra.instance().hydra is state
        assert compose("train").curation.name == "none"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("removal",), "curation=removal: .*Could not find 'curation/removal'"),
        (("none",), "curation=none has no policy"),
        (("remove", "curation.select.ratoi=1"), "Could not override 'curation.select.ratoi'"),
        (("remove", "curation.select.ratio=7"), r"curation\.select\.ratio: must be .*got 7"),
        (("remove", "model=updown"), "'model=updown' does not belong to a policy: use keys"),
        (("remove", "matching@pairs=clip"), "'matching@pairs=clip' does not belong to a policy"),
        (("remove", "curation/probe=rescore"), "curation/probe does not apply to your own loop"),
        (("remove", "curation.keep=x.json"), "does not apply here: use Curation.open"),
    ],
)
def test_what_is_wrong_is_one_line(overrides, message):
    with pytest.raises(ValueError, match=message) as error:
        preset(*overrides)
    assert "\n" not in str(error.value)
