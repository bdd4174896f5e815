"""The tests' Hydra composes what Hydra composes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf

from captioning.config.compose import compose_config
from tests.kept_configs import AS_IT_IS, fast_loader, kept_configs

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


def test_yaml_is_read_and_refused_alike(repository: Path, tmp_path: Path) -> None:
    slow = next(original for _, name, original in AS_IT_IS if name == "get_yaml_loader")()
    fast = fast_loader(slow)
    texts = [path.read_text() for path in sorted((repository / "configs").rglob("*.yaml"))]
    assert len(texts) > 100
    for text in [*texts, "a: [1e3, .5, 2020-01-01, ~, yes]\n", ""]:
        assert yaml.load(text, Loader=fast) == yaml.load(text, Loader=slow)
    for number, text in enumerate(["a: 1\na: 2\n", "a: [1,\nb: }\n", "\ta: 1\n", "a: !x 1\n"]):
        (file := tmp_path / f"{number}.yaml").write_text(text)
        told = []
        for loader in (fast, slow):
            with file.open() as stream, pytest.raises(yaml.YAMLError) as caught:
                yaml.load(stream, Loader=loader)
            told.append(str(caught.value))
        assert told[0] == told[1]
