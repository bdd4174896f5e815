"""Write new captions as a training set: captions.jsonl, statistics and a figure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rich.progress import Progress

from augmentation.captions.line_log import as_line, cut_to_lines, read_lines
from augmentation.captions.new_captions import AbstractCaptionMethod, NewCaption, PhotoCaptions
from augmentation.set_folder import claim_folder, data_identity
from captioning.data.roster import Roster
from captioning.data.steps.added_captions import FILE, focus, read_added_captions
from captioning.runtime.files import read_json, write_atomically, write_json, write_lines
from captioning.spread.base import AbstractSpread, Job
from captioning.spread.local import Local
from captioning.text.lengths import count_words, length_level
from captioning.types import Sample

PARTIAL_FILE, STATISTICS = "captions.part.jsonl", "statistics.json"
PARTS, PHOTOS_AT_ONCE = "parts", 256  # of a spread synthesis: folder, and photos between two files
MADE_KEY, REFUSED_KEY = "made", "refused"  # of a line of PART
REPEAT = "an earlier photo has it"
LOW_COVERAGE = 0.3  # a caption of lower coverage describes a small part of the photo
BINS = 10


def write_captions(
    method: AbstractCaptionMethod,
    *,
    folder: Path,
    roster: Roster,
    settings: Mapping[str, Any],
    spread: AbstractSpread | None = None,
    build: Callable[[], PhotoWorker] | None = None,
    plugins: Sequence[str] = (),
) -> dict[str, Any]:
    """Write all captions, or resume a killed run after its last photo; keep a complete dataset.

    Args:
        method: makes the same captions in every run of the same settings.
        folder: the set's folder.
        roster: the data that they are made from.
        settings: plain values that they depend on; the folder is refused to another set.
        spread: runs the generation of captions; None: this process does.
        build: makes a worker in other processes; None: this process' method works.
        plugins: see `Job`.

    Returns:
        Counts and statistics: ``captions``, ``photos``, coverage and length of people's captions,
        of new ones, and of both, and ``left out`` by reason.

    Raises:
        ValueError: the folder holds another set, or no caption was made.
        OSError: a file cannot be written, or a service of the method is unreachable.
    """
    claim_folder(folder, settings)
    partial_file = folder / PARTIAL_FILE
    if not (folder / STATISTICS).is_file():
        job = Job(
            name="captions",
            build=build or partial(PhotoWorker, method=method, roster=roster),
            items=range(len(roster.rows_by_image)),
            unit=method.photos_at_once,
            save_every=PHOTOS_AT_ONCE,
            settings=settings,
            folder=folder / PARTS,
            plugins=plugins,
            uses_gpu=method.uses_gpu,
        )
        _append(job, spread or Local(), partial_file)
        records = (record for line in read_lines(partial_file) for record in line[MADE_KEY])
        refused = sum((Counter(line[REFUSED_KEY]) for line in read_lines(partial_file)), Counter())
        if not method.keeps_repeats:
            records = _without_repeats(records, refused)
        lines = [as_line(record) for record in records]
        left_out = dict(sorted(refused.items()))
        if not lines:
            raise ValueError(f"no caption was made; reasons: {left_out or 'none'}")
        write_lines(folder / FILE, lines)
        statistics = _statistics(folder, roster)
        write_atomically(folder / "statistics.png", lambda path: _draw(statistics, path))
        write_json(folder / STATISTICS, statistics | {"left out": left_out})
    partial_file.unlink(missing_ok=True)
    return read_json(folder / STATISTICS)


class PhotoWorker:
    """Generates captions of photos, given the photos' numbers in the roster.

    Args:
        method: generates the captions.
        roster: the photos with captions by people.
    """

    def __init__(self, *, method: AbstractCaptionMethod, roster: Roster) -> None:
        self._method, self._roster = method, roster
        self._next, self._photos = 0, iter(())

    @property
    def identity(self) -> list[str]:
        """Caption methods of the dataset; each process reads the dataset itself."""
        return list(data_identity(self._roster).values())

    def __call__(self, items: Sequence[int]) -> list[dict[str, Any]]:
        """Return a line for each photo: its captions, and counts of rejected captions by reason."""
        if items[0] != self._next or items[0] == 0:
            self._photos = self._method.captions(self._roster, skip=items[0])
        self._next = items[-1] + 1
        photos = list(islice(self._photos, len(items)))
        _check(photos, len(items), by=self._method)
        return [
            {MADE_KEY: [_record(new) for new in photo.captions], REFUSED_KEY: photo.refused}
            for photo in photos
        ]


def _check(photos: Sequence[Any], number: int, *, by: AbstractCaptionMethod) -> None:
    """Raise ValueError unless the method yields captions for each photo."""
    name = f"{type(by).__qualname__}.captions"
    if wrong := [photo for photo in photos if not isinstance(photo, PhotoCaptions)]:
        raise ValueError(
            f"{name} must yield augmentation.captions.new_captions.PhotoCaptions: got "
            f"{type(wrong[0]).__name__}"
        )
    if len(photos) < number:
        raise ValueError(
            f"{name} must yield one PhotoCaptions for each photo, even without a new caption: it "
            f"ended {number - len(photos)} photos too early"
        )


def _without_repeats(
    records: Iterable[dict[str, Any]], refused: Counter[str]
) -> Iterator[dict[str, Any]]:
    """Yield records with new captions only; count the repeats."""
    seen: set[str] = set()
    for record in records:
        caption = " ".join(record["caption"].lower().split())
        if caption in seen:
            refused[REPEAT] += 1
        else:
            seen.add(caption)
            yield record


def _append(job: Job, spread: AbstractSpread, partial_file: Path) -> None:
    """Write a line for each photo; resume after the lines of a killed run."""
    size = spread.shard_size(unit=job.unit, save_every=job.save_every)
    begun, total = cut_to_lines(partial_file, first=0, step=size), len(job.items)
    job = replace(job, items=job.items[begun:])
    with (
        partial_file.open("a", encoding="utf-8", newline="\n") as file,
        Progress(transient=True) as bar,
    ):
        task = bar.add_task("captions", total=total, completed=begun)
        for lines in spread.results(job):
            file.write("".join(as_line(line) + "\n" for line in lines))
            file.flush()
            bar.advance(task, len(lines))


def _record(caption: NewCaption) -> dict[str, Any]:
    """Build the line of a caption: text, control signals and origin."""
    regions = sorted({region for phrase in caption.phrases for region in phrase.regions})
    words = count_words(caption.text)
    return {
        "image_id": caption.sample.image_id,
        "caption": caption.text,
        "phrases": [
            {"start": phrase.start, "text": phrase.text, "chain_id": phrase.chain_id,
             "kinds": list(phrase.kinds), "regions": list(phrase.regions)}
            for phrase in caption.phrases
        ],
        "boxes": [{"region": n, "box": list(caption.sample.regions[n].box)} for n in regions],
        "words": words,
        "level": length_level(words),
        "verb": caption.verb,
        "score": caption.score,
        "graph": caption.graph,
    }  # fmt: skip


def _statistics(folder: Path, roster: Roster) -> dict[str, Any]:
    made_captions = read_added_captions(folder, roster)
    people_captions = list(roster.samples)
    return {
        "captions": len(made_captions),
        "photos": len({sample.image_id for sample in made_captions}),
        "photos of the data": len(roster.rows_by_image),
        "people's": describe_captions(people_captions),
        "made": describe_captions(made_captions),
        "together": describe_captions([*people_captions, *made_captions]),
    }


def describe_captions(samples: list[Sample]) -> dict[str, Any]:
    """Coverage and length of captions: means, histograms, and the share with low coverage."""
    coverage = np.array([focus(sample) for sample in samples])
    words = [count_words(sample.caption) for sample in samples]
    counts = np.histogram(coverage, BINS, (0, 1))[0]
    return {
        "captions": len(samples),
        "coverage below 0.3": round(float((coverage < LOW_COVERAGE).mean()), 4),
        "mean coverage": round(float(coverage.mean()), 4),
        "coverage by tenths": counts.tolist(),
        "mean words": round(float(np.mean(words)), 2),
        "words": {str(number): count for number, count in sorted(Counter(words).items())},
    }


def _draw(statistics: Mapping[str, Any], path: Path) -> None:
    """Draw histograms of coverage and length, of human and of new captions (Fig. 10 and 11)."""
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    for name, colour, shift in (("people's", "0.6", -0.2), ("made", "#4878a8", 0.2)):
        shares = np.array(statistics[name]["coverage by tenths"]) / statistics[name]["captions"]
        left.bar(np.arange(BINS) * 10 + 5 + 10 * shift, 100 * shares, 4, color=colour, label=name)
        words = statistics[name]["words"]
        heights = [100 * count / statistics[name]["captions"] for count in words.values()]
        right.bar([int(n) + shift for n in words], heights, 0.4, color=colour, label=name)
    left.set(xlabel="coverage of the photo (%)", ylabel="captions (%)")
    right.set(xlabel="words", ylabel="captions (%)")
    right.legend(frameon=False)
    figure.savefig(path, dpi=100)
