"""docs/extend/add_an_augmenter.md, followed to the letter: its files make a set of captions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from augmentation.run import augment
from captioning.config.compose import compose_config
from captioning.config.plugins import import_plugins
from captioning.data.steps.added_captions import FILE
from tests.pages import write_files
from tests.task_calls import call


def test_the_files_of_the_page_make_captions(repository: Path, tmp_path: Path, monkeypatch):
    files = write_files(repository / "docs" / "extend" / "add_an_augmenter.md", tmp_path / "user")
    assert len(files) == 2
    monkeypatch.syspath_prepend(tmp_path / "user")
    import_plugins(["my_augmentation"])
    overrides = [
        *("method=joined", "data=miniworld_tiny", "first_images=4", "method.max_words=22"),
        *(f"out={tmp_path / 'made'}", f"paths.cache={tmp_path / 'cache'}"),
        f"hydra.searchpath=[file://{tmp_path / 'user' / 'configs'}]",
    ]
    config = compose_config("augmentation", overrides)
    card = call(augment, config)
    lines = (tmp_path / "made" / FILE).read_text().splitlines()
    captions = [json.loads(line)["caption"] for line in lines]
    assert card["counts"]["captions"] == len(captions) > 0
    assert card["counts"]["left out"]["too long"] > 0
    assert all(" and " in caption and len(caption.split()) <= 22 for caption in captions)


@pytest.mark.parametrize("name", ["card.json", "statistics.json", "statistics.png", FILE])
def test_the_page_names_the_files_of_a_set(repository: Path, name: str):
    assert f"`{name}`" in (repository / "docs" / "extend" / "add_an_augmenter.md").read_text()
