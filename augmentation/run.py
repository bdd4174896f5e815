"""Make new pairs or new captions: ``captioning augment method=NAME data=NAME out=FOLDER``.

Settings are in ``configs/augmentation.yaml``; region_augmentation.md, ssa.md and toca.md in
docs/cards describe the files.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from itertools import islice
from operator import getitem
from pathlib import Path
from typing import Any, Self

from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf

from augmentation.captions.caption_set import PARTS, PhotoWorker, write_captions
from augmentation.captions.new_captions import (
    AbstractCaptionMethod,
    AbstractCorpusMethod,
    Elsewhere,
)
from augmentation.regions.rendering import PictureFormat
from augmentation.regions.reranking import Ranker, Threshold, cosine_ranker
from augmentation.regions.set_writer import write_set
from augmentation.set_folder import claim_folder, data_identity, file_identity
from augmentation.training.weights_card import write_card
from captioning.config.build import build_part
from captioning.config.ranges import AbstractSettings, Name, NonNegativeInt, PositiveInt, Seed
from captioning.config.tasks import plain
from captioning.data.region_labels import relabel_roster
from captioning.data.roster import Roster
from captioning.spread.base import AbstractSpread
from captioning.spread.local import Local, chosen_spread
from captioning.text.lemmas import load_lemmas
from captioning.text.object_words import LEMMAS
from captioning.training.rosters import read_corpus, read_with_steps
from captioning.training.settings import NO_STEPS, Corpus, Data, DataSettings, Part, Paths

# Keys for where and how fast a set is made: it may be continued elsewhere.
EXECUTION_KEYS = {
    *("cache_folder", "address", "num_parallel", "timeout", "retries", "wait", "device"),
    *("num_processes", "num_cached_photos"),
}


@dataclass(frozen=True, kw_only=True)
class Smoke(AbstractSettings):
    """Reduced sizes for a quick trial run (``debug=smoke``)."""

    first_images: PositiveInt
    max_pairs: PositiveInt


def augment(
    *,
    data: Data,
    paths: Paths,
    method: Part,
    format: Part,
    out: Name,
    corpus: Corpus | None = None,
    prior: Corpus | None = None,
    split: Name = "train",
    first_images: PositiveInt | None = None,
    steps: Mapping[str, Part] = NO_STEPS,
    held_out: Mapping[str, Part] | None = None,
    novel_classes: Mapping[str, Any] | None = None,
    seed: Seed = 0,
    max_pairs: PositiveInt | None = None,
    max_augmented: PositiveInt | None = None,
    num_processes: NonNegativeInt = 2,
    sheet_number: NonNegativeInt = 20,
    spread: Part | None = None,
    plugins: Sequence[Name] = (),
    smoke: Smoke | None = None,
) -> dict[str, Any]:
    """Make an augmented dataset with a card.

    Args:
        data: the dataset whose photos are augmented.
        paths: folders.
        method: makes pairs, or captions.
        format: format of pictures.
        out: folder of the set.
        corpus: captions that methods of texts read.
        prior: another corpus whose lexical pairs they use, too.
        split: of the dataset.
        first_images: photos read; None: all.
        steps: the data's steps.
        held_out: steps that ``method`` may refer to.
        novel_classes: settings that ``method`` may refer to.
        seed: seed of all draws.
        max_pairs: the largest number of pictures, or of a corpus' captions.
        max_augmented: maximum number of captions with images; the dataset is then complete.
        num_processes: number of processes that make pictures; 0: this process.
        sheet_number: pairs on the contact sheet.
        spread: runs the generation of captions; None: this process does.
        plugins: packages that other processes import.
        smoke: the sizes under ``debug=smoke``; fewer photos may be asked for.

    Returns:
        The card: the results, the source data, and omissions with reasons.

    Raises:
        ValueError: settings or data are wrong, or nothing can be augmented.
        OSError: files that cannot be read or written.
    """
    first_images, max_pairs = limits(first_images, max_pairs, smoke)
    maker, where = build_part(method), chosen_spread(spread)
    recorded = {"seed": seed, "split": split, "first_images": first_images, "steps": steps}
    recorded |= {"max_pairs": max_pairs, "method": method, "format": format}
    made = _Making(
        folder=Path(out),
        recorded=plain(recorded),
        spread=None if isinstance(where, Local) else where,
        plugins=list(plugins),
    )
    if isinstance(maker, AbstractCorpusMethod):
        _refuse_photo_settings(maker, steps, split)
        _refuse_max_augmented(max_augmented)
        if corpus is None:
            raise ValueError(
                f"method={maker.name} needs the captions of corpus=, but corpus is missing or "
                "refers to keys that the config lacks: choose another corpus"
            )
        groups = {"corpus": corpus} | ({"prior": prior} if prior and prior.train else {})
        return _augment_texts(maker, groups, made.without("split", "steps", "format"))
    if isinstance(maker, AbstractCaptionMethod):
        _refuse_max_augmented(max_augmented)
        _refuse_max_pairs(max_pairs)
    read = {"seed": seed, "first_images": first_images, "steps": steps}
    source = DataSettings(data=data, paths=paths, **read)
    roster = read_photos(source, split)
    if isinstance(maker, AbstractCaptionMethod):
        build = photo_worker(source, split, method)
        return _augment_captions(maker, roster, made.without("max_pairs", "format"), build)
    sizes = {"max_augmented": max_augmented, "num_processes": num_processes}
    sizes["sheet_number"] = sheet_number
    ranker = partial(_ranker_of, method)
    return _augment_photos(maker, roster, made, build_part(format), ranker, sizes)


@dataclass(frozen=True, kw_only=True)
class _Making:
    """Folder, recorded settings and processes for making an augmented dataset.

    Attributes:
        folder: the set's folder.
        recorded: plain settings that the set depends on.
        spread: runs the generation of captions; None: this process does.
        plugins: packages that other processes import.
    """

    folder: Path
    recorded: dict[str, Any]
    spread: AbstractSpread | None = None
    plugins: list[str] = field(default_factory=list)

    def without(self, *keys: str) -> Self:
        """Copy without some settings, for a dataset that does not depend on them."""
        return replace(self, recorded={k: v for k, v in self.recorded.items() if k not in keys})


def _augment_photos(
    method: Any,
    roster: Roster,
    made: _Making,
    picture_format: PictureFormat,
    build_ranker: Callable[[Threshold], Callable[[], Ranker]],
    sizes: Mapping[str, Any],
) -> dict[str, Any]:
    """Make pairs of photo and caption, with a card.

    Args:
        method: gives candidates.
        roster: photos.
        made: settings and folder.
        picture_format: format of the pictures.
        build_ranker: a builder of rankers for a threshold.
        sizes: further arguments of `write_set`.
    """
    if made.spread is not None:
        raise ValueError(
            "spread=ray works only for methods that make captions (ssa, paraphrase, toca); "
            "methods that paste patches run on one machine: set num_processes= instead"
        )
    threshold, recorded = method.threshold(roster), made.recorded
    settings = without_execution_keys(recorded) | {"data": data_identity(roster)}
    if sizes["max_augmented"] is not None:  # older sets resume without it
        settings["max_augmented"] = sizes["max_augmented"]
    files = _files_of(settings)
    counts = write_set(
        islice(method.candidates(roster), recorded["max_pairs"]),
        folder=made.folder,
        picture_format=picture_format,
        settings=settings | files,
        build_ranker=threshold and build_ranker(threshold),
        report=method.report,
        seed=recorded["seed"],
        **sizes,
    )
    method.finish(made.folder, roster)
    return write_card(
        made.folder,
        description="pairs of photo and caption by region augmentation",
        rosters={recorded["split"]: roster},
        settings={**recorded, **sizes, "out": str(made.folder)},
        counts=counts,
        method=method.report(),
        **files,
    )


def _augment_captions(
    method: AbstractCaptionMethod,
    roster: Roster,
    made: _Making,
    build: Callable[[], PhotoWorker] | None = None,
) -> dict[str, Any]:
    """Make new captions for unchanged photos, with a card.

    Args:
        method: generates the captions.
        roster: photos.
        made: settings and folder.
        build: makes a worker in another process.
    """
    settings = without_execution_keys(made.recorded)
    files = _files_of(settings)
    counts = write_captions(
        method,
        folder=made.folder,
        roster=roster,
        settings=settings | {"data": data_identity(roster)} | files,
        spread=made.spread,
        build=made.spread and build,
        plugins=made.plugins,
    )
    return write_card(
        made.folder,
        description=method.description,
        rosters={made.recorded["split"]: roster},
        settings=made.recorded,
        counts=counts,
        **files,
    )


def _augment_texts(
    method: AbstractCorpusMethod, groups: Mapping[str, Corpus], made: _Making
) -> dict[str, Any]:
    """Make a corpus of texts, with a card.

    Args:
        method: makes it.
        groups: ``corpus``, and ``prior`` if there is one.
        made: settings and folder.
    """
    folder, recorded, number = made.folder, made.recorded, made.recorded["first_images"]
    rosters = {name: read_corpus(g, number=number, group=name) for name, g in groups.items()}
    settings = without_execution_keys(recorded)
    if method.size_setting:  # a finished set may be extended
        *parts, size = method.size_setting.split(".")
        reduce(getitem, parts, settings["method"])[size] = None
    fingerprints = {group: [roster.name, roster.fingerprint] for group, roster in rosters.items()}
    files = _files_of(settings)
    identity = settings | fingerprints | files
    claim_folder(folder, identity)
    elsewhere = made.spread and Elsewhere(
        spread=made.spread,
        build=corpus_worker(groups["corpus"], number, recorded["method"]),
        settings=identity,
        folder=folder / PARTS,
        plugins=made.plugins,
        uses_gpu=method.uses_gpu,
    )
    counts = method.synthesise(
        rosters["corpus"],
        folder,
        prior=rosters.get("prior"),
        max_captions=recorded["max_pairs"],
        elsewhere=elsewhere,
    )
    shutil.rmtree(folder / PARTS, ignore_errors=True)  # answers that were not needed
    return write_card(
        folder,
        description=method.description,
        rosters=rosters,
        settings=recorded | {"out": str(folder)},
        share={name: group.share for name, group in groups.items()},
        counts=counts,
        method=method.report(),
        **files,
    )


# Each worker in another process reads the data by itself, as sending them would take longer.


def photo_worker(source: DataSettings, split: str, method: Part) -> Callable[[], PhotoWorker]:
    """Build the function that makes workers for captioning the photos of a split."""
    return partial(_photo_worker, plain(source), split, plain(method))


def _photo_worker(source: dict[str, Any], split: str, method: dict[str, Any]) -> PhotoWorker:
    read = DataSettings.of(OmegaConf.create(source))
    return PhotoWorker(method=build_part(OmegaConf.create(method)), roster=read_photos(read, split))


def corpus_worker(corpus: Corpus, number: int | None, method: dict[str, Any]) -> Callable[[], Any]:
    """Build the function that makes `AbstractCorpusMethod.worker`, with a corpus' captions.

    Args:
        corpus: its settings.
        number: number of its images that are read; None: all.
        method: plain settings.
    """
    return partial(_corpus_worker, plain(corpus), number, method)


def _corpus_worker(corpus: dict[str, Any], number: int | None, method: dict[str, Any]) -> Any:
    roster = read_corpus(Corpus.of(OmegaConf.create(corpus)), number=number)
    captions = [sample.caption for sample in roster.samples]
    return build_part(OmegaConf.create(method)).worker(captions)


def read_photos(source: DataSettings, split: str) -> Roster:
    """Read the photos to augment, which also supply the patches."""
    return relabel_roster(read_with_steps(source, split)[0], load_lemmas(LEMMAS))


def _refuse_max_augmented(max_augmented: int | None) -> None:
    if max_augmented is not None:
        raise ValueError(
            f"max_augmented={max_augmented} works only for methods that make images (cutswap, "
            "novel_objects), and this method makes captions: remove max_augmented"
        )


def _refuse_max_pairs(max_pairs: int | None) -> None:
    if max_pairs is not None and not _is_smoke():  # which sets it for all methods
        raise ValueError(
            f"max_pairs={max_pairs} does not limit methods that make captions of photos: remove "
            "max_pairs, and limit the photos by first_images="
        )


def _refuse_photo_settings(
    method: AbstractCorpusMethod, steps: Mapping[str, Part], split: str
) -> None:
    names = [*steps, *([] if split == "train" else [f"split={split}"])]
    if names:
        raise ValueError(
            f"method={method.name} reads only the captions of corpus=, and ignores steps and "
            f"split of photos: remove {', '.join(names)}; use part of the corpus by corpus.share="
        )


def _files_of(settings: dict[str, Any]) -> dict[str, Any]:
    """Hashes of the files that the method's settings name, as the setting ``files``."""
    identity = file_identity(settings["method"])
    return {"files": identity} if identity else {}


def without_execution_keys(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings of a dataset, at any depth, without keys that affect only execution."""
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


def _ranker_of(method: Part, threshold: Threshold) -> Callable[[], Ranker]:
    """Build the function that makes rankers in each process; networks are never pickled."""
    build_encoder = partial(build_part, method.encoder)
    return partial(cosine_ranker, build_encoder, threshold=threshold, keep=method.keep)


def _is_smoke() -> bool:
    """Return whether a command was given ``debug=smoke``."""
    return HydraConfig.initialized() and HydraConfig.get().runtime.choices.get("debug") == "smoke"


def limits(
    first_images: int | None, max_pairs: int | None, smoke: Smoke | None
) -> tuple[int | None, int | None]:
    """Limits on photos and pairs, reduced by ``debug=smoke`` or by the request."""
    if smoke is None or not _is_smoke():
        return first_images, max_pairs
    return first_images or smoke.first_images, smoke.max_pairs


def summary(counts: dict[str, Any]) -> str:
    """One line of text about the size of the dataset."""
    text = f"{counts['captions']:,} captions"
    text = f"{counts['pictures']:,} pictures with {text}" if "pictures" in counts else text
    text = f"{text} of {counts['photos']:,} photos" if "photos" in counts else text
    if "refused" not in counts:
        return text
    refused = ", ".join(f"{count} {reason}" for reason, count in counts["refused"].items())
    return f"{text}; refused: {refused or 'none'}"
