"""Runs and policies are named after what was chosen and overridden."""

from __future__ import annotations

import re
import sys

import hydra
import pytest
from hydra.core.hydra_config import HydraConfig

from captioning.config.compose import compose_config
from captioning.config.run_names import MAX_LENGTH

PLAIN = "miniworld/updown_small"


@pytest.fixture
def named(repository):
    def function(*overrides: str, hydra: bool = True) -> str:
        return compose_config("train", list(overrides), return_hydra_config=hydra).run_name

    return function


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        ((), PLAIN),
        (("data=flickr8k", "model=updown_micro"), "flickr8k/updown_micro"),
        (("optimizer.lr=1e-3",), f"{PLAIN}-optimizer.lr_0.001"),
        (("optimizer=adamw", "num_epochs=2"), f"{PLAIN}-num_epochs_2-optimizer_adamw"),
        (("model.module.hidden_size=64",), f"{PLAIN}-model.module.hidden_size_64"),
        (
            ("ema_decay=null", "loader.fixed_updates=false"),
            f"{PLAIN}-ema_decay_null-loader.fixed_updates_false",
        ),
        (("metrics.test=[BLEU,CIDEr-D]",), f"{PLAIN}-metrics.test_BLEU_CIDEr-D"),
        (
            ("first_images=${num_epochs}", "num_epochs=5", "steps=[plant_swap20]"),
            f"{PLAIN}-first_images_5-num_epochs_5-steps_plant_swap20",
        ),
        (("start_from=runs/a b/seed0",), f"{PLAIN}-start_from_runs_a_b_seed0"),
        (("~optimizer.lr",), f"{PLAIN}-no_optimizer.lr"),
        (("+model.lora.rank=8",), f"{PLAIN}-model.lora.rank_8"),
        (("debug=smoke",), f"smoke/{PLAIN}"),
    ],
)
def test_overrides_make_the_name(named, overrides, name):
    assert named(*overrides) == name


def test_the_policy_stands_first_and_by_its_own_name(named):
    policy = ("curation=remove", "curation/select=sigma", "curation.select.num_std=3")
    assert (
        named("optimizer.lr=0.1", *policy)
        == f"{PLAIN}-remove-select_sigma-select.num_std_3-optimizer.lr_0.1"
    )
    assert named(*policy, "curation.name=mine") == f"{PLAIN}-mine"
    assert named("curation=none") == PLAIN


def test_what_changes_no_result_is_left_out(named):
    ways = ("seed=3", "threads=2", "paths.runs=elsewhere", "run_dir=here", "resume=never")
    assert named(*ways, "trainer.devices=2", "loader.num_workers=4", "logger=none") == PLAIN


def test_the_order_of_overrides_plays_no_part_and_the_last_counts(named):
    assert named("num_epochs=3", "ema_decay=0.9") == named("ema_decay=0.9", "num_epochs=3")
    assert named("num_epochs=3", "num_epochs=4") == named("num_epochs=4")


def test_a_long_name_ends_in_a_digest(named):
    long, other = (named(f"start_from={'x' * 300}{end}") for end in "ab")
    assert long != other
    assert len(long) == len(PLAIN) + MAX_LENGTH


def test_names_are_folders_that_the_command_line_takes(named):
    name = named("start_from='a=b, c:ü/d'", "metrics.test=[BLEU]")
    assert re.fullmatch(r"[\w./+-]+", name, re.ASCII)


def test_without_hydras_record_the_policy_remains(named):
    assert named("curation=remove", "optimizer.lr=1", hydra=False) == f"{PLAIN}-remove"


def test_jobs_of_a_sweep_have_folders_of_their_own(repository, tmp_path, monkeypatch):
    folders = []

    def task(config) -> None:
        folders.append(config.run_dir)
        assert config.run_dir == HydraConfig.get().runtime.output_dir

    overrides = ("optimizer.lr=1e-3,2e-3", "curation=track,remove", f"paths.runs={tmp_path}")
    monkeypatch.setattr(sys, "argv", ["train", "-m", *overrides])
    where = {"config_path": str(repository / "configs"), "config_name": "train"}
    hydra.main(version_base="1.3", **where)(task)()
    names = [
        f"{policy}-optimizer.lr_{lr}" for lr in (0.001, 0.002) for policy in ("track", "remove")
    ]
    assert folders == [str(tmp_path / f"{PLAIN}-{name}" / "seed0") for name in names]


@pytest.mark.parametrize(
    ("root", "name"),
    [
        ("my_photos", "own/my_photos-shipped"),
        ("a/b/../my_photos/", "own/my_photos-shipped"),
        ("my photos (2024)", "own/my_photos_2024-shipped"),
        ("OWNER/NAME@0123", "own/NAME-shipped"),
    ],
)
def test_runs_of_ones_own_photos_are_named_after_their_folder(root: str, name: str) -> None:
    config = compose_config("train", ["experiment=own_photos", f"data.root='{root}'"])
    assert config.run_name == name
    config = compose_config("train", ["data=own", f"data.root='{root}'"])
    assert config.run_name == name.replace("shipped", "updown_small")
    assert compose_config("train", ["data=flickr8k"]).run_name == "flickr8k/updown_small"
