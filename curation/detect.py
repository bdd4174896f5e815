"""Measure how well scores find a run's planted faults: ``captioning curate detect run=FOLDER``.

Nothing is trained again: the run's losses and signals are read from its folder, so a new score can
be tried on old runs. Writes ``curation/detection_by_score.json``, an entry an epoch.
``configs/detect.yaml`` names the scores.

`fill_cache` has many processes compute scores of pairs into the cache that scores and filters read.
``captioning curate score data=NAME matching@pairs=NAME [spread=ray]`` fills it before a training;
``captioning curate detect`` fills it for its run.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from annotated_types import MinLen
from omegaconf import DictConfig, OmegaConf
from rich.progress import Progress

from captioning.config.build import build_part
from captioning.config.ranges import Name, PositiveInt, Seed
from captioning.config.tasks import plain
from captioning.metrics.detection import area_under_roc, average_precision, detect_kinds
from captioning.results.run_folder import RunFolder
from captioning.runtime.files import write_json
from captioning.spread.base import AbstractSpread, Job
from captioning.spread.local import Local, chosen_spread
from captioning.training.rosters import read_with_steps
from captioning.training.settings import NO_STEPS, Data, DataSettings, Part, Paths
from captioning.types import Sample
from captioning.vision.pair_scores import Pair, PairScores
from curation.base import AbstractSentenceScore, Context, Score, as_numpy, by_row
from curation.finished_run import read_run
from curation.loop.ledger import read_history
from curation.loop.planted_faults import faulty_kinds, wrong_sentences
from curation.manifest import is_loop_folder, read_manifest
from curation.score.caption_fit import waits_for_caption

FILE_NAME = "detection_by_score.json"
_NO_SIGNALS = ("losses.npz",)

log = logging.getLogger(__name__)
PHOTOS_AT_ONCE = 512  # progress is saved after this number of photos
FOLDER = "parts"
PairsOfPhoto = tuple[Path, list[str]]


def contexts(folder: Path) -> Iterator[Context]:
    """Return the context that a policy had at the end of each epoch of a run.

    Raises:
        FileNotFoundError: the folder is not a run folder, or holds no losses.
        ValueError: the files of the folder do not match each other.
    """
    record = read_run(folder)
    if not record.epochs:
        raise FileNotFoundError(f"{folder} holds no curation/losses.npz; train with curation=track")
    history = torch.from_numpy(record.history)
    signals = {
        path.stem: torch.from_numpy(read_history(path)[2])
        for path in sorted((folder / "curation").glob("[!.]*.npz"))  # hidden files are unfinished
        if path.name not in _NO_SIGNALS
    }
    for number, epoch in enumerate(record.epochs, start=1):
        earlier = [edit for edit in record.view.journal if edit.epoch < epoch]
        yield Context(
            view=replace(record.view, journal=(), image_root=folder).apply(earlier),
            losses=history[number - 1],
            history=history[:number],
            epoch=epoch,
            seed=record.seed,
            signals={name: values[:number] for name, values in signals.items()},
        )


def detect_by_score(scores: Mapping[str, Score], context: Context) -> dict[str, dict[str, Any]]:
    """Measure how well each score finds the planted faults that are still in the dataset.

    A score whose signal was not measured is left out, with a warning.

    Raises:
        ValueError: the dataset has no planted faults.
    """
    roster = context.view.roster
    if not roster.planted:
        raise ValueError(
            f"{roster.name!r} has no planted faults: choose a run with steps=[plant_...]"
        )
    kinds = faulty_kinds(context.view, roster.planted)
    detections: dict[str, dict[str, Any]] = {}
    for name, score in scores.items():
        try:
            values = as_numpy(score.scores(context))
        except ValueError as error:
            log.warning(f"skipping the score {name}: {error}")
            continue
        live = np.full(len(values), np.nan)
        live[context.live_rows] = values[context.live_rows]
        if not np.isnan(live).all():
            detections[name] = detect_kinds(live, kinds).to_dict()
            if isinstance(score, AbstractSentenceScore):
                detections[name]["sentences"] = detect_sentences(score, context, kinds)
    return detections


def detect_sentences(
    score: AbstractSentenceScore, context: Context, kinds: Mapping[int, str]
) -> dict[str, Any]:
    """Measure how well a score finds planted wrong sentences among all sentences that it judges.

    Args:
        score: score of sentences.
        context: what is known.
        kinds: kind of fault by row, see `faulty_kinds`.

    Returns:
        Plain values: numbers of judged and of wrong sentences, ``average_precision``, ``auc``, the
        share of wrong ones that are the worst of their caption (``worst_of_caption``), and by kind
        the average precision among sound sentences and this kind; None if undefined.
    """
    wrong, doubts = wrong_sentences(context.view), score.doubts(context)
    values = np.array([doubt.suspicion for doubt in doubts])
    is_wrong = np.array([wrong.get(doubt.row) == doubt.start for doubt in doubts], dtype=bool)
    if not is_wrong.any():
        return {"num_sentences": len(doubts), "num_wrong": 0}
    kind_of = np.array([kinds.get(doubt.row, "") for doubt in doubts])
    rows = {row: max(own, key=lambda d: d.suspicion).start for row, own in by_row(doubts).items()}
    hits = [
        rows[doubt.row] == doubt.start for doubt, hit in zip(doubts, is_wrong, strict=True) if hit
    ]
    by_kind = {}
    for kind in sorted(set(kind_of[is_wrong].tolist())):
        kept = ~is_wrong | (kind_of == kind)
        by_kind[kind] = average_precision(values[kept], is_wrong[kept])
    return {
        "num_sentences": len(doubts),
        "num_wrong": int(is_wrong.sum()),
        "average_precision": average_precision(values, is_wrong),
        "auc": area_under_roc(values, is_wrong),
        "worst_of_caption": float(np.mean(hits)),
        "average_precision_by_kind": by_kind,
    }


def detect_run(
    *,
    run: Name,
    scores: Annotated[Mapping[str, Part], MinLen(1)],
    spread: Part | None = None,
    plugins: Sequence[Name] = (),
) -> list[dict[str, Any]]:
    """Score all epochs of a run, measure the detection of planted faults, and write the file.

    Args:
        run: its folder.
        scores: to be tried, by any names. Where they belong to a config, its key ``seed`` gets the
            run's seed.
        spread: where scores of pairs are computed; None: in this process.
        plugins: packages that other processes import.

    Returns:
        By epoch, how well each score finds the faults.

    Raises:
        FileNotFoundError, ValueError: what `contexts` and `detect_by_score` raise.
    """
    folder = Path(run)
    # before the slow construction of scores
    seed = read_manifest(folder).seed if is_loop_folder(folder) else RunFolder(folder).config().seed
    if isinstance(scores, DictConfig):
        scores = OmegaConf.merge(scores._get_root(), {"seed": seed}).scores
    pairs_elsewhere = chosen_spread(spread)
    if not isinstance(pairs_elsewhere, Local):
        samples = list({s: None for context in contexts(folder) for s in context.live.values()})
        for chosen in pair_parts(scores):
            fill_cache(chosen, pairs_of(samples), spread=pairs_elsewhere, plugins=list(plugins))
    built = {name: build_part(chosen) for name, chosen in scores.items()}
    detections = [
        {"epoch": context.epoch, "scores": detect_by_score(built, context)}
        for context in contexts(folder)
    ]
    write_json(folder / "curation" / FILE_NAME, detections)
    return detections


class PairWorker:
    """Scores captions of photos, in any process.

    Args:
        values: the config of `PairScores`, plain.
    """

    def __init__(self, values: dict[str, Any]) -> None:
        self._pairs = build_part(OmegaConf.create(values | {"cache_folder": None}))
        self.identity: str = self._pairs.scorer.identity

    def __call__(self, items: Sequence[PairsOfPhoto]) -> list[list[float]]:
        """Return the scores of each photo's captions."""
        self._pairs.forget()
        pairs = [(path, caption) for path, captions in items for caption in captions]
        scores = iter(self._pairs.scores(pairs).tolist())
        return [[next(scores) for _ in captions] for _, captions in items]


def fill_cache(
    source: Part, pairs: Sequence[Pair], *, spread: AbstractSpread, plugins: Sequence[str]
) -> PairScores:
    """Score the pairs of photo and caption that the cache lacks.

    Args:
        source: `PairScores`.
        pairs: photos with captions; repeats are allowed.
        spread: where the pairs are scored.
        plugins: see `Job`.

    Raises:
        ValueError: no cache folder is set, a photo is unreadable, or a caption is blank.
        OSError: the cache cannot be written.
    """
    values = plain(source)
    if not values.get("cache_folder"):
        raise ValueError("computing scores ahead needs a cache: set pairs.cache_folder=FOLDER")
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
    """Yield scores of photos' captions, computed by other processes in blocks of photos."""
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
            f"a worker has the scorer {identity}, but this process has {expected}; use the same "
            "weights and precision everywhere (precision=float32)"
        )


def pairs_of(samples: Sequence[Sample]) -> list[Pair]:
    """Pairs of photo and caption of the samples that have a caption."""
    return [(s.image_path, s.caption) for s in samples if not waits_for_caption(s)]


def pair_parts(settings: Any) -> Iterator[Part]:
    """Configs of `PairScores` within other settings, at any depth."""
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
    """Score all captions of a dataset.

    Args:
        data: the dataset.
        paths: folders.
        pairs: pairs of `PairScores`.
        split: of the dataset.
        first_images: photos read; None: all.
        steps: the data's steps.
        seed: seed of the steps' draws.
        spread: where captions are scored; None: in this process.
        plugins: packages that other processes import.

    Returns:
        What the scores measure, and the scores in the order of the captions.

    Raises:
        ValueError, OSError: the data cannot be read, or `fill_cache` raises.
    """
    read = {"first_images": first_images, "steps": steps, "seed": seed}
    roster, _ = read_with_steps(DataSettings(data=data, paths=paths, **read), split)
    asked, where = pairs_of(roster.samples), chosen_spread(spread)
    scores = fill_cache(pairs, asked, spread=where, plugins=list(plugins))
    return scores.name, scores.scores(asked).tolist()
