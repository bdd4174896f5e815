from __future__ import annotations

import importlib
import logging
import pkgutil
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from captioning.config.compose import compose_config, trust
from captioning.config.moved import MOVED, present_name, rename_targets
from captioning.config.plugins import check_loadable
from captioning.results.folder_config import read_folder_config

# What run folders of earlier versions name; a class is found under its present name.
EARLIER = (
    "captioning.data.miniworld.dataset.read_miniworld",
    "augmentation.images.generated.GeneratedImages",
    "augmentation.regions.held_out.read_words",
    "augmentation.captions.writing.trigram_writer.TrigramWriter",
    "augmentation.regions.novel_objects.NovelObjects",
    "captioning.data.readers.jsonl.read_jsonl",
    "curation.loop.budget.Budget",
    "curation.loop.policy.CurationPolicy",
    "augmentation.images.prompts.Prompter",
    "augmentation.captions.toca.prompts.PromptWriter",
    "captioning.decoding.held.HeldBeamSearch",
    "captioning.text.word_vectors.load_word_vectors",
)


@pytest.mark.parametrize("name", MOVED.values())
def test_present_rooms_exist(name):
    assert pkgutil.resolve_name(present_name(name))


@pytest.mark.parametrize("name", EARLIER)
def test_an_earlier_name_is_found(name):
    module, _, attribute = present_name(name).rpartition(".")
    assert callable(getattr(importlib.import_module(module), attribute))


def test_only_whole_names_are_renamed():
    assert present_name("captioning.filesystem.read") == "captioning.filesystem.read"
    assert present_name("my.captioning.files.read") == "my.captioning.files.read"
    assert present_name("captioning.files") == "captioning.runtime.files"


def test_targets_are_renamed_at_any_depth():
    config = OmegaConf.create(
        {
            "source": {
                "_target_": "augmentation.images.generated.GeneratedImages",
                "generators": [{"_target_": "augmentation.images.stable_diffusion.X"}, "${name}"],
            },
            "name": "augmentation.images",
        }
    )
    OmegaConf.set_readonly(config, True)
    assert set(rename_targets(config).values()) == {
        "augmentation.image_replacement.generated.GeneratedImages",
        "augmentation.image_replacement.stable_diffusion.X",
    }
    assert (
        config.source.generators[0]._target_ == "augmentation.image_replacement.stable_diffusion.X"
    )
    assert config.name == "augmentation.images"
    assert rename_targets(config) == {}


def test_a_run_folder_of_before_is_read(tmp_path: Path):
    file = tmp_path / "config.yaml"
    file.write_text(
        "data: {train: {_target_: captioning.data.miniworld.dataset.read_miniworld, split: a}}\n"
    )
    config = read_folder_config(file)
    assert config.data.train._target_ == "captioning.miniworld.dataset.read_miniworld"
    check_loadable(config)


def test_the_user_is_told_of_the_present_name(caplog):
    config = OmegaConf.create({"_target_": "captioning.data.miniworld.dataset.read_miniworld"})
    with caplog.at_level(logging.WARNING):
        trust(config)
    assert config._target_ == "captioning.miniworld.dataset.read_miniworld"
    assert "captioning.data.miniworld.dataset.read_miniworld was renamed" in caplog.text


def test_own_configs_name_nothing_of_before(caplog):
    with caplog.at_level(logging.WARNING):
        compose_config("train")
    assert "was renamed" not in caplog.text
