"""Standard caption metrics (BLEU, METEOR, ROUGE-L, CIDEr, SPICE) with pycocoevalcap's scores.

Scores are fractions as in pycocoevalcap; papers report a CIDEr-D of 0.53 as 53. BLEU,
METEOR, ROUGE-L and SPICE lie in [0, 1], CIDEr-D and CIDEr in [0, 10].

pycocoevalcap's ``CIDEr`` is CIDEr-D (Vedantam et al., 2015, section 6): clipped n-gram counts, a
Gaussian length penalty (sigma 6), a factor of 10 and no stemming. It is named CIDEr-D here;
``CIDEr`` is the metric of section 5. Document frequencies come from the references
passed, unless ``cider_statistics`` is given. Without it, CIDEr-D of a single image is 0, and
scores of different image sets are not comparable.

References are tokenized and counted once for all evaluations. METEOR and SPICE run
meanwhile in separate processes.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import logging
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, field
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, NamedTuple

from captioning.metrics.bleu import (
    BleuReferences,
    count_bleu,
    pooled_bleu,
    prepare_bleu,
    score_bleu,
)
from captioning.metrics.bootstrap import Bootstrap, Pooled, intervals, pooled_mean
from captioning.metrics.cider import CiderReferences, CiderStatistics
from captioning.metrics.java import JavaError, find_java, stop_java
from captioning.metrics.meteor import (
    count_meteor,
    measure_meteor,
    meteor_loaded,
    pooled_meteor,
    start_meteor,
)
from captioning.metrics.rouge import RougeReference, prepare_rouge, score_rouge
from captioning.metrics.spice import score_spice
from captioning.metrics.tokenizer import tokenize_ptb, tokenize_python

_LOGGER = logging.getLogger(__name__)
# Enough for validation and test of a run; the least recently used entry is dropped first.
MAX_CACHED = 2
_cached: OrderedDict[tuple[str, str], PreparedReferences] = OrderedDict()


class PreparedReferences:
    """Tokenized references of some images; each metric's form is computed on first use.

    Args:
        tokens: tokenized captions of each image, in the order of the images.
        statistics: document frequencies for CIDEr; None: those of the references.
    """

    def __init__(
        self, tokens: Sequence[list[str]], *, statistics: CiderStatistics | None = None
    ) -> None:
        self.tokens = tokens
        self._statistics = statistics

    @cached_property
    def bleu(self) -> list[BleuReferences]:
        """References with counted n-grams for BLEU."""
        return prepare_bleu(self.tokens)

    @cached_property
    def rouge(self) -> list[list[RougeReference]]:
        """References with indexed words for ROUGE-L."""
        return prepare_rouge(self.tokens)

    @cached_property
    def cider(self) -> CiderReferences:
        """References as tf-idf vectors for CIDEr.

        Raises:
            ValueError: every reference is empty.
        """
        return CiderReferences.prepare(self.tokens, self._statistics)

    def with_statistics(self, statistics: CiderStatistics) -> PreparedReferences:
        """Return the same references with other document frequencies."""
        return PreparedReferences(self.tokens, statistics=statistics)


def prepare(
    candidates: Sequence[str],
    references: Sequence[list[str]],
    *,
    tokenizer: str,
    timeout: float | None,
) -> tuple[list[str], PreparedReferences, dict[str, str]]:
    """Tokenize candidates and references; recently tokenized references are reused.

    Args:
        candidates: one raw caption per image.
        references: raw captions of the same images in the same order.
        tokenizer: ``"ptb"`` or ``"python"``; without Java, ``"ptb"`` falls back to ``"python"``.
        timeout: seconds before Java is killed.

    Returns:
        Tokenized candidates, prepared references, and the settings: the ``tokenizer`` used and
        ``tokenizer_reason`` if it differs from the requested one.
    """
    used = {"tokenizer": tokenizer}
    try:
        return *_tokenized(candidates, references, tokenizer, timeout), used
    except JavaError as error:
        used = {"tokenizer": "python", "tokenizer_reason": str(error)}
        warn_once(f"captions are tokenized in Python, because Java failed: {error}")
    return *_tokenized(candidates, references, "python", timeout), used


def _tokenized(
    candidates: Sequence[str],
    references: Sequence[list[str]],
    tokenizer: str,
    timeout: float | None,
) -> tuple[list[str], PreparedReferences]:
    key = (tokenizer, hashlib.sha256(json.dumps(list(references)).encode()).hexdigest())
    texts = list(candidates)
    if key not in _cached:
        texts += [text for captions in references for text in captions]
    tokens = (
        tokenize_python(texts) if tokenizer == "python" else tokenize_ptb(texts, timeout=timeout)
    )
    if key not in _cached:
        rest = iter(tokens[len(candidates) :])
        _cached[key] = PreparedReferences(
            [[next(rest) for _ in captions] for captions in references]
        )
        if len(_cached) > MAX_CACHED:
            _cached.popitem(last=False)
    _cached.move_to_end(key)
    return tokens[: len(candidates)], _cached[key]


@functools.cache
def warn_once(message: str) -> None:
    """Log each distinct warning only once."""
    _LOGGER.warning(message)


BLEU = ("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4")
MetricName = Literal["BLEU", "METEOR", "ROUGE-L", "CIDEr-D", "SPICE", "CIDEr"]
TokenizerName = Literal["ptb", "python"]
METRICS = ("BLEU", "METEOR", "ROUGE-L", "CIDEr-D", "SPICE")
FAST_METRICS = ("BLEU", "ROUGE-L", "CIDEr-D")
ALL_METRICS = (*METRICS, "CIDEr")
# Seconds to wait for METEOR's tables before other scores are computed.
MAX_LOADING_SECONDS = 15.0
# Metrics that Java computes in separate processes.
_JAVA_METRICS = ("METEOR", "SPICE")


class _Scores(NamedTuple):
    """Scores of one metric: corpus score, per-image scores, and METEOR's per-image statistics."""

    corpus: float
    per_image: Sequence[float]
    statistics: Sequence[str] = ()


_ScoresByName = dict[str, _Scores]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricResult:
    """Scores of one set of captions.

    Attributes:
        corpus: score of the whole set by metric name; failed metrics are absent.
        per_image: ``{image_id: {name: score}}``, images in the order of the candidates.
        settings: settings of the computation: ``tokenizer``, ``versions``, ``references_hash``,
            ``num_images``, ``num_empty_candidates``, ``num_without_candidate`` (images with
            without a candidate), ``cider_statistics`` if given, ``bootstrap`` if intervals
            were requested, and ``missing`` as ``{metric: reason}``.
        intervals: lower and upper bound of corpus scores by name, if requested.
    """

    corpus: dict[str, float]
    per_image: dict[str, dict[str, float]]
    settings: dict[str, Any]
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def missing(self) -> dict[str, str]:
        """Reasons why requested metrics are absent, by metric."""
        return self.settings["missing"]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as in ``metrics.json``."""
        values = asdict(self)
        return values if self.intervals else {k: v for k, v in values.items() if k != "intervals"}


def evaluate_captions(
    candidates: Mapping[str, str],
    references: Mapping[str, Sequence[str]],
    *,
    metrics: Sequence[MetricName] = METRICS,
    tokenizer: TokenizerName = "ptb",
    cider_statistics: CiderStatistics | None = None,
    bootstrap: Bootstrap | None = None,
    spice_folder: Path | None = None,
    timeout: float | None = None,
) -> MetricResult:
    """Score one caption per image against its references.

    References of images without a candidate are ignored, also in CIDEr-D's document
    frequencies: pass ``""`` for a missing caption to count it. Every metric scores an empty
    candidate 0.

    Args:
        candidates: raw caption of each image.
        references: captions of at least these images, raw text, any number each.
        metrics: some of `ALL_METRICS`; ``"BLEU"`` gives BLEU-1 to BLEU-4.
        tokenizer: ``"ptb"`` (Java, as in published scores) or ``"python"`` (no Java). Without
            Java, ``"ptb"`` falls back to ``"python"``; the settings record the tokenizer and why.
        cider_statistics: document frequencies of a corpus for CIDEr-D and CIDEr, counted on
            captions tokenized in the same way; None: those of the references.
        bootstrap: settings of confidence intervals by resampling images; None: no intervals.
            Each resample pools BLEU and METEOR again. CIDEr's document frequencies stay fixed,
            because they are part of the score's definition.
        spice_folder: folder of SPICE's jar files, see `captioning.metrics.spice`.
        timeout: seconds for each Java process; the default grows with the number of images.

    Returns:
        The scores; metrics that failed for lack of Java or jar files are in ``missing``.

    Raises:
        ValueError: no candidates, an unknown metric or tokenizer, an image without references.
        TypeError: an id or a caption is not a string.
    """
    _check_names(metrics, tokenizer)
    _check_captions(candidates, references)
    ids, refs = list(candidates), [list(references[image_id]) for image_id in candidates]
    with contextlib.suppress(JavaError):  # scoring says why
        if "METEOR" in metrics:
            start_meteor(len(ids))
    hypotheses, prepared, tokenized_by = prepare(
        list(candidates.values()), refs, tokenizer=tokenizer, timeout=timeout
    )
    settings_used: dict[str, Any] = dict(tokenized_by)
    if cider_statistics is not None:
        prepared = prepared.with_statistics(cider_statistics)
        settings_used["cider_statistics"] = cider_statistics.settings()
    java_scorers = {
        "METEOR": lambda: measure_meteor(hypotheses, prepared.tokens, timeout=timeout),
        "SPICE": lambda: score_spice(
            ids, hypotheses, prepared.tokens, folder=spice_folder, timeout=timeout
        ),
    }
    with ThreadPoolExecutor(len(_JAVA_METRICS)) as threads:
        futures: dict[str, Future[Any]] = {
            name: threads.submit(java_scorers[name]) for name in _JAVA_METRICS if name in metrics
        }
        try:
            scores, missing = _score_all(metrics, hypotheses, prepared, futures)
        except BaseException:  # leaving waits for the threads, and Ctrl-C must not wait for Java
            while wait(futures.values(), timeout=0.1).not_done:
                stop_java()  # again: some may only be starting
            raise
    settings = settings_used | _settings(ids, refs, hypotheses)
    settings |= {"num_without_candidate": len(references) - len(ids), "missing": missing}
    settings |= {"bootstrap": bootstrap.settings()} if bootstrap else {}
    ends = intervals(_pooled(scores, hypotheses, prepared), bootstrap) if bootstrap else {}
    return MetricResult(
        corpus={name: float(score.corpus) for name, score in scores.items()},
        per_image=_by_image(ids, {name: score.per_image for name, score in scores.items()}),
        settings=settings,
        intervals=ends,
    )


def _score_all(
    metrics: Sequence[str],
    candidates: Sequence[str],
    references: PreparedReferences,
    futures: Mapping[str, Future[Any]],
) -> tuple[_ScoresByName, dict[str, str]]:
    """Return scores per metric, with images in the given order, and reasons of failures."""
    if "METEOR" in futures:
        _wait_for_tables(futures["METEOR"])
    results = {
        name: _score(name, candidates, references) for name in metrics if name not in futures
    }
    missing: dict[str, str] = {}
    for name, future in futures.items():
        try:
            results[name] = {name: _Scores(*future.result())}
        except JavaError as error:
            missing[name] = str(error)
            warn_once(f"{name} is skipped: {error}")
    scores_by_name = {
        name: score for metric in metrics for name, score in results.get(metric, {}).items()
    }
    return scores_by_name, missing


def _pooled(
    scores: _ScoresByName, candidates: Sequence[str], references: PreparedReferences
) -> list[Pooled]:
    """Return the sums each corpus score derives from: BLEU and METEOR are not means."""
    parts = []
    if BLEU[0] in scores:
        counts = count_bleu(candidates, references.bleu)
        parts.append(Pooled(names=BLEU, statistics=counts, pool=pooled_bleu))
    if "METEOR" in scores:
        counts = count_meteor(scores["METEOR"].statistics)
        parts.append(Pooled(names=("METEOR",), statistics=counts, pool=pooled_meteor))
    means = (name for name in scores if name not in (*BLEU, "METEOR"))
    return parts + [pooled_mean(name, scores[name].per_image) for name in means]


def _wait_for_tables(meteor: Future[Any]) -> None:
    """Leave the CPU to METEOR while it loads, because its scores arrive last.

    The other metrics take less time than METEOR then needs for the same captions.
    """
    end = time.monotonic() + MAX_LOADING_SECONDS
    while not (meteor.done() or meteor_loaded()) and time.monotonic() < end:
        wait([meteor], timeout=0.05)


def _by_image(
    image_ids: Sequence[str], columns: Mapping[str, Sequence[float]]
) -> dict[str, dict[str, float]]:
    return {
        image_id: {name: float(scores[row]) for name, scores in columns.items()}
        for row, image_id in enumerate(image_ids)
    }


def _settings(
    image_ids: Sequence[str], references: Sequence[list[str]], candidates: Sequence[str]
) -> dict[str, Any]:
    return {
        "versions": _versions(),
        "references_hash": hash_references(image_ids, references),
        "num_images": len(candidates),
        "num_empty_candidates": sum(not candidate for candidate in candidates),
    }


def _score(metric: str, candidates: Sequence[str], references: PreparedReferences) -> _ScoresByName:
    """Return corpus and per-image scores of one metric by reported name."""
    if metric == "BLEU":
        corpus, per_image = score_bleu(candidates, references.bleu)
        return dict(zip(BLEU, map(_Scores, corpus, per_image), strict=True))
    if metric == "ROUGE-L":
        return {metric: _Scores(*score_rouge(candidates, references.rouge))}
    scores = references.cider.score(candidates, variant=metric)
    return {metric: _Scores(float(scores.mean()), scores.tolist())}


def scores_of(metric: MetricName) -> tuple[str, ...]:
    """Return the names of a metric's corpus scores."""
    return BLEU if metric == "BLEU" else (metric,)


def hash_references(image_ids: Sequence[str], references: Sequence[Sequence[str]]) -> str:
    """Return the references' SHA-256 (16 hex digits), independent of the order of images."""
    digest = hashlib.sha256()
    for pair in sorted(zip(image_ids, map(list, references), strict=True)):
        digest.update(json.dumps(pair).encode() + b"\n")
    return digest.hexdigest()[:16]


def _check_names(metrics: Sequence[str], tokenizer: str) -> None:
    if isinstance(metrics, str):
        raise TypeError(f"metrics must be a list of names: got the string {metrics!r}")
    unknown = [name for name in metrics if name not in ALL_METRICS]
    if unknown or not metrics:
        raise ValueError(f"metrics must be some of {ALL_METRICS}: got {list(metrics)}")
    if tokenizer not in ("ptb", "python"):
        raise ValueError(f"tokenizer must be 'ptb' or 'python': got {tokenizer!r}")


def _check_captions(candidates: Mapping[str, str], references: Mapping[str, Sequence[str]]) -> None:
    if not candidates:
        raise ValueError("candidates must hold at least one caption: got none")
    for image_id, caption in candidates.items():
        if not isinstance(image_id, str) or not isinstance(caption, str):
            raise TypeError(f"image {image_id!r}: id and caption must be strings: got {caption!r}")
    unknown = [image_id for image_id in candidates if image_id not in references]
    if unknown:
        raise ValueError(
            f"{len(unknown)} candidates have images without references, such as "
            f"{unknown[0]!r}; "
            "do they belong to another dataset or split?"
        )
    for image_id in candidates:
        captions = references[image_id]
        if isinstance(captions, str) or not captions:
            raise ValueError(f"references of image {image_id!r} must be a list of captions")
        if not all(isinstance(caption, str) for caption in captions):
            raise TypeError(f"references of image {image_id!r} must be strings: got {captions!r}")


def _versions() -> dict[str, str | None]:
    try:
        java: str | None = find_java()[1]
    except JavaError:
        java = None
    return {"pycocoevalcap": version("pycocoevalcap"), "java": java}
