"""What makes captions in other processes: the same parts, of the same config.

Each process reads the data by itself, as sending them would take longer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from omegaconf import DictConfig, OmegaConf

from augmentation.captions.caption_set import PhotoWorker
from captioning.config.build import build_part
from captioning.data.region_labels import relabel_roster
from captioning.data.roster import Roster
from captioning.text.lemmas import load_lemmas
from captioning.text.object_words import LEMMAS
from captioning.training.rosters import read_corpus, read_with_steps

PHOTO_KEYS = ("seed", "paths", "data", "split", "first_images", "steps", "method")
TEXT_KEYS = ("seed", "paths", "corpus", "first_images", "method")


def photo_worker(config: DictConfig) -> Callable[[], PhotoWorker]:
    """A maker of workers that caption the photos of a config's data set."""
    return partial(_photo_worker, plain_values(config, PHOTO_KEYS))


def _photo_worker(values: dict[str, Any]) -> PhotoWorker:
    config = OmegaConf.create(values)
    return PhotoWorker(method=build_part(config.method), roster=read_photos(config))


def corpus_worker(config: DictConfig) -> Callable[[], Any]:
    """A maker of `AbstractCorpusMethod.worker`, with the captions of a config's corpus."""
    return partial(_corpus_worker, plain_values(config, TEXT_KEYS))


def _corpus_worker(values: dict[str, Any]) -> Any:
    config = OmegaConf.create(values)
    captions = [sample.caption for sample in read_corpus(config).samples]
    return build_part(config.method).worker(captions)


def read_photos(config: DictConfig) -> Roster:
    """The photos that are augmented and that patches are cut from."""
    return relabel_roster(read_with_steps(config, config.split)[0], load_lemmas(LEMMAS))


def plain_values(config: DictConfig, keys: tuple[str, ...]) -> dict[str, Any]:
    """Some keys of a config, resolved alone: other keys may refer to missing ones."""
    values = {key: config[key] for key in keys}
    return {
        key: OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
        for key, value in values.items()
    }
