"""New pairs, or new captions alone: ``captioning augment method=NAME data=NAME out=FOLDER``.

Settings are in ``configs/augmentation.yaml``; docs/region_augmentation.md, docs/ssa.md and
docs/toca.md say what is written.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial, reduce
from itertools import islice
from operator import getitem
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from augmentation.captions.caption_set import PARTS, PhotoWorker, write_captions
from augmentation.captions.new_captions import (
    AbstractCaptionMethod,
    AbstractCorpusMethod,
    Elsewhere,
)
from augmentation.regions.reranking import Ranker, Threshold, cosine_ranker
from augmentation.regions.set_writer import write_set
from augmentation.set_folder import claim_folder, data_identity, file_identity
from augmentation.settings import AugmentationSettings
from augmentation.training.weights_card import write_card
from captioning.config.build import build_part
from captioning.config.check.check import check_config
from captioning.data.region_labels import relabel_roster
from captioning.data.roster import Roster
from captioning.spread.base import AbstractSpread
from captioning.spread.local import Local, chosen_spread
from captioning.text.lemmas import load_lemmas
from captioning.text.object_words import LEMMAS
from captioning.training.rosters import read_corpus, read_with_steps
from captioning.training.settings import Corpus, DataSettings

# Keys that the set depends on; other keys belong to other commands, or change no byte of the set.
PHOTO_KEYS = ("split", "first_images", "steps")
SET_KEYS = ("seed", *PHOTO_KEYS, "max_pairs", "method", "format")
CAPTION_SET_KEYS = ("seed", *PHOTO_KEYS, "method")
CARD_KEYS = (*SET_KEYS, "max_augmented", "num_processes", "sheet_number", "out")
TEXT_SET_KEYS = ("seed", "first_images", "max_pairs", "method")
# Keys that workers in other processes build their parts of. Each reads the data by itself, as
# sending them would take longer.
_PHOTO_WORKER_KEYS = ("seed", "paths", "data", "split", "first_images", "steps", "method")
_CORPUS_WORKER_KEYS = ("seed", "paths", "corpus", "first_images", "method")
# Keys for where and how fast a set is made: it may be continued elsewhere.
EXECUTION_KEYS = {
    *("cache_folder", "address", "num_parallel", "timeout", "retries", "wait", "device"),
    *("num_processes", "num_cached_photos"),
}


def augment(config: DictConfig) -> dict[str, Any]:
    """Make a set as the config says, with a card.

    Returns:
        The card: what was made, of what data, what was left out and why.

    Raises:
        ValueError: wrong settings or data, or nothing can be made.
        OSError: files that cannot be read or written.
    """
    check_config(config, AugmentationSettings)
    folder = Path(config.out)
    method = build_part(config.method)
    if isinstance(method, AbstractCorpusMethod):
        _refuse_photo_settings(config, method)
        return _augment_texts(config, method)
    if isinstance(method, AbstractCaptionMethod):
        _refuse_max_augmented(config)
        _refuse_max_pairs(config)
    roster = read_photos(config)
    if isinstance(method, AbstractCaptionMethod):
        return _augment_captions(config, method, roster)
    _refuse_spread(config)
    threshold = method.threshold(roster)
    settings = _pair_settings(config, roster)
    files = _files_of(settings)
    counts = write_set(
        islice(method.candidates(roster), config.max_pairs),
        folder=folder,
        picture_format=build_part(config.format),
        settings=settings | files,
        build_ranker=threshold and _ranker_of(config.method, threshold),
        report=method.report,
        num_processes=config.num_processes,
        sheet_number=config.sheet_number,
        seed=config.seed,
        max_augmented=config.max_augmented,
    )
    method.finish(folder, roster)
    return write_card(
        folder,
        description="pairs of photo and caption by region augmentation",
        rosters={config.split: roster},
        config=OmegaConf.create(plain_values(config, CARD_KEYS)),
        counts=counts,
        method=method.report(),
        **files,
    )


def _pair_settings(config: DictConfig, roster: Roster) -> dict[str, Any]:
    """What a set of pairs depends on, without files."""
    settings = without_execution_keys(plain_values(config, SET_KEYS))
    if config.max_augmented is not None:  # sets of before it was a setting go on without it
        settings["max_augmented"] = config.max_augmented
    return settings | {"data": data_identity(roster)}


def _augment_texts(config: DictConfig, method: AbstractCorpusMethod) -> dict[str, Any]:
    """Make a corpus of ``config.corpus``, with a card."""
    _refuse_max_augmented(config)
    folder = Path(config.out)
    groups = ["corpus", *(["prior"] if OmegaConf.select(config, "prior.train") else [])]
    first = {"number": config.first_images}
    rosters = {g: read_corpus(Corpus.of(config[g]), group=g, **first) for g in groups}
    settings = without_execution_keys(plain_values(config, TEXT_SET_KEYS))
    if method.size_setting:  # a finished set may be extended
        *parts, size = method.size_setting.split(".")
        reduce(getitem, parts, settings["method"])[size] = None
    fingerprints = {group: [roster.name, roster.fingerprint] for group, roster in rosters.items()}
    files = _files_of(settings)
    claim_folder(folder, settings | fingerprints | files)
    spread = _spread(config)
    elsewhere = spread and Elsewhere(
        spread=spread,
        build=corpus_worker(config),
        settings=settings | fingerprints | files,
        folder=folder / PARTS,
        plugins=list(config.get("plugins") or []),
        uses_gpu=method.uses_gpu,
    )
    counts = method.synthesise(
        rosters["corpus"],
        folder,
        prior=rosters.get("prior"),
        max_captions=config.max_pairs,
        elsewhere=elsewhere,
    )
    shutil.rmtree(folder / PARTS, ignore_errors=True)  # answers that were not needed
    return write_card(
        folder,
        description=method.description,
        rosters=rosters,
        config=OmegaConf.create(plain_values(config, (*TEXT_SET_KEYS, "out"))),
        share={group: config[group].share for group in groups},
        counts=counts,
        method=method.report(),
        **files,
    )


def _augment_captions(
    config: DictConfig, method: AbstractCaptionMethod, roster: Roster
) -> dict[str, Any]:
    """Make new captions of unchanged photos, with a card."""
    recorded = plain_values(config, CAPTION_SET_KEYS)
    settings = without_execution_keys(recorded)
    files = _files_of(settings)
    spread = _spread(config)
    counts = write_captions(
        method,
        folder=Path(config.out),
        roster=roster,
        settings=settings | {"data": data_identity(roster)} | files,
        spread=spread,
        build=spread and photo_worker(config),
        plugins=list(config.get("plugins") or []),
    )
    return write_card(
        Path(config.out),
        description=method.description,
        rosters={config.split: roster},
        config=OmegaConf.create(recorded),
        counts=counts,
        **files,
    )


def _spread(config: DictConfig) -> AbstractSpread | None:
    """Where captions are made; None: in this process, by what it has built already."""
    spread = chosen_spread(config)
    return None if isinstance(spread, Local) else spread


def _refuse_spread(config: DictConfig) -> None:
    if _spread(config) is not None:
        raise ValueError(
            "spread=ray is for methods that make captions (ssa, paraphrase, toca): patches compete "
            "for photos of the whole set, so pairs are made by one machine; num_processes= is the "
            "number of its processes"
        )


def _refuse_max_augmented(config: DictConfig) -> None:
    if config.max_augmented is not None:
        raise ValueError(
            f"max_augmented={config.max_augmented} is for methods that make pictures (cutswap, "
            "novel_objects): this one makes captions; leave it out"
        )


def _refuse_max_pairs(config: DictConfig) -> None:
    if config.max_pairs is not None and not _is_smoke():  # which sets it for all methods
        raise ValueError(
            f"max_pairs={config.max_pairs} limits pictures and ToCa's captions: this method makes "
            "captions of each photo; leave it out, first_images= limits the photos"
        )


def _refuse_photo_settings(config: DictConfig, method: AbstractCorpusMethod) -> None:
    names = [*config.steps, *([] if config.split == "train" else [f"split={config.split}"])]
    if names:
        raise ValueError(
            f"method={method.name} reads the captions of corpus= alone, so steps and split of "
            f"photos do nothing: leave out {', '.join(names)}; corpus.share= takes a part of the "
            "corpus"
        )


def _files_of(settings: dict[str, Any]) -> dict[str, Any]:
    """``files``: digests of the files that a set's method names, if it names any."""
    identity = file_identity(settings["method"])
    return {"files": identity} if identity else {}


def without_execution_keys(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings of a set without those of where and how fast it is made, at any depth."""
    parts = settings.keys() & {"method", "format"}
    return settings | {key: _mask_execution_keys(settings[key]) for key in parts}


def _mask_execution_keys(value: Any) -> Any:
    if isinstance(value, list):
        return [_mask_execution_keys(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: None if key in EXECUTION_KEYS else _mask_execution_keys(item)
        for key, item in value.items()
    }


def _ranker_of(method: DictConfig, threshold: Threshold) -> Callable[[], Ranker]:
    """A builder of rankers, called in each process: networks are not sent between processes."""
    build_encoder = partial(build_part, method.encoder)
    return partial(cosine_ranker, build_encoder, threshold=threshold, keep=method.keep)


def _is_smoke() -> bool:
    """Whether ``debug=smoke`` was given to a command."""
    return HydraConfig.initialized() and HydraConfig.get().runtime.choices.get("debug") == "smoke"


def smoke_settings(config: DictConfig) -> DictConfig:
    """The config with few photos and pairs for ``debug=smoke``; fewer photos may be asked for."""
    if _is_smoke():
        config = config.copy()
        config.first_images = config.first_images or config.smoke.first_images
        config.max_pairs = config.smoke.max_pairs
    return config


def summary(counts: dict[str, Any]) -> str:
    """The size of a set, in a line."""
    text = f"{counts['captions']:,} captions"
    text = f"{counts['pictures']:,} pictures with {text}" if "pictures" in counts else text
    text = f"{text} of {counts['photos']:,} photos" if "photos" in counts else text
    if "refused" not in counts:
        return text
    refused = ", ".join(f"{count} {reason}" for reason, count in counts["refused"].items())
    return f"{text}; refused: {refused or 'none'}"


def photo_worker(config: DictConfig) -> Callable[[], PhotoWorker]:
    """A maker of workers that caption the photos of a config's data set."""
    return partial(_photo_worker, plain_values(config, _PHOTO_WORKER_KEYS))


def _photo_worker(values: dict[str, Any]) -> PhotoWorker:
    config = OmegaConf.create(values)
    return PhotoWorker(method=build_part(config.method), roster=read_photos(config))


def corpus_worker(config: DictConfig) -> Callable[[], Any]:
    """A maker of `AbstractCorpusMethod.worker`, with the captions of a config's corpus."""
    return partial(_corpus_worker, plain_values(config, _CORPUS_WORKER_KEYS))


def _corpus_worker(values: dict[str, Any]) -> Any:
    config = OmegaConf.create(values)
    roster = read_corpus(Corpus.of(config.corpus), number=config.first_images)
    captions = [sample.caption for sample in roster.samples]
    return build_part(config.method).worker(captions)


def read_photos(config: DictConfig) -> Roster:
    """The photos that are augmented and that patches are cut from."""
    roster, _ = read_with_steps(DataSettings.of(config), config.split)
    return relabel_roster(roster, load_lemmas(LEMMAS))


def plain_values(config: DictConfig, keys: tuple[str, ...]) -> dict[str, Any]:
    """Some keys of a config, resolved alone: other keys may refer to missing ones."""
    values = {key: config[key] for key in keys}
    return {
        key: OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
        for key, value in values.items()
    }
