"""Caption scores as the field reports them: pycocoevalcap's scorers behind one function.

Scores are fractions as pycocoevalcap prints them: a CIDEr-D of 0.53 is what papers print as 53.
BLEU, METEOR, ROUGE-L and SPICE lie in [0, 1], CIDEr-D in [0, 10].

What pycocoevalcap calls ``CIDEr`` is CIDEr-D (Vedantam et al., 2015, section 6): clipped n-gram
counts, a Gaussian penalty on the length difference (sigma 6) and a factor of 10, without stemming;
so it is named here. Document frequencies come from the references given, so CIDEr-D of one image
alone is 0 and scores of different image sets are not comparable.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.rouge.rouge import Rouge

from captioning.metrics.java import JavaError, find_java
from captioning.metrics.meteor import score_meteor
from captioning.metrics.spice import score_spice
from captioning.metrics.tokenizer import tokenize_ptb, tokenize_python

BLEU = ("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4")
METRICS = ("BLEU", "METEOR", "ROUGE-L", "CIDEr-D", "SPICE")
FAST_METRICS = ("BLEU", "ROUGE-L", "CIDEr-D")
_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricResult:
    """Scores of one set of captions.

    Attributes:
        corpus: score of the whole set by metric name; what could not be computed is absent.
        per_image: ``{image_id: {name: score}}``, images in the order of the candidates.
        settings: how they were computed: ``tokenizer``, ``versions``, ``references_hash``,
            ``num_images``, ``num_empty_candidates``, and ``missing`` as ``{metric: reason}``.
    """

    corpus: dict[str, float]
    per_image: dict[str, dict[str, float]]
    settings: dict[str, Any]

    @property
    def missing(self) -> dict[str, str]:
        """Reasons of the metrics that were asked for and could not be computed."""
        return self.settings["missing"]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as ``metrics.json`` holds them."""
        return asdict(self)


def evaluate_captions(
    candidates: Mapping[str, str],
    references: Mapping[str, Sequence[str]],
    *,
    metrics: Sequence[str] = METRICS,
    tokenizer: str = "ptb",
    spice_folder: Path | None = None,
    timeout: float | None = None,
) -> MetricResult:
    """Score one caption an image against its references.

    References of images without a candidate are ignored (they take no part in CIDEr-D's document
    frequencies either): who wants missing captions to count gives them as ``""``. An empty
    candidate is scored as the empty string, which every metric scores 0.

    Args:
        candidates: caption of each image, raw text.
        references: captions of at least these images, raw text, any number each.
        metrics: some of `METRICS`; ``"BLEU"`` gives BLEU-1 to BLEU-4.
        tokenizer: ``"ptb"`` (Java, what published scores use) or ``"python"`` (no Java). Without
            Java ``"ptb"`` falls back on ``"python"``; the settings say which was used and why.
        spice_folder: where SPICE's jars are, see `captioning.metrics.spice`.
        timeout: seconds for each Java process; a generous share per image by default.

    Returns:
        The scores; a metric that Java or its jars kept from being computed is in ``missing``.

    Raises:
        ValueError: no candidates, an unknown metric or tokenizer, an image without references.
        TypeError: an id or a caption that is not text.
    """
    _check_names(metrics, tokenizer)
    _check_captions(candidates, references)
    refs = [list(references[image_id]) for image_id in candidates]
    hypotheses, tokens, used = _tokenize(list(candidates.values()), refs, tokenizer, timeout)
    ids = list(candidates)
    corpus, columns, missing = _score_all(metrics, ids, hypotheses, tokens, spice_folder, timeout)
    settings = used | _settings(ids, refs, hypotheses) | {"missing": missing}
    return MetricResult(corpus=corpus, per_image=_by_image(ids, columns), settings=settings)


def _score_all(
    metrics: Sequence[str], *arguments: Any
) -> tuple[dict[str, float], dict[str, Sequence[float]], dict[str, str]]:
    """Corpus scores, per-image scores in the order of the images, and why others are missing."""
    missing: dict[str, str] = {}
    corpus: dict[str, float] = {}
    columns: dict[str, Sequence[float]] = {}
    for metric in metrics:
        try:
            found = _score(metric, *arguments)
        except JavaError as error:
            missing[metric] = str(error)
            _warn_once(f"{metric} is left out: {error}")
            continue
        for name, (score, scores) in found.items():
            corpus[name], columns[name] = float(score), scores
    return corpus, columns, missing


def _by_image(
    image_ids: Sequence[str], columns: Mapping[str, Sequence[float]]
) -> dict[str, dict[str, float]]:
    return {
        image_id: {name: float(scores[row]) for name, scores in columns.items()}
        for row, image_id in enumerate(image_ids)
    }


def _settings(
    image_ids: Sequence[str], references: Sequence[Sequence[str]], candidates: Sequence[str]
) -> dict[str, Any]:
    return {
        "versions": _versions(),
        "references_hash": hash_references(image_ids, references),
        "num_images": len(image_ids),
        "num_empty_candidates": sum(not candidate for candidate in candidates),
    }


def _score(
    metric: str,
    image_ids: Sequence[str],
    candidates: Sequence[str],
    references: Sequence[list[str]],
    folder: Path | None,
    timeout: float | None,
) -> dict[str, tuple[float, Sequence[float]]]:
    """Corpus and per-image scores of one metric by reported name, images in the order given."""
    if metric == "METEOR":
        return {metric: score_meteor(candidates, references, timeout=timeout)}
    if metric == "SPICE":
        found = score_spice(image_ids, candidates, references, folder=folder, timeout=timeout)
        return {metric: found}
    # integer keys in order: these scorers return lists in the order of their dictionaries
    gts = dict(enumerate(references))
    res = {row: [candidate] for row, candidate in enumerate(candidates)}
    if metric == "BLEU":
        corpus, per_image = Bleu(4).compute_score(gts, res, verbose=0)
        return dict(zip(BLEU, zip(corpus, per_image, strict=True), strict=True))
    if metric == "CIDEr-D" and not any(ref.strip() for refs in references for ref in refs):
        raise ValueError("CIDEr-D: every reference is empty after tokenization")
    scorer = Rouge() if metric == "ROUGE-L" else Cider()
    return {metric: scorer.compute_score(gts, res)}


def _tokenize(
    candidates: list[str], references: list[list[str]], tokenizer: str, timeout: float | None
) -> tuple[list[str], list[list[str]], dict[str, str]]:
    """Tokenized candidates and references, and what was used, for the settings."""
    texts = candidates + [text for refs in references for text in refs]
    used = {"tokenizer": tokenizer}
    if tokenizer == "ptb":
        try:
            tokens = tokenize_ptb(texts, timeout=timeout)
        except JavaError as error:
            used = {"tokenizer": "python", "tokenizer_reason": str(error)}
            _warn_once(f"captions are tokenized in Python instead of Java: {error}")
    if used["tokenizer"] == "python":
        tokens = tokenize_python(texts)
    rest = iter(tokens[len(candidates) :])
    return tokens[: len(candidates)], [[next(rest) for _ in refs] for refs in references], used


def hash_references(image_ids: Sequence[str], references: Sequence[Sequence[str]]) -> str:
    """SHA-256 (16 hex digits) of the references, whatever the order of the images."""
    digest = hashlib.sha256()
    for pair in sorted(zip(image_ids, map(list, references), strict=True)):
        digest.update(json.dumps(pair).encode() + b"\n")
    return digest.hexdigest()[:16]


def _check_names(metrics: Sequence[str], tokenizer: str) -> None:
    if isinstance(metrics, str):
        raise TypeError(f"metrics must be a list of names: got the text {metrics!r}")
    unknown = [name for name in metrics if name not in METRICS]
    if unknown or not metrics:
        raise ValueError(f"metrics must be some of {METRICS}: got {list(metrics)}")
    if tokenizer not in ("ptb", "python"):
        raise ValueError(f"tokenizer must be 'ptb' or 'python': got {tokenizer!r}")


def _check_captions(candidates: Mapping[str, str], references: Mapping[str, Sequence[str]]) -> None:
    if not candidates:
        raise ValueError("no candidates: there is nothing to score")
    for image_id, caption in candidates.items():
        if not isinstance(image_id, str) or not isinstance(caption, str):
            raise TypeError(f"image {image_id!r}: id and caption must be text: got {caption!r}")
    unknown = [image_id for image_id in candidates if image_id not in references]
    if unknown:
        raise ValueError(
            f"{len(unknown)} candidates are of images without references, such as {unknown[0]!r}; "
            "are they of another data set or split?"
        )
    for image_id in candidates:
        captions = references[image_id]
        if isinstance(captions, str) or not captions:
            raise ValueError(f"references of image {image_id!r} must be a list of captions")
        if not all(isinstance(caption, str) for caption in captions):
            raise TypeError(f"references of image {image_id!r} must be text: got {captions!r}")


def _versions() -> dict[str, str | None]:
    try:
        java: str | None = find_java()[1]
    except JavaError:
        java = None
    return {"pycocoevalcap": version("pycocoevalcap"), "java": java}


@functools.cache
def _warn_once(message: str) -> None:
    _LOGGER.warning(message)
