"""Every policy is an amender and overrides, and is named after them; every pairing exists."""

from __future__ import annotations

import pytest
from hydra.utils import instantiate
from omegaconf import OmegaConf

from captioning.config.compose import compose_config
from captioning.results.run_folder import changed_values, flat
from curation.loop.callback import CurationCallback
from curation.loop.probes import OnlineProbe, RescoreProbe
from tests.curation.loop.test_budget import make_context
from tests.matching_folders import save_blip_captioner, save_blip_matching

ENTRIES = {
    "remove": "Remove",
    "replace_caption": "ReplaceCaption",
    "replace_image": "ReplaceImage",
    "replace_image_published": "ReplaceImage",
    "replace_both": "ReplaceBoth",
    "down_weight": "DownWeight",
    "mask_words": "MaskWords",
    "mask_sentences": "MaskSentences",
    "remove_sentences": "RemoveSentences",
    "replace_sentences": "ReplaceSentences",
    "replace_word": "ReplaceWord",
    "condition": "Condition",
    "pseudo_label": "PseudoLabel",
    "recommended": "Remove",
    "track": "Remove",
}
# With models of the user's: where their folders are named, see `tests.matching_folders`.
WITH_MODELS = {
    "capfilt": ("CapFilt", ("captioner.captioner", "filter.scorer")),
    "capfilt_captioner": ("CapFilt", ("captioner.captioner",)),
    "capfilt_filter": ("Remove", ("filter.scorer",)),
    "replace_caption_model": ("ModelCaption", ("amend.source.captioner",)),
    "replace_sentences_model": ("ReplaceSentences", ("amend.source.captioner",)),
    "replace_both_model": ("ReplaceBoth", ("amend.caption.source.captioner",)),
}


@pytest.fixture
def build(repository):
    def function(*overrides: str):
        config = compose_config("train", overrides=list(overrides), return_hydra_config=True)
        return config.curation.name, instantiate(config.curation.callback)

    return function


@pytest.mark.long
def test_every_entry_builds_the_policy_of_its_name(build, repository):
    files = {path.stem for path in (repository / "configs/curation").glob("*.yaml")}
    assert files - {"base", "none"} == {*ENTRIES, *WITH_MODELS}
    for name, amender in ENTRIES.items():
        built_name, callback = build(f"curation={name}")
        assert isinstance(callback, CurationCallback)
        assert built_name == callback.policy.name == name
        assert type(callback.policy.amend).__name__ == amender


def test_every_entry_with_models_builds_its_policy(build, tmp_path):
    folders = {
        "scorer": save_blip_matching(tmp_path / "matching"),
        "captioner": save_blip_captioner(tmp_path / "captioner"),
    }
    for name, (amender, models) in WITH_MODELS.items():
        named = [f"curation.{key}.name={folders[key.rpartition('.')[2]]}" for key in models]
        _, callback = build(f"curation={name}", f"curation.name={name}", *named)
        assert callback.policy.name == name
        assert type(callback.policy.amend).__name__ == amender
        acts_before = callback.policy.schedule.due(-1)
        assert acts_before == name.startswith(("capfilt", "replace_sentences"))


def test_a_policy_is_named_after_its_overrides(build):
    assert build("curation=remove", "curation.select.ratio=0.05")[0] == "remove-select.ratio_0.05"
    sigma = ("curation=replace_caption", "curation/select=sigma", "curation.select.num_std=2")
    assert build(*sigma)[0] == "replace_caption-select_sigma-select.num_std_2"
    assert build("curation=remove", "seed=3", "optimizer.lr=0.1")[0] == "remove"


def test_a_policy_can_act_once_before_training(build):
    static = (
        "curation=replace_image",
        "curation/select=share",
        "curation/schedule=before_training",
    )
    _, callback = build(*static, "curation.select.ratio=0.4", "curation.select.coin=true")
    select, policy = callback.policy.select, callback.policy
    assert (select.ratio, select.coin) == (0.4, True)
    assert [epoch for epoch in range(-1, 5) if policy.schedule.due(epoch)] == [-1]
    assert policy.amend.changes_images


def test_a_policy_can_act_once(build):
    _, callback = build("curation=remove", "curation/schedule=once", "curation.warmup=2")
    assert [epoch for epoch in range(-1, 5) if callback.policy.schedule.due(epoch)] == [2]


def test_replacing_images_needs_a_source(build):
    with pytest.raises(Exception, match=r"set curation/image_source=NAME"):
        build("curation=replace_image", "~curation/image_source")


@pytest.mark.parametrize("select", ["top", "random"])
def test_track_changes_nothing_whatever_is_selected(build, select):
    ratio = "curation.select.ratio=0.5"
    policy = build("curation=track", f"curation/select={select}", ratio)[1].policy
    context = make_context()
    decision = policy.deliberate(context)
    assert decision.selected
    assert decision.edits == ()
    assert set(decision.unchanged) == {chosen.sample.sample_id for chosen in decision.selected}


def test_a_run_of_track_goes_on_that_began_before_policies_could_leave_edits_out(build):
    config = compose_config("train", ["curation=track"]).curation
    old = OmegaConf.create({"curation": config})
    new = OmegaConf.create(OmegaConf.to_container(old))
    assert old.curation.callback.policy.pop("edits") is False
    old, new = (flat(OmegaConf.to_container(one)) for one in (old, new))
    assert changed_values(old, new) == {}


def test_none_has_no_callback(build):
    assert build("curation=none") == ("none", None)


@pytest.mark.long
def test_every_pairing_exists_by_override(build, repository):
    """Every selector in one entry, and two of unlike settings in every entry."""
    selectors = {path.stem for path in (repository / "configs/curation/select").iterdir()}
    selectors.remove("unmatched")  # needs scores by a model
    pairs = {("remove", select) for select in selectors}
    # `track` selects nothing: a ratio of 0
    pairs |= {
        (entry, select) for entry in ENTRIES.keys() - {"track"} for select in ("top", "sigma")
    }
    for entry, select in sorted(pairs):
        _, callback = build(f"curation={entry}", f"curation/select={select}")
        assert type(callback.policy.amend).__name__ == ENTRIES[entry]
        module = "above" if select == "likely" else select
        assert type(callback.policy.select).__module__ == f"curation.select.{module}"


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


@pytest.mark.parametrize("name", ["within_image", "per_image"])
def test_an_images_captions_are_compared_by_any_score(build, name):
    chosen = ("curation=remove", f"curation/score={name}")
    built = build(*chosen)[1].policy.select.score
    assert built.score.name == "loss"
    other = "curation/score@curation.score.score=length"
    assert type(build(*chosen, other)[1].policy.select.score.score).__name__ == "Length"


@pytest.mark.long
def test_a_second_look_takes_networks_of_all_kinds(tmp_path):
    chosen = "curation/score=second_look"
    more = "+matching@curation.score.pairs.matching=blip_itm"
    folder = save_blip_matching(tmp_path / "matching")
    own = [f"curation.score.pairs.matching.scorer.name={folder}", f"paths.cache={tmp_path}"]
    config = compose_config("train", ["curation=replace_word", chosen, more, *own])
    score = instantiate(config.curation.score)
    assert type(score).__name__ == "SecondLook"
    assert score.name.endswith("looked at again by joint_space, captioner, matching")
    alone = ["curation=replace_word", chosen, "~matching@curation.score.pairs.captioner"]
    assert list(compose_config("train", alone).curation.score.pairs) == ["joint_space"]
