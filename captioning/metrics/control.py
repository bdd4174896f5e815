"""Metrics of controllable captioning, as in the tables of CIC-BART-SSA.

A control signal requests a caption by boxes and nouns of the entities of interest, and by a
length. Metrics (Basioti et al., 2024, section 5.2 and appendix C.1; means over captions unless
noted):

- ``IoU``, ``Hal``, ``missing``: agreement of mentioned and requested nouns, `noun_overlap`.
- ``L``: mean absolute difference between actual and requested number of words.
- ``LP``: share of captions whose number of words is in the requested level.
- ``G``: well-formedness, `well_formedness`; replaces the papers' GRUEN, which needs BERT and an
  acceptability model.
- ``GRUEN``: the papers' G by its authors' recipe, `gruen`.
- ``sC``, ``D-1``, ``D-2``: self-CIDEr, Div-1 and Div-2 of an image's captions, averaged over images
  with at least five captions (first five), or with exactly five.
- ``H``, ``H (GRUEN)``: harmonic mean of ``IoU``, ``G`` (or ``GRUEN``) and ``sC``.

All but ``L`` are fractions in [0, 1]. A score that cannot be computed is absent; ``missing`` gives
the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from statistics import fmean
from typing import Any

import numpy as np

from captioning.interfaces import AbstractParser, AbstractWordVectors
from captioning.metrics.best_sets import best_of
from captioning.metrics.cider import CiderStatistics
from captioning.metrics.diversity import evaluate_diversity
from captioning.metrics.noun_overlap import find_nouns, score_nouns
from captioning.metrics.well_formedness import AbstractWellFormedness
from captioning.text.lengths import LEVEL_STARTS, count_pieces, count_words, length_level

GROUP_SIZE = 5
DIVERSITY = {"sC": "self-CIDEr", "D-1": "Div-1", "D-2": "Div-2"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlledCaption:
    """A caption with the control signal that requested it.

    Attributes:
        sample_id: unique id.
        image_id: id shared by the captions of one image.
        caption: raw text; may be empty.
        nouns: names of the entities of interest; None if the signal has none.
        num_words: requested number of words, or None.
        full_stops_count: count every text between blanks in ``num_words`` and in the caption, so
            a lone full stop is a word. If set for all captions, ``D-1`` and ``D-2`` use the same
            words, as in the authors' code.
        level: requested level, 1 (A) to 5 (E); default: the level of ``num_words``.
        coverage: share of the image covered by the boxes of interest, in [0, 1], or None.
    """

    sample_id: str
    image_id: str
    caption: str
    nouns: tuple[str, ...] | None = None
    num_words: int | None = None
    full_stops_count: bool = False
    level: int | None = None
    coverage: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverageBand:
    """Mean scores of captions whose control signals cover a similar share of their images.

    Attributes:
        low, high: coverage in [low, high), the last band in [low, high].
        num_captions: number of captions in the band.
        share: share of the captions with known coverage that are in the band, in [0, 1].
        means: mean of each score; empty for a band without captions.
    """

    low: float
    high: float
    num_captions: int
    share: float
    means: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlScores:
    """Scores of a set of controlled captions.

    Attributes:
        corpus: scores of the set by name; scores that could not be computed are absent.
        per_caption: scores by sample id, in the given order.
        per_image: ``sC``, ``D-1`` and ``D-2`` of the images that were measured.
        bands: see `coverage_bands`; empty if no coverage is known.
        settings: settings of the computation, numbers of captions, and ``missing`` by score name.
    """

    corpus: dict[str, float]
    per_caption: dict[str, dict[str, float]]
    per_image: dict[str, dict[str, float]]
    bands: tuple[CoverageBand, ...]
    settings: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)


def length_errors(lengths: Sequence[int], num_words: Sequence[int]) -> list[int]:
    """Return the absolute difference in words of each caption; its mean is L."""
    return [abs(length - wanted) for length, wanted in zip(lengths, num_words, strict=True)]


def length_hits(lengths: Sequence[int], levels: Sequence[int]) -> list[bool]:
    """Whether each caption has the requested length level; the share of hits is LP."""
    return [length_level(length) == level for length, level in zip(lengths, levels, strict=True)]


def harmonic_mean(values: Sequence[float]) -> float:
    """Return ``n / Σ 1/x``; 0 if a value is 0.

    Raises:
        ValueError: no values, or a negative or non-finite value.
    """
    if not values or not all(0 <= value < float("inf") for value in values):
        raise ValueError(f"values must be one or more finite numbers from 0: got {list(values)}")
    return len(values) / sum(1 / value for value in values) if all(values) else 0.0


def box_coverage(
    boxes: Sequence[tuple[float, float, float, float]], *, width: float, height: float
) -> float:
    """Return the share of an image covered by the union of boxes, in [0, 1].

    Leave out the box of the whole image, which a model may receive besides the boxes of interest.

    Args:
        boxes: ``(x1, y1, x2, y2)`` in the unit of ``width`` and ``height``; areas outside the image
            are ignored.
        width, height: size of the image.

    Raises:
        ValueError: width or height is not positive.
    """
    if not (width > 0 and height > 0):
        raise ValueError(f"width and height must be above 0: got {width} and {height}")
    if not boxes:
        return 0.0
    corners = np.clip(np.asarray(boxes, dtype=np.float64), 0, [width, height, width, height])
    xs, ys = np.unique(corners[:, [0, 2]]), np.unique(corners[:, [1, 3]])
    covered = np.zeros((len(xs) - 1, len(ys) - 1), dtype=bool)  # cells between the boxes' edges
    for x1, y1, x2, y2 in corners:
        covered |= np.outer((xs[:-1] >= x1) & (xs[1:] <= x2), (ys[:-1] >= y1) & (ys[1:] <= y2))
    area = np.diff(xs) @ covered @ np.diff(ys)
    return float(min(1.0, area / (width * height)))


def coverage_bands(
    coverages: Sequence[float], columns: Mapping[str, Sequence[float]], *, num_bands: int = 10
) -> tuple[CoverageBand, ...]:
    """Average scores by coverage, as in figures 4, 12 and 13.

    Args:
        coverages: coverage of each caption's signal, in [0, 1].
        columns: score of each caption by name.
        num_bands: number of bands of equal width.

    Raises:
        ValueError: a coverage outside [0, 1], or a column of the wrong length.
    """
    values = np.asarray(coverages, dtype=np.float64)
    if not ((values >= 0) & (values <= 1)).all():
        raise ValueError(f"coverages must lie in [0, 1]: got {values.min()} to {values.max()}")
    if any(len(column) != len(values) for column in columns.values()):
        raise ValueError(f"every column must have a score for each of {len(values)} coverages")
    edges = np.arange(num_bands + 1) / num_bands
    # compare with the band edges: .3 * 10 is slightly less than 3
    numbers = np.minimum(np.searchsorted(edges, values, side="right") - 1, num_bands - 1)
    bands = []
    for number, (low, high) in enumerate(pairwise(edges.tolist())):
        inside = numbers == number
        count = int(inside.sum())
        means = {k: float(np.asarray(v)[inside].mean()) for k, v in columns.items() if count}
        share = count / len(values) if count else 0.0
        band = CoverageBand(low=low, high=high, num_captions=count, share=share, means=means)
        bands.append(band)
    return tuple(bands)


def score_control(
    samples: Sequence[ControlledCaption],
    *,
    parser: AbstractParser | None = None,
    vectors: AbstractWordVectors | None = None,
    well_formedness: AbstractWellFormedness | None = None,
    gruen: AbstractWellFormedness | None = None,
    statistics: CiderStatistics | None = None,
    exactly_five: bool = False,
    lemmas: bool = False,
    num_bands: int = 10,
) -> ControlScores:
    """Compute all scores of controlled captions; see the module.

    Each score uses the captions that have the data it needs: a caption without requested nouns
    is ignored for ``IoU``, one without a length for ``L``. A score is missing if no caption has
    the data, or if its tool is not passed. Means are over captions, never over batches, so the
    order does not matter.

    Args:
        samples: captions with their control signals.
        parser: parser that finds the nouns of captions.
        vectors: word vectors for the similarity of nouns.
        well_formedness: scorer of ``G``.
        gruen: scorer of ``GRUEN``, such as `captioning.metrics.gruen.Gruen`; None: not requested.
        statistics: document frequencies for self-CIDEr, such as those of the training captions.
        exactly_five: compute diversity only for images with exactly five captions, as in the
            paper; otherwise for the first five of images with at least five.
        lemmas, num_bands: see `find_nouns` and `coverage_bands`.

    Raises:
        TypeError: a caption is not a string.
        ValueError: no captions, a repeated sample id, or an impossible request.
    """
    _check(samples)
    missing: dict[str, str] = {}
    settings: dict[str, Any] = {
        "num_captions": len(samples),
        "num_empty": sum(not sample.caption.strip() for sample in samples),
        "lemmas": lemmas,
    }
    columns = _noun_columns(samples, parser, vectors, lemmas, settings, missing)
    columns |= _length_columns(samples, missing)
    if well_formedness is None:
        missing["G"] = "no language model was passed"
    for name, scorer in (("G", well_formedness), ("GRUEN", gruen)):
        if scorer is not None:
            settings["well_formedness" if name == "G" else "gruen"] = scorer.settings()
            scored = scorer.score([sample.caption for sample in samples])
            ids = (sample.sample_id for sample in samples)
            columns[name] = {i: score.total for i, score in zip(ids, scored, strict=True)}
    corpus = {name: fmean(column.values()) for name, column in columns.items()}
    per_image = _diversity(samples, statistics, exactly_five, settings, missing)
    for name in DIVERSITY if per_image else ():
        corpus[name] = fmean(scores[name] for scores in per_image.values())
    _add_harmonic_means(corpus, missing, with_gruen=gruen is not None)
    return ControlScores(
        corpus=corpus,
        per_caption={
            sample.sample_id: {
                name: column[sample.sample_id]
                for name, column in columns.items()
                if sample.sample_id in column
            }
            for sample in samples
        },
        per_image=per_image,
        bands=_bands(samples, columns, num_bands),
        settings=settings | {"missing": missing},
    )


def _add_harmonic_means(
    corpus: dict[str, float], missing: dict[str, str], *, with_gruen: bool
) -> None:
    quality = {"H": "G"} | ({"H (GRUEN)": "GRUEN"} if with_gruen else {})
    for name, well_formed in quality.items():
        parts = ("IoU", well_formed, "sC")
        if unavailable := [part for part in parts if part not in corpus]:
            missing[name] = f"needs {', '.join(unavailable)}"
        else:
            corpus[name] = harmonic_mean([corpus[part] for part in parts])


def _check(samples: Sequence[ControlledCaption]) -> None:
    if not samples:
        raise ValueError("samples must hold at least one caption: got none")
    seen: set[str] = set()
    for sample in samples:
        place = f"sample {sample.sample_id!r}"
        if not isinstance(sample.caption, str):
            raise TypeError(f"{place}: caption must be a string: got {sample.caption!r}")
        if sample.sample_id in seen:
            raise ValueError(f"{place} occurs twice; give every caption its own id")
        seen.add(sample.sample_id)
        if sample.num_words is not None and sample.num_words < 1:
            raise ValueError(f"{place}: num_words must be at least 1: got {sample.num_words}")
        if sample.level is not None and not 1 <= sample.level <= len(LEVEL_STARTS):
            raise ValueError(f"{place}: level must be 1 to {len(LEVEL_STARTS)}: got {sample.level}")


def _noun_columns(
    samples: Sequence[ControlledCaption],
    parser: AbstractParser | None,
    vectors: AbstractWordVectors | None,
    lemmas: bool,
    settings: dict[str, Any],
    missing: dict[str, str],
) -> dict[str, dict[str, float]]:
    samples_with_nouns = [sample for sample in samples if sample.nouns is not None]
    if parser is None or vectors is None or not samples_with_nouns:
        reason = (
            "no parser and word vectors were passed"
            if samples_with_nouns
            else "no nouns are requested"
        )
        missing |= dict.fromkeys(("IoU", "Hal", "missing"), reason)
        return {}
    parses = parser.parse([sample.caption for sample in samples_with_nouns])
    nouns = [find_nouns(parse, lemmas=lemmas) for parse in parses]
    scores = score_nouns(nouns, [sample.nouns or () for sample in samples_with_nouns], vectors)
    settings |= {
        "parser": parser.name,
        "word_vectors": vectors.name,
        "num_with_nouns": len(samples_with_nouns),
        "unknown_nouns": list(scores.unknown),
    }
    named = {"IoU": scores.iou, "Hal": scores.hallucination, "missing": scores.missing}
    ids = [sample.sample_id for sample in samples_with_nouns]
    return {k: dict(zip(ids, v.tolist(), strict=True)) for k, v in named.items()}


def _length_columns(
    samples: Sequence[ControlledCaption], missing: dict[str, str]
) -> dict[str, dict[str, float]]:
    exact = {sample.sample_id: sample for sample in samples if sample.num_words is not None}
    levels = {
        sample.sample_id: length_level(sample.num_words or 0)
        if sample.level is None
        else sample.level
        for sample in samples
        if sample.level is not None or sample.num_words is not None
    }
    lengths = {sample.sample_id: _length(sample) for sample in samples}
    columns: dict[str, dict[str, float]] = {}
    if exact:
        num_words = [sample.num_words or 0 for sample in exact.values()]
        errors = length_errors([lengths[i] for i in exact], num_words)
        columns["L"] = dict(zip(exact, map(float, errors), strict=True))
    else:
        missing["L"] = "no number of words is requested"
    if levels:
        hits = length_hits([lengths[i] for i in levels], list(levels.values()))
        columns["LP"] = dict(zip(levels, map(float, hits), strict=True))
    else:
        missing["LP"] = "no length is requested"
    return columns


def _length(sample: ControlledCaption) -> int:
    return (count_pieces if sample.full_stops_count else count_words)(sample.caption)


def _diversity(
    samples: Sequence[ControlledCaption],
    statistics: CiderStatistics | None,
    exactly_five: bool,
    settings: dict[str, Any],
    missing: dict[str, str],
) -> dict[str, dict[str, float]]:
    groups: dict[str, list[str]] = {}
    for sample in samples:
        groups.setdefault(sample.image_id, []).append(sample.caption)
    most = GROUP_SIZE if exactly_five else len(samples)
    groups = {i: g[:GROUP_SIZE] for i, g in groups.items() if GROUP_SIZE <= len(g) <= most}
    if statistics is None or not groups:
        too_few = f"no image has {'exactly ' if exactly_five else ''}{GROUP_SIZE} captions"
        reason = "no document frequencies were passed" if groups else too_few
        missing |= dict.fromkeys(DIVERSITY, reason)
        return {}
    result = evaluate_diversity(groups, statistics=statistics)
    settings["diversity"] = {k: v for k, v in result.settings.items() if k != "missing"}
    settings["diversity"]["exactly_five"] = exactly_five
    per_image = result.per_image
    if all(sample.full_stops_count for sample in samples):
        settings["diversity"]["words_of_ngrams"] = "between blanks"
        pieces = {i: [caption.split() for caption in group] for i, group in groups.items()}
        per_image = {i: per_image[i] | best_of(words, GROUP_SIZE) for i, words in pieces.items()}
    return {
        image_id: {name: scores[metric] for name, metric in DIVERSITY.items()}
        for image_id, scores in per_image.items()
    }


def _bands(
    samples: Sequence[ControlledCaption], columns: Mapping[str, Mapping[str, float]], num_bands: int
) -> tuple[CoverageBand, ...]:
    """Average, by band, the scores that all captions with known coverage have."""
    with_coverage = {sample.sample_id: sample for sample in samples if sample.coverage is not None}
    complete = {k: v for k, v in columns.items() if all(i in v for i in with_coverage)}
    scores = {name: [column[i] for i in with_coverage] for name, column in complete.items()}
    coverages = [sample.coverage or 0.0 for sample in with_coverage.values()]
    return coverage_bands(coverages, scores, num_bands=num_bands) if with_coverage else ()
