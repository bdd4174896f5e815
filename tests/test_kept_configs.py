"""The tests' Hydra composes what Hydra composes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from captioning.configuration import compose_config
from tests.kept_configs import AS_IT_IS, kept_configs

RETRIEVAL = ("curation=replace_image", "curation/image_source=retrieval")
COMMANDS = [
    ("train", ()),
    ("train", ("num_epochs=3", "+loader.added=[1,2]", "~trainer", "+data.train.added=1")),
    ("train", ("experiment=data_curation/table2_miniworld", "curation=remove", "debug=smoke")),
    ("train", ("steps=[plant_mixed,share_of_photos]", "corpus=coco", "hydra/job_logging=none")),
    ("train", (*RETRIEVAL, "curation.image_source.pool=POOL", "model=updown_nocaps")),
    ("train", ("callbacks=[early_stopping]", "logger=csv")),
    ("train", ()),
    ("evaluate", ("run=RUN", "data=nocaps", "extra_metrics=[nocaps]", "rerank=consensus")),
    ("augmentation", ("corpus=flickr30k", "corpus@prior=own", "method=toca_published", "out=OUT")),
]


def composed(command: str, overrides: tuple[str, ...]) -> tuple[str, Any]:
    """The config as text, and what it stands for but for Hydra's part, which is not all known."""
    config = compose_config(command, overrides, return_hydra_config=True)
    text = OmegaConf.to_yaml(config)
    del config._content["hydra"]
    return text, OmegaConf.to_container(config, resolve=True)


def test_the_same_is_composed(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = [composed(*command) for command in COMMANDS]
    for owner, name, original in AS_IT_IS:
        monkeypatch.setattr(owner, name, original)
    assert [composed(*command) for command in COMMANDS] == kept


def test_files_of_the_folder_alone_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    own = tmp_path / "configs" / "optimizer" / "own.yaml"
    own.parent.mkdir(parents=True)
    for rate in (0.25, 0.5):
        own.write_text(f"lr: {rate}\n")
        assert compose_config("train", ["optimizer=own"]).optimizer.lr == rate


def test_files_of_the_folder_are_read_once(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    own = tmp_path / "configs" / "optimizer" / "own.yaml"
    own.parent.mkdir(parents=True)
    with kept_configs(tmp_path / "configs"):
        for rate in (0.25, 0.5):
            own.write_text(f"lr: {rate}\n")
            assert compose_config("train", ["optimizer=own"]).optimizer.lr == 0.25
