"""What captioner and filter say of each photo, in shards that grow by appending."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.progress import Progress

from augmentation.captions.line_log import as_line, cut_to_lines, read_lines
from captioning.data.roster import Roster
from captioning.runtime.file_lock import locked
from captioning.spread.base import AbstractSpread, Job
from captioning.types import Sample
from captioning.vision.pair_scores import PairScores
from captioning.vision.photo_captions import PhotoCaptions

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Shard:
    """A part of a roster's photos: every ``total``-th one.

    Attributes:
        number: from 1.
        total: of the shards.

    Raises:
        ValueError: no such shard.
    """

    number: int
    total: int

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.total:
            raise ValueError(f"shard must be I/N with 1 <= I <= N: got {self}")

    @classmethod
    def parse(cls, text: str) -> Shard:
        """The shard of a text such as ``"3/16"``.

        Raises:
            ValueError: no such text.
        """
        number, _, total = str(text).partition("/")
        if not (number.isdecimal() and total.isdecimal()):
            raise ValueError(f"shard must be I/N, such as 3/16, merge, or null: got {text!r}")
        return cls(number=int(number), total=int(total))

    def __str__(self) -> str:
        return f"{self.number}/{self.total}"

    def file(self, folder: Path) -> Path:
        """Its file in the folder of a set."""
        return folder / "shards" / f"{self.number:04d}-of-{self.total:04d}.jsonl"

    def photos(self, roster: Roster) -> list[list[Sample]]:
        """Samples of each of its photos."""
        rows = list(roster.rows_by_image.values())[self.number - 1 :: self.total]
        return [[roster.samples[row] for row in photo] for photo in rows]


class Judge:
    """Captions and scores photos, in any process.

    Args:
        source: writes captions; None: none are written.
        pairs: scores captions; None: none are scored.
    """

    def __init__(self, *, source: PhotoCaptions | None, pairs: PairScores | None) -> None:
        self.source, self.pairs = source, pairs

    @property
    def identity(self) -> dict[str, Any]:
        """Captioner and filter, as the first line of a shard has them."""
        return {
            "captioner": self.source and self.source.name,
            "captioner identity": self.source and self.source.captioner.identity,
            "filter identity": self.pairs and self.pairs.scorer.identity,
            "name": self.pairs and self.pairs.name,
        }

    def __call__(self, items: Sequence[Sequence[Sample]]) -> list[dict[str, Any]]:
        """A line a photo. It depends on these photos alone, not on those before."""
        for part in (self.source, self.pairs):
            if part is not None:
                part.forget()
        return _judged(items, self.source, self.pairs)


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
    """Caption and score the photos of a shard; go on after the last whole block of a killed run.

    The first line says who judged: `Judge.identity`. Each further line is a photo: ``image_id``,
    the scores of its ``written`` captions, and ``made`` captions with scores.

    Args:
        shard: which photos.
        folder: of the set.
        roster: the training set.
        build: makes a judge in each process.
        spread: where the judges work.
        photos_at_once: photos between two writes, at least 1.
        settings: plain values of captioner and filter.
        plugins: see `Job`.

    Raises:
        ValueError: the shard was begun by another captioner or filter, or a photo cannot be opened.
        OSError: it cannot be written.
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
    """Write the first line of a new file; refuse one that others began."""
    if not file.stat().st_size:
        file.write_text(as_line(head) + "\n", encoding="utf-8")
    elif next(read_lines(file)) != head:
        raise ValueError(
            f"{file}: begun by another captioner, filter or precision; choose another out=, or "
            "delete the file"
        )


def _judged(
    photos: Sequence[Sequence[Sample]], source: PhotoCaptions | None, pairs: PairScores | None
) -> list[dict[str, Any]]:
    """A line a photo."""
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
    """Who judged, and the lines of all photos by ``image_id``.

    Raises:
        FileNotFoundError: a shard is missing; names those that are.
        ValueError: a shard is not finished, or judged by others.
    """
    files = sorted((folder / "shards").glob("*-of-*.jsonl"))
    if not files:
        raise FileNotFoundError(f"{folder}: no shards; make them with shard=1/N ... shard=N/N")
    total = int(files[0].stem.rpartition("-")[2])
    shards = [Shard(number=number, total=total) for number in range(1, total + 1)]
    if missing := [str(shard) for shard in shards if not shard.file(folder).is_file()]:
        raise FileNotFoundError(f"{folder}: shards {', '.join(missing)} are missing; make them")
    if len(files) > total:
        raise ValueError(f"{folder}/shards: shards of several numbers; delete those of one")
    head: dict[str, Any] = {}
    records: dict[str, dict[str, Any]] = {}
    for shard in shards:
        lines = read_lines(shard.file(folder))
        this = next(lines) | {"shard": None}
        head = head or this
        if this != head:
            raise ValueError(f"{shard.file(folder)}: judged by another captioner or filter")
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
                f"shard {shard}: has {line['image_id']!r} where the data have "
                f"{samples[0].image_id!r}; were the annotations changed?"
            )
        records[line["image_id"]] = line
        number += 1
    if number < len(photos):
        raise ValueError(
            f"shard {shard} has {number} of {len(photos)} photos: run it again, it goes on"
        )
