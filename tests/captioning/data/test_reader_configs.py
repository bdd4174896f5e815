"""Every data config of a reader composes, and those whose files are at hand give their rosters."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from hydra.utils import get_method, instantiate
from omegaconf import DictConfig, OmegaConf

from captioning.config.compose import compose_config

SPLITS = {
    "arrow": ("train", "val", "test"),
    "coco": ("train", "val", "test"),
    "coco_entities": ("train", "val", "test"),
    "coco_karpathy": ("train", "val", "test"),
    "coco_train2014": ("train", "test"),
    "coco_val2014": ("test",),
    "flickr30k_entities": ("train", "val", "test"),
    "flickr30k_entities_karpathy": ("train", "val", "test"),
    "flickr8k": ("train", "val", "test"),
    "flickr8k_entities": ("train", "val", "test"),
    "flickr8k_karpathy": ("train", "val", "test"),
    "imagefolder": ("train", "val", "test"),
    "jsonl": ("train", "val", "test"),
    "nocaps": ("test", "test_in", "test_near", "test_out"),
    "webdataset": ("train", "val", "test"),
}


def load(repository: Path, name: str, data: str | Path = "data") -> DictConfig:
    return compose_config("prepare", [f"data={name}", f"paths.data={data}"]).data


@pytest.mark.long
@pytest.mark.parametrize("name", SPLITS)
def test_configs_name_readers_with_arguments_that_they_take(repository, name):
    config = load(repository, name)
    assert config.name == name
    splits = {
        key: config[key]
        for key in config
        if "_target_" in (config[key] if OmegaConf.is_dict(config[key]) else {})
    }
    assert tuple(splits) == SPLITS[name]
    for split in splits.values():
        arguments = OmegaConf.to_container(split, resolve=True)
        reader = get_method(arguments.pop("_target_"))
        inspect.signature(reader).bind(**arguments)
        assert arguments["name"].startswith(f"{name}/")
    for file in config.files:
        assert {"path", "what", "source", "url", "sha256"} <= set(file)
        assert not Path(file.path).is_absolute()


@pytest.mark.long
@pytest.mark.parametrize("name", ["flickr8k", "flickr8k_entities"])
def test_flickr8k_configs_give_the_official_test(repository, shared_data, name):
    config = load(repository, name, shared_data)
    for file in config.files:
        assert (Path(config.root) / file.path).exists()
    roster = instantiate(config.test)
    assert (roster.name, len(roster)) == (f"{name}/test", 5000)


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("jsonl", "train.jsonl"),
        ("imagefolder", "metadata.jsonl"),
        ("coco", "captions_train2017"),
        ("webdataset", r"webdataset: no shard is named '\*.tar'"),
        ("arrow", "arrow: no such folder; correct folder="),
    ],
)
def test_what_is_missing_is_named(repository, tmp_path, name, missing):
    with pytest.raises(Exception, match=missing) as caught:
        instantiate(load(repository, name, tmp_path).train)
    assert isinstance(caught.value.__cause__ or caught.value, FileNotFoundError)
