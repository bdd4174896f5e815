"""Captions with a word that another word of its row would fit better."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from annotated_types import Ge
from torch import Tensor

from captioning.ranges import ArgumentsOf, Seed
from captioning.text.cross_fitted_words import CrossFittedWords, deal_folds
from captioning.text.expected_words import PhotoFeatures
from captioning.text.judged_words import JudgedWords, kept_judgement, log_odds
from captioning.text.masked_words import MaskedWords, WordTraining
from captioning.text.open_words import OPEN_TOPICS, with_open_rows
from captioning.text.row_tables import RowTable, WordRow, joined
from captioning.text.word_rows import NEGATION, TOPICS, closed_rows, negation_rows, word_at
from captioning.types import Sample
from curation.base import AbstractWordScore, Context, WordDoubt, highest
from curation.score.words.calibration import MIN_WORDS, Calibration, calibrate

Features = Callable[[Sequence[Path]], PhotoFeatures]
_VALUES = {"probability": "probability of a wrong word", "log_odds": "log-odds of another word"}


class Words(AbstractWordScore):
    """The probability of the word that is most surely wrong, or the largest log-odds.

    The networks are trained once, on the roster as the annotations have it, and judge the captions
    as they stand now; each photo is judged by a network that saw other photos only. The row of a
    word and its rivals are those of `captioning.text.word_rows`.

    Args:
        siblings: whether the words of the photo's other captions are read.
        photos: features of photos, or None: photos are not looked at.
        vocabulary: ``"rows"`` judges words of the closed rows; ``"open"`` also the captions' other
            nouns, verbs and adjectives, which needs the parser.
        topics: of the words that are judged; None for all. They are
            `captioning.text.word_rows.TOPICS`, `NEGATION` if it is named, and with an open
            vocabulary `captioning.text.open_words.OPEN_TOPICS`.
        value: the score of a caption is the highest ``"probability"`` of a word to be wrong, or its
            highest ``"log_odds"`` in nats, by which easy topics and hard ones do not compare.
        num_folds: number of folds.
        network: further arguments of `captioning.text.masked_words.MaskedWords`.
        training: of each network.
        cache_folder: keeps what the networks say of these very captions, so that a run with another
            threshold trains none; None: it is not kept.
        seed: of folds and training.
        progress: called with the share of the training that is done.

    Raises:
        ValueError: fewer than 2 folds, an unknown topic or value.
    """

    def __init__(
        self,
        *,
        siblings: bool = True,
        photos: Features | None = None,
        vocabulary: Literal["rows", "open"] = "rows",
        topics: Sequence[str] | None = None,
        value: Literal["probability", "log_odds"] = "probability",
        num_folds: Annotated[int, Ge(2)] = 3,
        network: Annotated[Mapping[str, Any], ArgumentsOf(MaskedWords)] | None = None,
        training: Annotated[Mapping[str, Any], ArgumentsOf(WordTraining)] | None = None,
        cache_folder: str | Path | None = None,
        seed: Seed = 0,
        progress: Callable[[float], None] | None = None,
    ) -> None:
        if num_folds < 2:
            raise ValueError(f"num_folds must be at least 2: got {num_folds}")
        if vocabulary not in ("rows", "open"):
            raise ValueError(f"vocabulary must be 'rows' or 'open': got {vocabulary!r}")
        all_topics = (*TOPICS, *(OPEN_TOPICS if vocabulary == "open" else ()))
        unknown = sorted(set(topics or ()) - {*all_topics, NEGATION})
        if unknown:
            hint = " with vocabulary: open" if unknown[0] in OPEN_TOPICS else ""
            allowed = (*all_topics, NEGATION)
            raise ValueError(f"topics must be of {allowed}: got {unknown[0]!r}{hint}")
        if value not in _VALUES:
            raise ValueError(f"value must be of {tuple(_VALUES)}: got {value!r}")
        self._photos, self.num_folds, self.seed = photos, num_folds, seed
        self.value = value
        self._cache_folder = None if cache_folder is None else Path(cache_folder)
        self.vocabulary = vocabulary
        self.topics = frozenset(all_topics if topics is None else topics)
        self.network = {"siblings": siblings, **(network or {})}
        self.training = WordTraining(**(training or {}))
        self._progress = progress
        evidence = ["text", *(["siblings"] if siblings else []), *(["photo"] if photos else [])]
        self.name = f"{_VALUES[value]} ({', '.join(evidence)})"
        self._table: tuple[str, RowTable] | None = None
        self._trained: tuple[Any, CrossFittedWords] | None = None
        self._last: tuple[Any, list[WordDoubt]] | None = None

    @property
    def opens_photos(self) -> bool:
        """Where photos are looked at and their features are not there yet."""
        return self._photos is not None

    @property
    def counted_value(self) -> str:
        """As chosen by ``value``."""
        return self.value

    def scores(self, context: Context) -> Tensor:
        """NaN for samples that are not live or have no word of a row."""
        return highest(self.doubts(context), len(context.view.roster), value=self.value)

    def doubts(self, context: Context) -> list[WordDoubt]:
        """All words of a row in the live captions.

        Raises:
            ValueError: fewer images than folds.
        """
        samples = list(context.live.values())
        key = (context.view.roster.fingerprint, tuple((s.caption, s.image_path) for s in samples))
        if self._last is None or self._last[0] != key:
            self._last = (key, self._doubts(context, samples))
        return self._last[1]

    def _doubts(self, context: Context, samples: Sequence[Sample]) -> list[WordDoubt]:
        table = self._rows_of(context)
        judged = self._judge(context, samples, table)
        odds, best = log_odds(judged.log_probs, judged.meanings)
        probabilities = calibrated(judged, odds, table.rows)
        doubts = []
        for number in range(len(odds)):
            row = table.rows[judged.rows[number]]
            if row.topic not in self.topics:
                continue
            sample = samples[judged.captions[number]]
            start = int(judged.starts[number])
            doubts.append(
                WordDoubt(
                    row=sample.row,
                    start=start,
                    word=word_at(sample.caption, start),
                    alternative=row.meanings[best[number]][0],
                    log_odds=float(odds[number]),
                    probability=float(probabilities[number]),
                    topic=row.topic,
                )
            )
        return doubts

    def _rows_of(self, context: Context) -> RowTable:
        """Rows of the words that are judged, of captions as the annotations have them."""
        roster = context.view.roster
        more = [negation_rows()] if NEGATION in self.topics else []
        if self.vocabulary != "open":
            return joined([closed_rows(), *more]) if more else closed_rows()
        if self._table is None or self._table[0] != roster.fingerprint:
            data = _numbered(roster.samples)
            own = {"tables": more, "seed": self.seed}
            self._table = (roster.fingerprint, with_open_rows(*data, **own))
        return self._table[1]

    def _judge(self, context: Context, samples: Sequence[Sample], table: RowTable) -> JudgedWords:
        roster = context.view.roster
        folds = deal_folds([s.image_id for s in roster.samples], self.num_folds, self.seed)
        learnt = judged = self._data(roster.samples, folds)
        if list(samples) != list(roster.samples):  # else photos would be read twice
            judged = self._data(samples, folds)

        def judge() -> JudgedWords:
            key = (roster.fingerprint, tuple(sample.image_path for sample in roster.samples))
            if self._trained is None or self._trained[0] != key:
                own = {"network": self.network, "training": self.training, "seed": self.seed}
                own |= {"table": table, "progress": self._progress}
                networks = CrossFittedWords(**learnt, **own)
                self._trained = (key, networks)
            return self._trained[1].judge(**judged)

        if self._cache_folder is None:
            return judge()
        digest = _digest(learnt)
        settings = {
            "network": self.network,
            "training": asdict(self.training),
            "seed": self.seed,
            "learnt": digest,
            "judged": digest if judged is learnt else _digest(judged),
        }
        return kept_judgement(self._cache_folder, settings, judge, table=table)

    def _data(self, samples: Sequence[Sample], folds: Mapping[str, int]) -> dict[str, Any]:
        """Arguments of `CrossFittedWords`: captions by image and photo, which faults may part."""
        captions, photos = _numbered(samples)
        pairs = {(sample.image_id, sample.image_path): None for sample in samples}
        return {
            "captions": captions,
            "photos": photos,
            "folds": [folds[image_id] for image_id, _ in pairs],
            "features": None if self._photos is None else self._photos([p for _, p in pairs]),
        }


def _numbered(samples: Sequence[Sample]) -> tuple[list[str], list[int]]:
    """Captions, and the number of each one's image and photo."""
    numbers: dict[tuple[str, Path], int] = {}
    pairs = [(sample.image_id, sample.image_path) for sample in samples]
    return [s.caption for s in samples], [numbers.setdefault(p, len(numbers)) for p in pairs]


def _digest(data: Mapping[str, Any]) -> str:
    """Of arguments of `CrossFittedWords`."""
    texts = {name: value for name, value in data.items() if name != "features"}
    digest = hashlib.sha256(json.dumps(texts).encode())
    if data["features"] is not None:
        for values in (data["features"].cells, data["features"].means):
            digest.update(values.contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def calibrated(judged: JudgedWords, odds: np.ndarray, rows: Sequence[WordRow]) -> np.ndarray:
    """Probability ``(Q,)`` that each word is wrong, see `curation.score.words.calibration`."""
    topics = np.array([row.topic for row in rows])[judged.rows]
    probabilities = np.zeros(len(odds))
    for topic in dict.fromkeys(topics.tolist()):
        own = topics == topic
        known = own if own.sum() >= MIN_WORDS else np.ones(len(odds), dtype=bool)
        probabilities[own] = _curve(judged, odds, known, len(rows))(odds[own])
    return probabilities


def _curve(judged: JudgedWords, odds: np.ndarray, known: np.ndarray, num_rows: int) -> Calibration:
    """Other words of a row count by the root of how often they are written, each place alike.

    Wrong words may be as frequent as right ones, or all equally frequent; this is in between.
    """
    log_probs, rows, meanings = judged.log_probs[known], judged.rows[known], judged.meanings[known]
    counts = np.zeros((num_rows, log_probs.shape[1]))
    np.add.at(counts, (rows, meanings), 1)
    ranked = np.sort(log_probs, axis=1)
    first, second = ranked[:, -1:], ranked[:, -2:-1]
    # what the log-odds would be if that word stood there
    others = np.where(log_probs == first, second, first) - log_probs
    weights = np.sqrt(counts)[rows]
    weights[np.arange(len(rows)), meanings] = 0
    weights /= np.maximum(weights.sum(1, keepdims=True), 1e-12)
    used = (weights > 0) & np.isfinite(others)
    return calibrate(odds[known], others[used], weights[used])
