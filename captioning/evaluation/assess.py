"""Correlation of caption metrics with human ratings: ``captioning assess METRIC... data=NAME``.

Kendall's rank correlation of human ratings with a metric's scores tells how far the metric orders
captions as people do. Each dataset is read as in the papers that report on it (Anderson et al.,
2016; Hessel et al., 2021, appendix A, and their code).
"""

from __future__ import annotations

import csv
import difflib
import io
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from rich.progress import track

from captioning.config.build import build_part
from captioning.config.loadable import loadable
from captioning.config.ranges import Name, NonNegativeInt, Seed
from captioning.config.setting_error import Setting, SettingError, SettingNotFoundError
from captioning.config.tasks import recorded
from captioning.data.line_files import read_lines, read_text
from captioning.data.readers.coco import read_coco
from captioning.data.readers.flickr8k import read_flickr8k
from captioning.data.roster import Roster
from captioning.metrics.bootstrap import Bootstrap, resampled
from captioning.metrics.coco import MetricName, MetricResult, evaluate_captions
from captioning.metrics.evaluation import AbstractMetric, with_further
from captioning.results.versions import versions
from captioning.runtime.files import write_json
from captioning.training.settings import Metrics, Part
from captioning.types import Sample

Tau = Literal["b", "c"]
Ints = NDArray[np.int64]

# Columns that Amazon Mechanical Turk writes before those of the task.
_TASK = 27
# Papers leave out Composite's fourth caption; the first is one of the photo's references.
_COMPOSITE_CAPTIONS = 3
FLICKR8K = "Flickr8k_text.zip of Hodosh et al."


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedCaption:
    """Caption of a photo with its human ratings.

    Attributes:
        photo: the photo's path.
        caption: raw text.
        ratings: one or more ratings; higher is better.
        references: raw captions of the photo, which the metrics compare with.
    """

    photo: Path
    caption: str
    ratings: tuple[float, ...]
    references: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Judgements:
    """Dataset of captions with human ratings.

    Attributes:
        name: name of the dataset.
        captions: captions in the order of the file.
        tau: variant of Kendall's tau that papers report on this dataset.
        left_out: number of captions that papers leave out, as they are among the references.
    """

    name: str
    captions: Sequence[JudgedCaption]
    tau: Tau
    left_out: int = 0


@loadable
def read_flickr8k_expert(
    *, annotations: str | Path, captions: str | Path, photos: str | Path
) -> Judgements:
    """Read Flickr8k-Expert (Hodosh et al., 2013): three ratings from 1 to 4 per caption.

    As in SPICE's paper, captions of the photo itself are left out (158 of 5,822). Each rating
    counts as one judgement.

    Args:
        annotations: ``ExpertAnnotations.txt``: photo, caption id and three ratings by tabs.
        captions: ``Flickr8k.token.txt``.
        photos: the folder of the photos.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: a line is malformed, or names an unknown photo or caption.
    """
    judged, left_out = [], 0
    _check_there(annotations, "annotations", FLICKR8K)
    texts = _Flickr8k(captions)
    for where, columns in _lines(annotations, 5, "photo, caption id and three ratings"):
        caption, references = texts(where, columns)
        if caption in references:
            left_out += 1
            continue
        ratings = tuple(_rating(text, where, low=1, high=4) for text in columns[2:])
        photo = Path(photos, columns[0])
        one = JudgedCaption(photo=photo, caption=caption, ratings=ratings, references=references)
        judged.append(one)
    return Judgements(name="Flickr8k-Expert", captions=judged, tau="c", left_out=left_out)


@loadable
def read_flickr8k_cf(
    *, annotations: str | Path, captions: str | Path, photos: str | Path
) -> Judgements:
    """Read Flickr8k-CF (CrowdFlower): share of people who called the caption correct.

    A caption of the photo itself is removed from the references, as in CLIPScore's code.

    Args:
        annotations: ``CrowdFlowerAnnotations.txt``: photo, caption id, share and numbers of yes and
            no by tabs.
        captions, photos: see `read_flickr8k_expert`.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: a line is malformed, names an unknown photo or caption, or its share contradicts
            its numbers.
    """
    _check_there(annotations, "annotations", FLICKR8K)
    rows, texts = [], _Flickr8k(captions)
    for where, columns in _lines(annotations, 5, "photo, caption id, share, yes and no"):
        share, yes, no = (_rating(text, where, low=0) for text in columns[2:])
        if yes + no == 0 or abs(share - yes / (yes + no)) > 1e-5:
            problem = f"the share {share:g} is not that of {yes:g} yes and {no:g} no"
            raise SettingError(where, problem, "get the published file")
        rows.append((columns[0], *texts(where, columns), share))
    judged_of: dict[str, set[str]] = {}
    for photo, caption, _, _ in rows:
        judged_of.setdefault(photo, set()).add(caption)
    return Judgements(
        name="Flickr8k-CF",
        captions=[
            JudgedCaption(
                photo=Path(photos, photo),
                caption=caption,
                ratings=(share,),
                references=tuple(text for text in references if text not in judged_of[photo]),
            )
            for photo, caption, references, share in rows
        ],
        tau="b",
    )


@loadable
def read_composite(
    *,
    folder: str | Path,
    flickr8k: str | Path,
    flickr30k: str | Path,
    coco: str | Path,
    flickr8k_photos: str | Path,
    flickr30k_photos: str | Path,
    coco_photos: str | Path,
) -> Judgements:
    """Read Composite (Aditya et al., 2015): ratings from 1 to 5 of a caption's correctness.

    The first three captions of a photo are used, 11,985 in all. The first is the photo's own: the
    reference most similar to it is removed, as in CLIPScore's paper.

    Args:
        folder: folder of ``8k_correctness.csv``, ``30k_correctness.csv`` and
            ``coco_correctness.csv``: batches of Mechanical Turk, separated by ``;``, with the
            photo's address in column 28, then the captions, then their ratings.
        flickr8k, flickr30k: captions as ``NAME.jpg#K TAB CAPTION``.
        coco: captions JSON of COCO's validation set of 2014.
        flickr8k_photos, flickr30k_photos, coco_photos: folders of the photos.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: a row is malformed, or names an unknown photo.
    """
    rosters: dict[str, Callable[[], Roster]] = {
        "8k": lambda: read_flickr8k(name="8k", token_file=flickr8k, image_folder=None),
        "30k": lambda: read_flickr8k(name="30k", token_file=flickr30k, image_folder=None),
        "coco": lambda: read_coco(name="coco", annotations=str(coco), image_folder=None),
    }
    photos = {"8k": flickr8k_photos, "30k": flickr30k_photos, "coco": coco_photos}
    for part in rosters:
        _check_there(Path(folder) / f"{part}_correctness.csv", "folder", "AMT_eval of its authors")
    own = {"flickr8k": flickr8k, "flickr30k": flickr30k, "coco": coco}
    for key, path in own.items():
        _check_there(path, key, "the captions of that set")
    judged: list[JudgedCaption] = []
    for part, roster in rosters.items():
        rows = list(_turk_rows(Path(folder) / f"{part}_correctness.csv"))
        judged += _composite_part(rows, roster(), Path(photos[part]))
    return Judgements(name="Composite", captions=judged, tau="c")


def _composite_part(
    rows: Sequence[tuple[str, str, list[str], list[float]]], roster: Roster, photos: Path
) -> Iterator[JudgedCaption]:
    of_stem: dict[str, tuple[str, list[str]]] = {}
    for sample in roster.samples:
        name = sample.image_path.name
        of_stem.setdefault(Path(name).stem, (name, []))[1].append(sample.caption)
    for where, stem, captions, ratings in rows:
        if stem not in of_stem:
            remedy = "give the captions that the set was made of"
            raise SettingError(where, f"the photo {stem!r} has no references", remedy)
        name, references = of_stem[stem]
        own = max(references, key=lambda text: _likeness(text, captions[0]))
        rest = list(references)
        rest.remove(own)
        for caption, rating in list(zip(captions, ratings, strict=True))[:_COMPOSITE_CAPTIONS]:
            yield JudgedCaption(
                photo=photos / name, caption=caption, ratings=(rating,), references=tuple(rest)
            )


def _likeness(first: str, second: str) -> float:
    return difflib.SequenceMatcher(None, first.lower(), second.lower(), autojunk=False).ratio()


def _turk_rows(path: Path) -> Iterator[tuple[str, str, list[str], list[float]]]:
    """Position, photo name without suffix, captions and ratings of each row that names a photo."""
    # the file's last rows are blank but for their semicolons
    for number, row in enumerate(csv.reader(io.StringIO(read_text(path)), delimiter=";"), start=1):
        cells = [cell.strip() for cell in row[_TASK:]]
        if number == 1 or not any(cells):
            continue
        where, (address, *rest) = f"{path}: row {number}", cells
        size = next((n for n, cell in enumerate(rest) if cell.isdecimal()), 0)
        if size < _COMPOSITE_CAPTIONS or not all(rest[:size]) or len(rest) < 2 * size:
            problem = f"must be a photo, captions and as many ratings from column {_TASK + 1} on"
            raise SettingError(where, f"{problem}: got {cells!r:.80}", "get the published file")
        ratings = [_rating(text, where, low=1, high=5) for text in rest[size : 2 * size]]
        yield where, Path(address.rpartition("/")[2]).stem, rest[:size], ratings


def _check_there(path: str | Path, key: str, source: str) -> None:
    if not Path(path).is_file():
        setting = Setting(key, "PLACE")
        raise SettingNotFoundError(path, "no such file", f"get {source}, or give ", setting)


class _Flickr8k:
    """Lookup of a judged caption and its photo's references."""

    def __init__(self, token_file: str | Path) -> None:
        _check_there(token_file, "captions", FLICKR8K)
        roster = read_flickr8k(name="flickr8k", token_file=token_file, image_folder=None)
        self._path, self._captions = token_file, roster.by_id
        self._references = {photo: tuple(texts) for photo, texts in roster.references().items()}

    def __call__(self, where: str, columns: Sequence[str]) -> tuple[str, tuple[str, ...]]:
        photo, caption, *_ = columns
        for name, known in ((photo, self._references), (caption, self._captions)):
            if name not in known:
                raise SettingError(where, f"{self._path} has no {name!r}", "give Flickr8k's own")
        return self._captions[caption].caption, self._references[photo]


def _lines(path: str | Path, size: int, what: str) -> Iterator[tuple[str, list[str]]]:
    """Position and columns of each line of a file."""
    for number, line in read_lines(path):
        columns = line.split("\t")
        if len(columns) != size:
            problem = f"must be {what}, separated by tabs: got {line[:60]!r}"
            raise SettingError(f"{path}:{number}", problem, "is the line cut?")
        yield f"{path}:{number}", columns


def _rating(text: str, where: str, *, low: float, high: float = math.inf) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not low <= value <= high or value == math.inf:
        limits = f"at least {low:g}" if high == math.inf else f"from {low:g} to {high:g}"
        raise SettingError(where, f"a number must be {limits}: got {text!r}", "correct it")
    return value


def kendall_taus(table: Ints) -> tuple[float, float]:
    """Kendall's tau-b and tau-c (Stuart, 1953) of two rankings.

    Args:
        table: ``(R, C)`` counts of the r-th value of one ranking together with the c-th value of
            the other, both in ascending order; rows and columns may be empty.

    Returns:
        Both in [-1, 1]; NaN if one ranking has a single value.
    """
    below = np.cumsum(table, axis=0) - table
    smaller = np.cumsum(below, axis=1) - below
    larger = below.sum(axis=1, keepdims=True) - below - smaller
    surplus = float((table * smaller).sum() - (table * larger).sum())
    rows, columns = table.sum(axis=1), table.sum(axis=0)
    size, least = int(rows.sum()), min(np.count_nonzero(rows), np.count_nonzero(columns))
    if least < 2:
        return math.nan, math.nan
    # pairs that differ in one order, and in the other; Python's numbers do not overflow
    untied = [(size**2 - int((counts**2).sum())) // 2 for counts in (rows, columns)]
    tau_c = 2 * surplus / size**2 * least / (least - 1)
    return surplus / math.sqrt(untied[0] * untied[1]), tau_c


class _Agreement:
    """Compute both taus of a metric's scores with human ratings, each rating a judgement.

    Args:
        people: ratings of the captions.
    """

    def __init__(self, people: Judgements) -> None:
        counts = [len(one.ratings) for one in people.captions]
        ratings = [rating for one in people.captions for rating in one.ratings]
        self._caption = np.repeat(np.arange(len(counts)), counts)
        levels, self._level = np.unique(ratings, return_inverse=True)
        self._levels = len(levels)
        photos = dict.fromkeys(one.photo for one in people.captions)
        numbers = {photo: number for number, photo in enumerate(photos)}
        self._photo = np.repeat([numbers[one.photo] for one in people.captions], counts)
        self.photos, self.judgements = len(numbers), len(ratings)

    def measure(self, scores: Sequence[float], bootstrap: Bootstrap | None) -> dict[str, Any]:
        """Compute taus of scores in the captions' order, with confidence intervals over photos.

        Captions with a NaN score are left out; ``captions`` is the number of the other captions.
        """
        column = np.asarray(scores, np.float64)
        has_score = np.isfinite(column)
        is_used = has_score[self._caption]
        values, ranks = np.unique(np.nan_to_num(column), return_inverse=True)
        cells = (ranks[self._caption] * self._levels + self._level)[is_used]
        photo = self._photo[is_used]
        shape = (len(values), self._levels)

        def taus(times: Ints | None) -> tuple[float, float]:
            weights = None if times is None else times[photo]
            table = np.bincount(cells, weights, minlength=shape[0] * shape[1])
            return kendall_taus(table.astype(np.int64).reshape(shape))

        found: dict[str, Any] = dict(zip(("tau_b", "tau_c"), taus(None), strict=True))
        if not has_score.all():
            found["captions"] = int(has_score.sum())
        if bootstrap is None or math.isnan(found["tau_b"]):
            return found
        generator = np.random.default_rng(bootstrap.seed)
        blocks = resampled(self.photos, bootstrap.resamples, generator)
        drawn = (np.bincount(row, minlength=self.photos) for block in blocks for row in block)
        both = np.array([taus(times) for times in drawn])
        both = both[np.isfinite(both).all(axis=1)]  # one photo alone may leave nothing to order
        tails = [(1 - bootstrap.confidence) / 2, (1 + bootstrap.confidence) / 2]
        for name, column in zip(("tau_b", "tau_c"), both.T, strict=True):
            found[f"{name}_interval"] = np.quantile(column, tails).tolist() if len(both) else None
        return found


def assess_metrics(
    *,
    judgements: Part,
    metrics: Metrics,
    scores: Sequence[MetricName],
    extra_metrics: Mapping[str, Part] | None = None,
    resamples: NonNegativeInt = 1000,
    seed: Seed = 0,
    out: Name | None = None,
) -> dict[str, Any]:
    """Correlate metrics with human ratings of captions.

    Args:
        judgements: builds `Judgements`.
        metrics: metric settings, of which the tokenizer is used.
        scores: standard scores.
        extra_metrics: further metrics by name.
        resamples: resamples of the photos, for the 95% intervals; 0 for none.
        seed: seed of the resamples.
        out: path of a JSON file for the result.

    Returns:
        Numbers of ``photos``, ``captions`` and ``judgements``, ``published`` (``tau_b`` or
        ``tau_c``), and by score in ``agreement`` both taus with their intervals, and ``captions``
        where some have no score.

    Raises:
        ValueError: no metric, a metric without scores of single captions, or a malformed file.
        FileNotFoundError: a file or photo does not exist.
    """
    used = recorded(locals(), groups=("extra_metrics",))
    if not scores and not extra_metrics:
        raise ValueError("no metric: name some, such as `captioning assess BLEU METEOR`")
    further = {name: build_part(part) for name, part in (extra_metrics or {}).items()}
    people: Judgements = build_part(judgements)
    agreement, bootstrap = _Agreement(people), None
    if resamples:
        bootstrap = Bootstrap(resamples=resamples, seed=seed)
    print(
        f"{people.name}: {agreement.judgements} judgements of {len(people.captions)} captions of "
        f"{agreement.photos} photos; {people.left_out} captions left out, as their photos' own"
    )
    found: dict[str, dict[str, Any]] = {}
    missing: dict[str, str] = {}
    settings: dict[str, Any] = {}
    for name, result in _scored(people, further, scores, metrics):
        settings[name] = {k: value for k, value in result.settings.items() if k != "missing"}
        missing |= result.missing
        for score, column in _columns(name, result, len(people.captions)).items():
            measured = agreement.measure(column, bootstrap)
            if math.isnan(measured["tau_b"]):
                missing[score] = "all captions have the same score, or all the same rating"
            else:
                found[score] = measured
    assessed = {
        "data": people.name,
        "photos": agreement.photos,
        "captions": len(people.captions),
        "judgements": agreement.judgements,
        "left_out": people.left_out,
        "published": f"tau_{people.tau}",
        "agreement": found,
        "missing": missing,
        "settings": settings,
    }
    if out is not None:
        write_json(Path(out), assessed | {"assessed": used, "versions": versions()})
    return assessed


def _scored(
    people: Judgements,
    further: Mapping[str, AbstractMetric],
    scores: Sequence[MetricName],
    metrics: Metrics,
) -> Iterator[tuple[str, MetricResult]]:
    """Scores of each metric; metrics that may miss a photo come first."""
    several = [name for name, metric in further.items() if metric.min_captions > 1]
    if several:
        raise ValueError(
            f"extra_metrics.{several[0]} compares several captions of a photo, but people rated "
            "single captions; leave it out"
        )
    for metric in further.values():
        metric.check_ready()
    images = _images(people)
    references = images.references()
    captions = {str(number): one.caption for number, one in enumerate(people.captions)}
    for name in track([*further, *scores], description="metrics", transient=True):
        start = time.monotonic()
        if name in further:
            result = _further_scores(name, further[name], people, images)
        else:
            options = {"metrics": [name], "tokenizer": metrics.tokenizer}
            result = evaluate_captions(captions, references, **options)
        print(f"{name}: {time.monotonic() - start:.0f} s")
        yield name, result


def _further_scores(
    name: str, metric: AbstractMetric, people: Judgements, images: Roster
) -> MetricResult:
    groups = {str(number): [one.caption] for number, one in enumerate(people.captions)}
    none = MetricResult(
        corpus={}, per_image={number: {} for number in groups}, settings={"missing": {}}
    )
    try:
        return with_further(none, groups, images, extra={name: metric})
    except FileNotFoundError as error:
        if str(people.captions[0].photo.parent) not in str(error):
            raise
        remedy = "give the folder of the photos, such as data.photos=FOLDER"
        raise FileNotFoundError(f"{error}; {remedy}") from error


def _images(people: Judgements) -> Roster:
    """Make an image of each judged caption, with the photo and its references."""
    samples: list[Sample] = []
    for number, one in enumerate(people.captions):
        for text in one.references:
            row = len(samples)
            samples.append(
                Sample(
                    row=row,
                    sample_id=f"{number}#{row}",
                    image_id=str(number),
                    image_path=one.photo,
                    caption=text,
                )
            )
    return Roster(name=people.name, samples=tuple(samples))


def _columns(name: str, result: MetricResult, size: int) -> dict[str, list[float]]:
    """Scores by name in the captions' order; NaN for a caption without a score.

    Raises:
        ValueError: no metric gives scores of single captions.
    """
    rows = [result.per_image.get(str(number), {}) for number in range(size)]
    names = dict.fromkeys(score for row in rows for score in row)
    if not names and not result.missing:
        raise ValueError(
            f"{name} gives no scores of single captions (per_image), so it cannot be compared with "
            "people's ratings; leave it out"
        )
    return {score: [row.get(score, math.nan) for row in rows] for score in names}
