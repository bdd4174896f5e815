"""Apply CapFilt before training: ``captioning curate capfilt data=NAME out=FOLDER``.

Settings are in ``configs/capfilt.yaml``; docs/cards/capfilt.md describes the files.

Shards, which grow by appending, hold the captioner's and the filter's results for each photo.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from omegaconf import OmegaConf
from rich.progress import Progress
from torch import Tensor

from augmentation.captions.line_log import as_line, cut_to_lines, read_lines
from augmentation.set_folder import claim_folder
from captioning.config.build import build_part
from captioning.config.ranges import Name, PositiveInt, Seed
from captioning.config.tasks import plain
from captioning.data.roster import CurationView, Roster
from captioning.data.steps.hold_out import with_slots
from captioning.results.versions import versions
from captioning.runtime.file_lock import locked
from captioning.runtime.files import write_json, write_lines
from captioning.served.photo_answers import answers_counted
from captioning.served.photo_answers import summary as answer_summary
from captioning.spread.base import AbstractSpread, Job
from captioning.spread.local import Local, chosen_spread
from captioning.training.rosters import read_with_steps
from captioning.training.settings import NO_STEPS, Data, DataSettings, Part, Paths
from captioning.types import UNPAIRED, Sample
from captioning.vision.pair_scores import PairScores
from captioning.vision.photo_captions import PhotoCaptions
from curation.amend.model_caption import ORIGIN, CapFilt, CaptionSource
from curation.export.curated_set import pictures, write_coco
from curation.loop.curator import Curator, Outcome
from curation.loop.policy import Policy, Schedule
from curation.record import RunRecord
from curation.review.edit_report import FILE_NAME, write_report
from curation.score.caption_fit import FitScores
from curation.select.unmatched import Origin, Unmatched

Parts = Literal["both", "captioner", "filter"]
BEFORE_TRAINING = Schedule(from_epoch=-1, until_epoch=-1)
BINS = 20
NUM_PICTURES = 600  # photos on the report
Records = Mapping[str, Mapping[str, Any]]
"""Results of photos from the shards, by ``image_id``."""
CURATED, MADE = "captions.json", "captions.jsonl"
SERVED = "served"
log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Shard:
    """One shard of a roster's photos: every ``total``-th photo.

    Attributes:
        number: number of the shard, from 1.
        total: number of shards.

    Raises:
        ValueError: ``number`` is not from 1 to ``total``.
    """

    number: int
    total: int

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.total:
            raise ValueError(f"shard must be I/N with 1 <= I <= N: got {self}")

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Parse a shard from a text such as ``"3/16"``.

        Raises:
            ValueError: the text is not ``I/N`` with 1 <= I <= N.
        """
        number, _, total = str(text).partition("/")
        if not (number.isdecimal() and total.isdecimal()):
            raise ValueError(f"shard must be I/N, such as 3/16, merge, or null: got {text!r}")
        return cls(number=int(number), total=int(total))

    def __str__(self) -> str:
        return f"{self.number}/{self.total}"

    def file(self, folder: Path) -> Path:
        """Path of the shard's file in the folder of the dataset."""
        return folder / "shards" / f"{self.number:04d}-of-{self.total:04d}.jsonl"

    def photos(self, roster: Roster) -> list[list[Sample]]:
        """Samples of each photo in the shard."""
        rows = list(roster.rows_by_image.values())[self.number - 1 :: self.total]
        return [[roster.samples[row] for row in photo] for photo in rows]


class Judge:
    """Generates and scores captions of photos, in any process.

    Args:
        source: writes captions; None: none are written.
        pairs: scores captions; None: none are scored.
    """

    def __init__(self, *, source: PhotoCaptions | None, pairs: PairScores | None) -> None:
        self.source, self.pairs = source, pairs

    @property
    def identity(self) -> dict[str, Any]:
        """Captioner and filter, as written in the first line of a shard."""
        return {
            "captioner": self.source and self.source.name,
            "captioner identity": self.source and self.source.captioner.identity,
            "filter identity": self.pairs and self.pairs.scorer.identity,
            "name": self.pairs and self.pairs.name,
        }

    def __call__(self, items: Sequence[Sequence[Sample]]) -> list[dict[str, Any]]:
        """Return one line of results for each photo; a line depends only on its own photo block."""
        for part in (self.source, self.pairs):
            if part is not None:
                part.forget()
        with answers_counted() as counted:
            lines = _judged(items, self.source, self.pairs)
        if counted:
            lines[0][SERVED] = {name: dict(counts) for name, counts in counted.items()}
        return lines


def write_shard(
    shard: Shard,
    *,
    folder: Path,
    roster: Roster,
    build: Callable[[], Judge],
    spread: AbstractSpread,
    photos_at_once: int,
    settings: Mapping[str, Any],
    plugins: Sequence[str] = (),
) -> None:
    """Caption and score the photos of a shard; resume a killed run after its last complete block.

    The first line names captioner and filter (`Judge.identity`). Each further line is a photo:
    ``image_id``, scores of ``written`` captions, and ``made`` captions. A block's first photo
    has the answers of served models to the block, by model and problem, as ``served``.

    Args:
        shard: the shard of photos.
        folder: the set's folder.
        roster: the training set.
        build: makes a judge in each process.
        spread: runs the judges.
        photos_at_once: photos between two writes, at least 1.
        settings: plain values of captioner and filter.
        plugins: see `Job`.

    Raises:
        ValueError: the shard belongs to another captioner or filter, or a photo is unreadable.
        OSError: the shard cannot be written.
    """
    file, photos = shard.file(folder), shard.photos(roster)
    file.parent.mkdir(parents=True, exist_ok=True)
    lock = file.with_suffix(".lock")
    with locked(lock, subject=f"shard {shard}", notify=log.warning):
        save_every = spread.shard_size(unit=photos_at_once, save_every=photos_at_once)
        begun = max(0, cut_to_lines(file, first=1, step=save_every) - 1)
        job = Job(
            name="captions and scores",
            build=build,
            items=photos[begun:],
            unit=photos_at_once,
            save_every=save_every,
            settings=settings,
            folder=file.with_suffix(".parts"),
            check=lambda identity: _begin(file, {"shard": str(shard), **identity}),
            plugins=plugins,
        )
        with Progress(transient=True) as bar:
            task = bar.add_task(f"shard {shard}", total=len(photos), completed=begun)
            for lines in spread.results(job):
                with file.open("a", encoding="utf-8", newline="\n") as output:
                    output.write("".join(as_line(line) + "\n" for line in lines))
                bar.advance(task, len(lines))


def _begin(file: Path, head: dict[str, Any]) -> None:
    """Write the first line of a new file, or check that an existing file has the same line."""
    if not file.stat().st_size:
        file.write_text(as_line(head) + "\n", encoding="utf-8")
    elif next(read_lines(file)) != head:
        raise ValueError(
            f"{file} was started with another captioner, filter or precision; choose another "
            "out=, or delete the file"
        )


def _judged(
    photos: Sequence[Sequence[Sample]], source: PhotoCaptions | None, pairs: PairScores | None
) -> list[dict[str, Any]]:
    """Yield one line of results for each photo."""
    paths = [samples[0].image_path for samples in photos]
    made = [[] for _ in photos] if source is None else source.captions(paths)
    written: list[list[float]] = [[] for _ in photos]
    scored: list[list[float | None]] = [[None] * len(texts) for texts in made]
    if pairs is not None:
        texts = [
            (path, text)
            for path, samples, new in zip(paths, photos, made, strict=True)
            for text in (*(sample.caption for sample in samples), *new)
        ]
        scores = iter(pairs.scores(texts).tolist())
        for place, (samples, new) in enumerate(zip(photos, made, strict=True)):
            written[place] = [next(scores) for _ in samples]
            scored[place] = [next(scores) for _ in new]
    return [
        {
            "image_id": samples[0].image_id,
            "written": written[place],
            "made": [list(pair) for pair in zip(made[place], scored[place], strict=True)],
        }
        for place, samples in enumerate(photos)
    ]


def read_shards(folder: Path, roster: Roster) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Read the captioner and filter, and the lines of all photos by ``image_id``.

    Raises:
        FileNotFoundError: a shard is missing; names those that are.
        ValueError: a shard is unfinished, or made with another captioner or filter.
    """
    files = sorted((folder / "shards").glob("*-of-*.jsonl"))
    if not files:
        raise FileNotFoundError(
            f"{folder} holds no shards; make shards with shard=1/N ... shard=N/N"
        )
    total = int(files[0].stem.rpartition("-")[2])
    shards = [Shard(number=number, total=total) for number in range(1, total + 1)]
    if missing := [str(shard) for shard in shards if not shard.file(folder).is_file()]:
        raise FileNotFoundError(
            f"{folder} lacks the shards {', '.join(missing)}; make the missing shards"
        )
    if len(files) > total:
        raise ValueError(
            f"{folder}/shards holds shards for several totals N; keep the shards of one total and "
            "delete the others"
        )
    head: dict[str, Any] = {}
    records: dict[str, dict[str, Any]] = {}
    for shard in shards:
        lines = read_lines(shard.file(folder))
        this = next(lines) | {"shard": None}
        head = head or this
        if this != head:
            raise ValueError(
                f"{shard.file(folder)} was made with another captioner or filter; choose another "
                "folder"
            )
        _add(records, shard, lines, roster)
    return head, records


def _add(
    records: dict[str, dict[str, Any]], shard: Shard, lines: Iterator[Any], roster: Roster
) -> None:
    photos = shard.photos(roster)
    number = 0
    for samples, line in zip(photos, lines, strict=False):
        if line["image_id"] != samples[0].image_id:
            raise ValueError(
                f"shard {shard} holds {line['image_id']!r}, but the dataset has "
                f"{samples[0].image_id!r} there; use the annotations of the shard"
            )
        records[line["image_id"]] = line
        number += 1
    if number < len(photos):
        raise ValueError(
            f"shard {shard} holds {number} of {len(photos)} photos: run the shard again to resume"
        )


class RecordedCaptions:
    """Serves a captioner's captions from shards as a `CaptionSource`.

    Args:
        records: lines by ``image_id``.
        roster: the data that they are of.
        name: the captioner's name.
    """

    def __init__(self, records: Records, roster: Roster, *, name: str) -> None:
        self.name = name
        self._made = {
            _path(roster, image_id): [text for text, _ in line["made"]]
            for image_id, line in records.items()
        }

    def captions(
        self, photos: Sequence[Path], beginnings: Sequence[str] | None = None
    ) -> list[list[str]]:
        """Return recorded captions, see `CaptionSource`.

        Raises:
            ValueError: ``beginnings`` are given, but the shards hold whole captions.
        """
        if any(beginnings or ()):
            raise ValueError(
                f"{self.name} wrote whole captions into shards and cannot continue begun captions"
            )
        return [list(self._made[path]) for path in photos]

    def release(self) -> None:
        """Do nothing: recorded captions use no GPU."""


class RecordedScores:
    """Serves a filter's scores from shards as `FitScores`.

    Args:
        records: lines by ``image_id``.
        roster: the data that they are of.
        name: the measure's name.
    """

    is_probability = False  # suspicion is the negative score in any unit

    def __init__(self, records: Records, roster: Roster, *, name: str) -> None:
        self.name = name
        self._scores: dict[tuple[Path, str], float] = {}
        for image_id, line in records.items():
            path = _path(roster, image_id)
            captions = (roster.samples[row].caption for row in roster.rows_by_image[image_id])
            written = zip(captions, line["written"], strict=True)
            self._scores |= {(path, text): score for text, score in (*written, *line["made"])}

    def scores(self, pairs: Sequence[tuple[Path, str]]) -> Tensor:
        """Return recorded scores, see `FitScores`."""
        return torch.tensor([self._scores[pair] for pair in pairs], dtype=torch.float32)

    def release(self) -> None:
        """Do nothing: recorded scores use no GPU."""


def _path(roster: Roster, image_id: str) -> Path:
    return roster.samples[roster.rows_by_image[image_id][0]].image_path


def build_policy(
    parts: Parts, source: CaptionSource, pairs: FitScores | None, *, threshold: float
) -> Policy:
    """CapFilt's policy: both parts, the captioner alone (C), or the filter alone (F).

    Raises:
        ValueError: unknown parts, or a filter without scores.
    """
    if parts not in get_args(Parts):
        raise ValueError(f"parts must be one of {get_args(Parts)}: got {parts!r}")
    if parts == "captioner":
        pairs = None
    elif pairs is None:
        raise ValueError(
            f"parts={parts} needs filter scores, which the shards lack; make the shards with a "
            "filter"
        )
    select = Origin(origin=UNPAIRED)
    if pairs is not None:
        select = Unmatched(pairs=pairs, threshold=threshold, waiting=parts == "both")
    amend = CapFilt(source=source, pairs=pairs, threshold=threshold)
    name = "capfilt" if parts == "both" else f"capfilt_{parts}"
    return Policy(
        select=select,
        amend=amend,
        schedule=BEFORE_TRAINING,
        name=name,
        for_fewer=f"no caption scores threshold={threshold:g}; give a lower threshold=, and "
        "shard=merge to use the scores that are there",
    )


def merge(
    roster: Roster,
    records: Records,
    head: Mapping[str, Any],
    *,
    folder: Path,
    parts: Parts,
    threshold: float,
    seed: int,
) -> dict[str, Any]:
    """Decide on all photos and write the dataset; trying another threshold runs no model.

    Args:
        roster: the training set.
        records: records of all its photos.
        head: captioner and filter, the first line of the shards.
        folder: gets ``curation.jsonl``, ``curation/report.html``, ``captions.json`` (the curated
            set as COCO has it) and ``captions.jsonl`` (the accepted captions, for
            ``steps=[add_pairs]``).
        parts: see `build_policy`.
        threshold: captions of a lower score do not match.
        seed: seed for the journal.

    Returns:
        Counts.

    Raises:
        ValueError: no sample would remain, or see `build_policy`.
    """
    source = RecordedCaptions(records, roster, name=head["captioner"] or "")
    pairs = head["name"] and RecordedScores(records, roster, name=head["name"])
    policy = build_policy(parts, source, pairs or None, threshold=threshold)
    per_photo = max(len(line["made"]) for line in records.values())
    slots = per_photo if parts != "filter" else 0
    view = CurationView(roster=with_slots(roster, slots) if slots else roster)
    curator = Curator(policy=policy, view=view, seed=seed)
    outcome = curator.begin()
    if outcome is None:
        raise ValueError(
            "CapFilt edits before training, but the schedule has nothing due before training"
        )
    curator.start_files(folder)
    _write_set(outcome, folder)
    record = RunRecord(
        policy=policy.name,
        seed=seed,
        view=outcome.view,
        records=[outcome.record],
        history=np.empty((0, len(outcome.view.roster))),
    )
    write_report(record, folder / "curation" / FILE_NAME, num_pictures=NUM_PICTURES)
    return _counts(outcome, records)


def _write_set(outcome: Outcome, folder: Path) -> None:
    """Write the curated dataset, and a file with only the accepted captions."""
    write_coco(pictures(outcome.view), folder / CURATED, name=outcome.view.roster.name)
    made = (sample for sample in outcome.view.samples() if _is_made(sample))
    write_lines(
        folder / MADE,
        (
            as_line({"image_id": s.image_id, "caption": s.caption, "phrases": [], "boxes": []})
            for s in made
        ),
    )


def _is_made(sample: Sample) -> bool:
    return sample.origin.startswith(ORIGIN)


def _counts(outcome: Outcome, records: Records) -> dict[str, Any]:
    """Count captions before and after, and build histograms of their scores."""
    before = outcome.context.view.roster.samples
    after = outcome.view.samples()
    written = [score for line in records.values() for score in line["written"]]
    made = [score for line in records.values() for _, score in line["made"]]
    all_scores = [*written, *made]
    return {
        "photos": len(records),
        "written": sum(sample.origin != UNPAIRED for sample in before),
        "written kept": sum(not _is_made(sample) for sample in after),
        "made": len(made),
        "made accepted": sum(map(_is_made, after)),
        "captions": len(after),
        "photos without a made caption": sum(not line["made"] for line in records.values()),
        "without a score": sum(score is not None and math.isnan(score) for score in all_scores),
        **_answered(records),
        "scores written": _histogram(written),
        "scores made": _histogram([score for score in made if score is not None]),
    }


def _answered(records: Records) -> dict[str, Any]:
    """Count answers of served models, and failures by reason; empty without served models."""
    total: dict[str, Counter[str]] = {}
    for line in records.values():
        for name, counts in line.get(SERVED, {}).items():
            total.setdefault(name, Counter()).update(counts)
    found = {name: answer_summary(counts) for name, counts in sorted(total.items())}
    return {SERVED: found} if found else {}


def _histogram(scores: Sequence[float]) -> dict[str, Any]:
    scores = [score for score in scores if not math.isnan(score)]  # of no score, see `PairScores`
    if not scores:
        return {}
    counts, edges = np.histogram(scores, BINS)
    return {
        "mean": round(float(np.mean(scores)), 4),
        "counts": counts.tolist(),
        "edges": np.round(edges, 4).tolist(),
    }


CARD = "card.json"
MERGE = "merge"
WHOLE = Shard(number=1, total=1)


def capfilt(
    *,
    data: Data,
    paths: Paths,
    captioner: Part,
    filter: Part,
    out: Name,
    threshold: float,
    parts: Literal["both", "captioner", "filter"] = "both",
    per_photo: PositiveInt = 1,
    photos_at_once: PositiveInt = 256,
    shard: Name | None = None,
    split: Name = "train",
    first_images: PositiveInt | None = None,
    steps: Mapping[str, Part] = NO_STEPS,
    seed: Seed = 0,
    spread: Part | None = None,
    plugins: Sequence[Name] = (),
) -> dict[str, Any] | None:
    """Caption and score the photos of one shard or of all; then decide and write the dataset.

    Args:
        data: the dataset.
        paths: folders.
        captioner: writes captions.
        filter: scores captions against their photos.
        out: folder of the set.
        threshold: captions of a lower score do not match.
        parts: use of captioner, filter, or both.
        per_photo: captions written for a photo.
        photos_at_once: photos between two writes.
        shard: ``"3/16"``: only this part of the photos; ``"merge"``: decide on finished shards;
            None: all photos.
        split: split of the dataset.
        first_images: photos read; None: all.
        steps: the data's steps.
        seed: seed of the draws.
        spread: runs captioning and scoring; None: this process does.
        plugins: packages that other processes import.

    Returns:
        The card, with counts; None after a single shard.

    Raises:
        ValueError: wrong settings or data, or shards that do not belong together.
        OSError: files that cannot be read or written.
    """
    folder = Path(out)
    chosen = None if shard in (None, MERGE) else Shard.parse(shard)
    read = {"first_images": first_images, "steps": steps}
    roster, _ = read_with_steps(DataSettings(data=data, paths=paths, seed=seed, **read), split)
    identity = {"roster": roster.name, "fingerprint": roster.fingerprint}
    claim_folder(folder, {"data": identity, "parts": parts, "per_photo": per_photo})
    where = chosen_spread(spread)
    if chosen is not None and not isinstance(where, Local):
        raise ValueError(
            "shard=I/N works only with spread=local: remove shard= to use another spread=, or set "
            "shard=merge"
        )
    used = {
        "captioner": None if parts == "filter" else plain(captioner),
        "filter": None if parts == "captioner" else plain(filter),
    }
    if shard != MERGE:
        write_shard(
            chosen or WHOLE,
            folder=folder,
            roster=roster,
            build=partial(build_judge, **used),
            spread=where,
            photos_at_once=photos_at_once,
            settings=used,
            plugins=list(plugins),
        )
    if chosen is not None:
        return None
    head, records = read_shards(folder, roster)
    options = {"parts": parts, "threshold": threshold, "seed": seed}
    counts = merge(roster, records, head, folder=folder, **options)
    card = {"what": "a training set after CapFilt", "data": identity, "counts": counts, **options}
    config = {"split": split, **read, "per_photo": per_photo}
    config |= {"captioner": captioner, "filter": filter}
    card |= {"judged by": head, "versions": versions(), "config": plain(config)}
    write_json(folder / CARD, card)
    return card


def build_judge(*, captioner: dict[str, Any] | None, filter: dict[str, Any] | None) -> Judge:
    """Build a `Judge` from plain values, in any process."""
    source, pairs = (
        None if config is None else build_part(OmegaConf.create(config))
        for config in (captioner, filter)
    )
    return Judge(source=source, pairs=pairs)


def summary(card: dict[str, Any]) -> str:
    """Summarise the changes to the captions in one line."""
    counts = card["counts"]
    return (
        f"{counts['written kept']:,} of {counts['written']:,} written captions kept, "
        f"{counts['made accepted']:,} of {counts['made']:,} made ones added"
    )
