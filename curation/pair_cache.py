"""Scores of pairs computed by many processes, into the cache that scores and filters read.

``captioning curate score data=NAME matching@pairs=NAME [spread=ray]`` fills it before a training;
``captioning curate detect`` fills it for its run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from rich.progress import Progress

from captioning.config.build import build_part
from captioning.config.ranges import Name, PositiveInt, Seed
from captioning.config.tasks import plain
from captioning.spread.base import AbstractSpread, Job
from captioning.spread.local import chosen_spread
from captioning.training.rosters import read_with_steps
from captioning.training.settings import NO_STEPS, Data, DataSettings, Part, Paths
from captioning.types import Sample
from captioning.vision.pair_scores import Pair, PairScores
from curation.score.caption_fit import waits_for_caption

PHOTOS_AT_ONCE = 512  # between two files
FOLDER = "parts"
PairsOfPhoto = tuple[Path, list[str]]


class PairWorker:
    """Scores the captions of photos in any process.

    Args:
        values: the config of `PairScores`, plain.
    """

    def __init__(self, values: dict[str, Any]) -> None:
        self._pairs = build_part(OmegaConf.create(values | {"cache_folder": None}))
        self.identity: str = self._pairs.scorer.identity

    def __call__(self, items: Sequence[PairsOfPhoto]) -> list[list[float]]:
        """The scores of each photo's captions."""
        self._pairs.forget()
        pairs = [(path, caption) for path, captions in items for caption in captions]
        scores = iter(self._pairs.scores(pairs).tolist())
        return [[next(scores) for _ in captions] for _, captions in items]


def fill_cache(
    source: Part, pairs: Sequence[Pair], *, spread: AbstractSpread, plugins: Sequence[str]
) -> PairScores:
    """Score the pairs that the cache lacks.

    Args:
        source: `PairScores`.
        pairs: photos with captions; repeats are allowed.
        spread: where they are scored.
        plugins: see `Job`.

    Raises:
        ValueError: scores that are kept nowhere, a photo that cannot be opened, a blank caption.
        OSError: the cache cannot be written.
    """
    values = plain(source)
    if not values.get("cache_folder"):
        raise ValueError("scores are computed ahead for the cache: give pairs.cache_folder=FOLDER")
    scores: PairScores = build_part(source)
    scores.fill(pairs, partial(_elsewhere, values, scores.scorer.identity, spread, plugins))
    return scores


def _elsewhere(
    values: dict[str, Any],
    identity: str,
    spread: AbstractSpread,
    plugins: Sequence[str],
    items: Sequence[PairsOfPhoto],
) -> Iterator[list[list[float]]]:
    """The scores of photos' captions, some photos at a time."""
    job = Job(
        name="scores",
        build=partial(PairWorker, values),
        items=items,
        unit=values.get("photos_at_once", 32),
        save_every=PHOTOS_AT_ONCE,
        settings=values | {"identity": identity},
        folder=Path(values["cache_folder"]) / FOLDER,
        check=partial(_check, identity),
        plugins=plugins,
    )
    with Progress(transient=True) as bar:
        task = bar.add_task("photos scored", total=len(items))
        for records in spread.results(job):
            yield records
            bar.advance(task, len(records))


def _check(expected: str, identity: str) -> None:
    if identity != expected:
        raise ValueError(
            f"scores: a worker has the scorer {identity}, this machine {expected}; the same "
            "precision must be set (precision=float32), and all must have the same weights"
        )


def pairs_of(samples: Sequence[Sample]) -> list[Pair]:
    """The pairs of samples that have captions."""
    return [(s.image_path, s.caption) for s in samples if not waits_for_caption(s)]


def pair_parts(settings: Any) -> Iterator[Part]:
    """The parts of `PairScores` that settings hold, at any depth."""
    if isinstance(settings, DictConfig):
        target = str(settings.get("_target_", ""))
        if target == f"{PairScores.__module__}.{PairScores.__qualname__}":
            yield settings
        for key in settings:
            yield from pair_parts(settings.get(key))


def score_data(
    *,
    data: Data,
    paths: Paths,
    pairs: Part,
    split: Name = "train",
    first_images: PositiveInt | None = None,
    steps: Mapping[str, Part] = NO_STEPS,
    seed: Seed = 0,
    spread: Part | None = None,
    plugins: Sequence[Name] = (),
) -> tuple[str, Sequence[float]]:
    """Score all captions of a data set.

    Args:
        data: the data set.
        paths: folders.
        pairs: of `PairScores`.
        split: of the data set.
        first_images: photos read; None: all.
        steps: of the data.
        seed: of what steps draw.
        spread: where captions are scored; None: in this process.
        plugins: packages that other processes import.

    Returns:
        What the scores measure, and the scores in the order of the captions.

    Raises:
        ValueError, OSError: data that cannot be read, and what `fill_cache` raises.
    """
    read = {"first_images": first_images, "steps": steps, "seed": seed}
    roster, _ = read_with_steps(DataSettings(data=data, paths=paths, **read), split)
    asked, where = pairs_of(roster.samples), chosen_spread(spread)
    scores = fill_cache(pairs, asked, spread=where, plugins=list(plugins))
    return scores.name, scores.scores(asked).tolist()
