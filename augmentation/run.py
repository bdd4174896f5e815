"""New pairs, or new captions alone: ``captioning augment method=NAME data=NAME out=FOLDER``.

Settings are in ``configs/augmentation.yaml``; docs/region_augmentation.md, docs/ssa.md and
docs/toca.md say what is written.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from augmentation.captions.caption_set import write_captions
from augmentation.captions.new_captions import AbstractCaptionMethod
from augmentation.captions.toca.method import ToCa
from augmentation.images.training.card import write_card
from augmentation.regions.ranking import Ranker, Threshold, cosine_ranker
from augmentation.regions.writer import write_set
from augmentation.set_folder import claim_folder, data_identity, file_identity
from augmentation.settings import AugmentationSettings
from captioning.config_check.check import check_config
from captioning.data.region_labels import relabel_roster
from captioning.data.roster import Roster
from captioning.text.lemmas import load_lemmas
from captioning.text.object_words import LEMMAS
from captioning.training.parts import build_part
from captioning.training.rosters import has_corpus, read_corpus, read_with_steps

# Keys that the set depends on; other keys belong to other commands, or change no byte of the set.
PHOTO_KEYS = ("split", "first_images", "steps")
SET_KEYS = ("seed", *PHOTO_KEYS, "max_pairs", "method", "format")
CAPTION_SET_KEYS = ("seed", *PHOTO_KEYS, "method")
CARD_KEYS = (*SET_KEYS, "num_processes", "sheet_number", "out")
TEXT_SET_KEYS = ("seed", "first_images", "max_pairs", "method")
# Keys for where and how fast writing models run: a set may be continued elsewhere.
EXECUTION_KEYS = {"cache_folder", "address", "num_parallel", "timeout", "retries", "wait", "device"}


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
    if isinstance(method, ToCa):
        return _augment_texts(config, method)
    roster = relabel_roster(_read_photos(config), load_lemmas(LEMMAS))
    if isinstance(method, AbstractCaptionMethod):
        return _augment_captions(config, method, roster)
    threshold = method.threshold(roster)
    settings = _plain_values(config, SET_KEYS) | {"data": data_identity(roster)}
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
    )
    method.finish(folder, roster)
    return write_card(
        folder,
        description="pairs of photo and caption by region augmentation",
        rosters={config.split: roster},
        config=OmegaConf.create(_plain_values(config, CARD_KEYS)),
        counts=counts,
        method=method.report(),
        **files,
    )


def _read_photos(config: DictConfig) -> Roster:
    """The photos that are augmented and that patches are cut from."""
    return read_with_steps(config, config.split)[0]


def _augment_texts(config: DictConfig, method: ToCa) -> dict[str, Any]:
    """Make a corpus of ``config.corpus``, with a card."""
    folder = Path(config.out)
    groups = ["corpus", *(["prior"] if has_corpus(config, "prior") else [])]
    rosters = {group: read_corpus(config, group) for group in groups}
    settings = _without_execution_keys(_plain_values(config, TEXT_SET_KEYS))
    settings["method"]["pace"]["num_captions"] = None  # a finished set may be extended
    fingerprints = {group: [roster.name, roster.fingerprint] for group, roster in rosters.items()}
    files = _files_of(settings)
    claim_folder(folder, settings | fingerprints | files)
    counts = method.synthesise(
        rosters["corpus"], folder, prior=rosters.get("prior"), max_captions=config.max_pairs
    )
    return write_card(
        folder,
        description="captions synthesised by a language model, no photo stands behind them",
        rosters=rosters,
        config=OmegaConf.create(_plain_values(config, (*TEXT_SET_KEYS, "out"))),
        share={group: config[group].share for group in groups},
        counts=counts,
        method=method.report(),
        **files,
    )


def _augment_captions(
    config: DictConfig, method: AbstractCaptionMethod, roster: Roster
) -> dict[str, Any]:
    """Make new captions of unchanged photos, with a card."""
    recorded = _plain_values(config, CAPTION_SET_KEYS)
    settings = _without_execution_keys(recorded)
    files = _files_of(settings)
    counts = write_captions(
        method,
        folder=Path(config.out),
        roster=roster,
        settings=settings | {"data": data_identity(roster)} | files,
    )
    return write_card(
        Path(config.out),
        description=method.description,
        rosters={config.split: roster},
        config=OmegaConf.create(recorded),
        counts=counts,
        **files,
    )


def _files_of(settings: dict[str, Any]) -> dict[str, Any]:
    """``files``: digests of the files that a set's method names, if it names any."""
    identity = file_identity(settings["method"])
    return {"files": identity} if identity else {}


def _without_execution_keys(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings of a set without those of where and how fast its models run, at any depth."""
    return settings | {"method": _mask_execution_keys(settings["method"])}


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


def _plain_values(config: DictConfig, keys: tuple[str, ...]) -> dict[str, Any]:
    """Some keys of a config, resolved alone: other keys may refer to missing ones."""
    values = {key: config[key] for key in keys}
    return {
        key: OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
        for key, value in values.items()
    }


def smoke_settings(config: DictConfig) -> DictConfig:
    """The config with few photos and pairs for ``debug=smoke``; fewer photos may be asked for."""
    if HydraConfig.get().runtime.choices.get("debug") == "smoke":
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
