"""Score captions by their words: high if another word would fit the sample better.

`SecondLook` asks networks that know photos and sentences from elsewhere about the words in doubt.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from annotated_types import Ge
from torch import Tensor

from captioning.config.ranges import ArgumentsOf, Fraction, PositiveInt, Seed
from captioning.text.cross_fitted_words import CrossFittedWords, deal_folds
from captioning.text.expected_words import PhotoFeatures
from captioning.text.judged_words import JudgedWords, kept_judgement, log_odds, odds_of_each
from captioning.text.masked_words import MaskedWords, WordTraining
from captioning.text.open_words import OPEN_TOPICS, with_open_rows
from captioning.text.row_tables import RowTable, WordRow, joined
from captioning.text.word_groups import Vocabulary
from captioning.text.word_rivals import exclusive
from captioning.text.word_rows import (
    NEGATION,
    TOPICS,
    closed_rows,
    negation_rows,
    replace_word,
    word_at,
)
from captioning.types import Sample
from curation.base import AbstractWordScore, Context, WordDoubt, highest
from curation.score.caption_fit import FitScores

NUM_BINS = 100
MIN_WORDS = 300  # written words of a topic; below, all topics share one curve
_TAIL = 0.1  # least share of the other words that may lie above a cut
_SLOPE = 0.5  # of the logarithm of the estimate beyond the curve, by nat
_LEAST = 1e-6  # least share of either kind of words in a bin
_KNEE = 0.9  # estimates beyond it are squeezed
MIN_SOUND = 50  # words of a topic: with fewer those of all topics are taken
_LEAST_SPREAD = 1e-6  # of a network that is blind to what changes
_LEAST_DOUBT = 1e-6  # probabilities nearer to 0 and 1 have no usable logit


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Curve from log-odds to the probability that a word is wrong, estimated without labels.

    Words written in the captions are a mixture: a share ``e`` is wrong. The distribution of wrong
    words' log-odds is known: at every place they are the row's other words. With the densities
    ``f`` of the written words and ``g`` of the others,

        P(wrong | log-odds s) = e g(s) / f(s),    e = min over c of P_f(s > c) / P_g(s > c),

    as right words become rare where log-odds are high: the largest share that the tails allow
    (Blanchard et al., 2010, "Semi-supervised novelty detection"). ``g / f`` is fitted as a function
    that only rises, so that the probability keeps the order of the log-odds.

    The estimate may exceed 1, as its parts are estimates. It is squeezed below 1 in a way that
    keeps the order, so that words of all topics can be ranked by it.

    Attributes:
        log_odds: ``(B,)`` ascending.
        log_ratios: ``(B,)`` ascending, of the densities of wrong words and of all words.
        wrong: estimated share of wrong words.
        separation: chance that another word has higher log-odds than a written one (AUC), in [0,
            1]; near .5 the networks know nothing, and ``wrong`` is not an estimate.
    """

    log_odds: np.ndarray
    log_ratios: np.ndarray
    wrong: float
    separation: float = 0.5

    def __call__(self, log_odds: np.ndarray) -> np.ndarray:
        """Probabilities ``(Q,)`` in (0, 1), in the order of the log-odds and without new ties."""
        ratios = np.interp(log_odds, self.log_odds, self.log_ratios)
        ratios += _SLOPE * np.maximum(log_odds - self.log_odds[-1], 0)
        ratios -= _SLOPE * np.maximum(self.log_odds[0] - log_odds, 0)
        return squeezed(self.wrong * np.exp(ratios))


def squeezed(values: np.ndarray) -> np.ndarray:
    """Map estimates that may exceed 1 to probabilities: 1 becomes 0.95, 2 becomes 0.99."""
    rest = 1 - _KNEE
    above = np.maximum(values, _KNEE) - _KNEE
    return np.minimum(values, 1 - rest**2 / (rest + above))


def calibrate(written: np.ndarray, others: np.ndarray, weights: np.ndarray) -> Calibration:
    """Fit the calibration curve of one topic.

    Args:
        written: ``(Q,)`` log-odds of the words in the captions.
        others: ``(P,)`` log-odds that other words would have in their places.
        weights: ``(P,)`` how often each of these would be written, 0 or more.
    """
    edges = np.unique(
        np.quantile(np.concatenate([written, others]), np.linspace(0, 1, NUM_BINS + 1))
    )
    if len(edges) < 3 or not weights.sum():
        return Calibration(log_odds=np.zeros(1), log_ratios=np.zeros(1), wrong=0.0)
    is_written = np.histogram(written, edges)[0] / len(written)
    is_other = np.histogram(others, edges, weights=weights)[0] / weights.sum()
    wrong = _largest_share(is_written, is_other, len(written))
    # the share of others among both halves, which is steadier to fit than their ratio
    both = is_other + is_written
    shares, centres = _rising(
        is_other / np.maximum(both, 1e-12), both, (edges[1:] + edges[:-1]) / 2
    )
    shares = np.clip(shares, _LEAST, 1 - _LEAST)
    separation = float(is_other @ (np.cumsum(is_written) - is_written / 2))
    return Calibration(
        log_odds=centres,
        log_ratios=np.log(shares / (1 - shares)),
        wrong=wrong,
        separation=separation,
    )


def _largest_share(is_written: np.ndarray, is_other: np.ndarray, num_written: int) -> float:
    above_written = np.cumsum(is_written[::-1])[::-1]
    above_other = np.cumsum(is_other[::-1])[::-1]
    cuts = above_other >= _TAIL
    # half a word, so that an empty tail is no proof
    return float(np.min((above_written[cuts] + 0.5 / num_written) / above_other[cuts]))


def _rising(
    values: np.ndarray, weights: np.ndarray, places: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Isotonic regression (pool adjacent violators; Ayer et al., 1955), with positions.

    Neighbours that would fall are one, at the mean of their places: between them the curve rises.
    """
    blocks: list[tuple[float, float, float]] = []  # means of value and place, weight
    for value, weight, place in zip(
        values.tolist(), weights.tolist(), places.tolist(), strict=True
    ):
        block = (value, place, max(weight, 1e-12))
        while blocks and blocks[-1][0] >= block[0]:
            before = blocks.pop()
            both = before[2] + block[2]
            mean, middle = (
                (old * before[2] + new * block[2]) / both
                for old, new in zip(before[:2], block[:2], strict=True)
            )
            block = (mean, middle, both)
        blocks.append(block)
    return np.array([block[0] for block in blocks]), np.array([block[1] for block in blocks])


Features = Callable[[Sequence[Path]], PhotoFeatures]
_LEAST_SEPARATION = 0.7  # of written words and rivals; below it a topic is not judged
_SEED_STEP = 1000  # between deals: networks of a deal have the seeds that follow
_VALUES = {"probability": "probability of a wrong word", "log_odds": "log-odds of another word"}


class Words(AbstractWordScore):
    """Highest probability that a word of a caption is wrong, or the largest log-odds.

    The networks are trained once, on the roster as the annotations have it, and judge the captions
    as they stand now; each photo is judged by a network that saw other photos only.
    `captioning.text.word_rows` defines the row of a word and its rivals.

    Args:
        siblings: whether the words of the photo's other captions are read.
        photos: features of photos, or None: photos are not read.
        vocabulary: ``"rows"`` judges words of the closed rows; ``"open"`` also the captions' other
            nouns, verbs and adjectives, which needs the parser.
        topics: topics of the words that are judged; None for all. They are
            `captioning.text.word_rows.TOPICS`, `NEGATION` if it is named, and with an open
            vocabulary `captioning.text.open_words.OPEN_TOPICS`.
        value: the score of a caption is the highest ``"probability"`` of a word to be wrong, or its
            highest ``"log_odds"`` in nats, which do not compare between easy and hard topics.
        rivals: possible corrections of a word: ``"row"``, any other word of its row, or
            ``"exclusive"``, a word that excludes it, see `captioning.text.word_rivals`.
        num_folds: number of folds.
        num_seeds: number of seeds for folds and networks; their probabilities for each word are
            averaged; the time grows with it.
        network: further arguments of `captioning.text.masked_words.MaskedWords`.
        training: training of each network.
        cache_folder: caches the networks' scores of these captions, so that a run with another
            threshold trains no network; None: it is not kept.
        seed: seed of folds and training.
        progress: called with the share of the training that is done.

    Raises:
        ValueError: a number of folds or seeds is too low, or a setting is unknown.
    """

    def __init__(
        self,
        *,
        siblings: bool = True,
        photos: Features | None = None,
        vocabulary: Literal["rows", "open"] = "rows",
        topics: Sequence[str] | None = None,
        value: Literal["probability", "log_odds"] = "probability",
        rivals: Literal["row", "exclusive"] = "row",
        num_folds: Annotated[int, Ge(2)] = 3,
        num_seeds: PositiveInt = 1,
        network: Annotated[Mapping[str, Any], ArgumentsOf(MaskedWords)] | None = None,
        training: Annotated[Mapping[str, Any], ArgumentsOf(WordTraining)] | None = None,
        cache_folder: str | Path | None = None,
        seed: Seed = 0,
        progress: Callable[[float], None] | None = None,
    ) -> None:
        if num_folds < 2:
            raise ValueError(f"num_folds must be at least 2: got {num_folds}")
        if num_seeds < 1:
            raise ValueError(f"num_seeds must be at least 1: got {num_seeds}")
        if rivals not in ("row", "exclusive"):
            raise ValueError(f"rivals must be 'row' or 'exclusive': got {rivals!r}")
        if vocabulary not in ("rows", "open"):
            raise ValueError(f"vocabulary must be 'rows' or 'open': got {vocabulary!r}")
        all_topics = (*TOPICS, *(OPEN_TOPICS if vocabulary == "open" else ()))
        unknown = sorted(set(topics or ()) - {*all_topics, NEGATION})
        if unknown:
            hint = " with vocabulary: open" if unknown[0] in OPEN_TOPICS else ""
            allowed = (*all_topics, NEGATION)
            raise ValueError(f"topics must be in {allowed}: got {unknown[0]!r}{hint}")
        if value not in _VALUES:
            raise ValueError(f"value must be one of {tuple(_VALUES)}: got {value!r}")
        self._photos, self.num_folds, self.seed = photos, num_folds, seed
        self.rivals, self.num_seeds = rivals, num_seeds
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
        self._trained: dict[int, tuple[Any, CrossFittedWords]] = {}  # by place of the seed
        self._last: tuple[Any, list[WordDoubt]] | None = None

    @property
    def opens_photos(self) -> bool:
        """Whether photos are opened: photos are used, and their features are not cached yet."""
        return self._photos is not None

    @property
    def counted_value(self) -> str:
        """Quantity that ``value`` selects."""
        return self.value

    def scores(self, context: Context) -> Tensor:
        """Scores; NaN for removed samples and for captions without a judged word."""
        return highest(self.doubts(context), len(context.view.roster), value=self.value)

    def doubts(self, context: Context) -> list[WordDoubt]:
        """Records of all judged words in the live captions.

        Raises:
            ValueError: the roster has fewer images than folds.
        """
        samples = list(context.live.values())
        key = (context.view.roster.fingerprint, tuple((s.caption, s.image_path) for s in samples))
        if self._last is None or self._last[0] != key:
            self._last = (key, self._doubts(context, samples))
        return self._last[1]

    def _doubts(self, context: Context, samples: Sequence[Sample]) -> list[WordDoubt]:
        table = self._rows_of(context)
        judged = self._judge(context, samples, table)
        rivals = None
        if self.rivals == "exclusive":
            rivals = exclusive(table, *_numbered(context.view.roster.samples))
            judged = _with_rivals(judged, rivals)
        own = None if rivals is None else rivals[judged.rows]
        odds, best = log_odds(judged.log_probs, judged.meanings, own)
        probabilities = calibrated(judged, odds, table.rows, rivals)
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
        """Word rows of the judged words, from the original captions."""
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
        """Mean of the judgements of all seeds."""
        roster = context.view.roster
        learnt = judged = self._data(roster.samples)
        vocabulary = cache(partial(Vocabulary, learnt["captions"], table=table))
        if list(samples) != list(roster.samples):  # else photos would be read twice
            judged = self._data(samples)
        parts = [
            self._judge_once(place, context, learnt, judged, vocabulary, table)
            for place in range(self.num_seeds)
        ]
        if len(parts) == 1:
            return parts[0]
        log_probs = np.logaddexp.reduce([part.log_probs for part in parts]) - np.log(len(parts))
        return replace(parts[0], log_probs=log_probs)

    def _judge_once(
        self,
        place: int,
        context: Context,
        learnt: Mapping[str, Any],
        judged: Mapping[str, Any],
        vocabulary: Callable[[], Vocabulary],
        table: RowTable,
    ) -> JudgedWords:
        """Judgement by the networks of one seed."""
        roster = context.view.roster
        seed = self.seed + place * _SEED_STEP
        dealt = deal_folds([s.image_id for s in roster.samples], self.num_folds, seed)
        is_same = judged is learnt
        learnt = _in_folds(learnt, dealt)
        judged = learnt if is_same else _in_folds(judged, dealt)

        def judge() -> JudgedWords:
            images = tuple(sample.image_path for sample in roster.samples)
            key = (roster.fingerprint, images)
            if place not in self._trained or self._trained[place][0] != key:
                own = {"network": self.network, "training": self.training, "seed": seed}
                own |= {"vocabulary": vocabulary(), "progress": partial(self._advance, place)}
                self._trained[place] = (key, CrossFittedWords(**learnt, **own))
            return self._trained[place][1].judge(**judged)

        if self._cache_folder is None:
            return judge()
        digest = _digest(learnt)
        settings = {
            "network": self.network,
            "training": asdict(self.training),
            "seed": seed,
            "learnt": digest,
            "judged": digest if is_same else _digest(judged),
        }
        return kept_judgement(self._cache_folder, settings, judge, table=table)

    def _advance(self, place: int, done: float) -> None:
        if self._progress is not None:
            self._progress((place + done) / self.num_seeds)

    def _data(self, samples: Sequence[Sample]) -> dict[str, Any]:
        """Arguments of `CrossFittedWords`: captions grouped by image and photo.

        In the place of folds the images.
        """
        captions, photos = _numbered(samples)
        pairs = {(sample.image_id, sample.image_path): None for sample in samples}
        return {
            "captions": captions,
            "photos": photos,
            "folds": [image_id for image_id, _ in pairs],
            "features": None if self._photos is None else self._photos([p for _, p in pairs]),
        }


def _in_folds(data: Mapping[str, Any], dealt: Mapping[str, int]) -> dict[str, Any]:
    """Return the data with each image id replaced by the number of its fold."""
    return {**data, "folds": [dealt[image_id] for image_id in data["folds"]]}


def _with_rivals(judged: JudgedWords, rivals: np.ndarray) -> JudgedWords:
    """Words that exclude at least one other word."""
    known = rivals[judged.rows, judged.meanings].any(1)
    return JudgedWords(**{f.name: getattr(judged, f.name)[known] for f in fields(JudgedWords)})


def _numbered(samples: Sequence[Sample]) -> tuple[list[str], list[int]]:
    """Captions, with the number of each caption's image and photo."""
    numbers: dict[tuple[str, Path], int] = {}
    pairs = [(sample.image_id, sample.image_path) for sample in samples]
    return [s.caption for s in samples], [numbers.setdefault(p, len(numbers)) for p in pairs]


def _digest(data: Mapping[str, Any]) -> str:
    """Hash of the arguments of `CrossFittedWords`."""
    texts = {name: value for name, value in data.items() if name != "features"}
    digest = hashlib.sha256(json.dumps(texts).encode())
    if data["features"] is not None:
        for values in (data["features"].cells, data["features"].means):
            digest.update(values.contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def calibrated(
    judged: JudgedWords,
    odds: np.ndarray,
    rows: Sequence[WordRow],
    rivals: np.ndarray | None = None,
) -> np.ndarray:
    """Probability that each word is wrong, ``(Q,)``, see `Calibration`.

    Args:
        judged: the words.
        odds: ``(Q,)`` their log-odds.
        rows: the table's rows.
        rivals: ``(W, K, K) bool`` of the rows, see `captioning.text.word_rivals`; None: all are.
            With rivals, words of a topic that the networks cannot predict have a probability of 0.
    """
    topics = np.array([row.topic for row in rows])[judged.rows]
    probabilities = np.zeros(len(odds))
    for topic in dict.fromkeys(topics.tolist()):
        own = topics == topic
        known = own if own.sum() >= MIN_WORDS else np.ones(len(odds), dtype=bool)
        curve = _curve(judged, odds, known, len(rows), rivals)
        if rivals is None or curve.separation >= _LEAST_SEPARATION:
            probabilities[own] = curve(odds[own])
    return probabilities


def _curve(
    judged: JudgedWords,
    odds: np.ndarray,
    known: np.ndarray,
    num_rows: int,
    rivals: np.ndarray | None,
) -> Calibration:
    """Calibration curve that weights a row's other words by the square root of their frequency.

    Wrong words may be as frequent as right ones, or all equally frequent; this is in between.
    """
    log_probs, rows, meanings = judged.log_probs[known], judged.rows[known], judged.meanings[known]
    counts = np.zeros((num_rows, log_probs.shape[1]))
    np.add.at(counts, (rows, meanings), 1)
    others = odds_of_each(log_probs, None if rivals is None else rivals[rows])
    weights = np.sqrt(counts)[rows]
    weights[np.arange(len(rows)), meanings] = 0
    if rivals is not None:
        weights *= rivals[rows, meanings]
    weights /= np.maximum(weights.sum(1, keepdims=True), 1e-12)
    used = (weights > 0) & np.isfinite(others)
    return calibrate(odds[known], others[used], weights[used])


class SecondLook(AbstractWordScore):
    """Probability that a word is wrong, from a first score and pretrained image-text models.

    A network that scores pairs of photo and caption compares the present caption with the one that
    has the likelier word. With d the vector of what the networks gain by the change, and the words
    that are hardly in doubt taken for right ones,

        d ~ N(-m, S) where the word is right,   d ~ N(m, S) where it is wrong,

    the second because there the two captions have changed their parts. Both are learnt from the
    words that are hardly in doubt, topic by topic, so no truth is needed. The log-likelihood ratio

        l = 2 m' S^-1 d

    adds to the word's log-odds and to the logit of its probability.

    Args:
        words: the first score; words are compared with its alternatives.
        pairs: scores of pairs of photo and caption by name, such as
            `captioning.vision.pair_scores.PairScores`; one or more.
        least: probability of being wrong from which a word is examined again.
        num_sound: maximum number of words of each topic below it from which to learn how the
            networks judge right words.
        seed: their choice's seed.

    Raises:
        ValueError: ``pairs`` is empty.
    """

    def __init__(
        self,
        *,
        words: AbstractWordScore,
        pairs: Mapping[str, FitScores],
        least: Fraction = 0.02,
        num_sound: PositiveInt = 1000,
        seed: Seed = 0,
    ) -> None:
        if not pairs:
            raise ValueError(
                "a second look needs a matching model: set matching@curation.score.pairs.NAME=MODEL"
            )
        self.words, self._pairs = words, dict(pairs)
        self.least, self.num_sound, self.seed = least, num_sound, seed
        self.name = f"{words.name}, looked at again by {', '.join(self._pairs)}"
        self._last: tuple[object, list[WordDoubt]] | None = None

    @property
    def opens_photos(self) -> bool:
        """Whether photos are opened; the pair models read photos."""
        return True

    @property
    def counted_value(self) -> str:
        """Quantity that the first score counts."""
        return self.words.counted_value

    def scores(self, context: Context) -> Tensor:
        """Highest probability in [0, 1] that a word is wrong, or highest log-odds in nats.

        The first score chooses between both. NaN without a judged word.
        """
        value = self.counted_value
        return highest(self.doubts(context), len(context.view.roster), value=value)

    def doubts(self, context: Context) -> list[WordDoubt]:
        """Records of the first score, with log-odds and probabilities of both looks."""
        samples = context.live
        key = (context.view.roster.fingerprint, tuple(samples.values()))
        if self._last is None or self._last[0] != key:
            self._last = (key, self._doubts(self.words.doubts(context), samples))
        return self._last[1]

    def _doubts(self, first: Sequence[WordDoubt], samples: Mapping[int, Sample]) -> list[WordDoubt]:
        doubts = list(first)
        looks = self._looks(doubts)
        numbers = np.unique(np.concatenate([np.zeros(0, np.int64), *sum(looks, ())]))
        if not len(numbers):
            return doubts
        gains = self._gains([doubts[number] for number in numbers], samples)
        every_sound = np.concatenate([sound for _, sound in looks])
        for own, sound in looks:
            enough = sound if len(sound) >= MIN_SOUND else every_sound
            taught = gains[np.searchsorted(numbers, enough)]
            ratios = log_likelihood_ratios(gains[np.searchsorted(numbers, own)], taught)
            for number, ratio in zip(own, ratios.tolist(), strict=True):
                doubts[number] = again(doubts[number], ratio)
        return doubts

    def _looks(self, doubts: Sequence[WordDoubt]) -> list[tuple[np.ndarray, np.ndarray]]:
        """Positions of the doubtful and of the presumably right words, by topic.

        Where hardly a word is free of doubt, these are of the less doubtful half of the topic.
        """
        topics = np.array([doubt.topic for doubt in doubts])
        probabilities = np.array([doubt.probability for doubt in doubts])
        generator = np.random.default_rng(self.seed)
        looks = []
        for topic in sorted(set(topics[probabilities >= self.least].tolist())):
            words = np.flatnonzero(topics == topic)
            words = words[np.argsort(probabilities[words], kind="stable")]
            clear = int((probabilities[words] < self.least).sum())
            sound = words[: clear if clear >= MIN_SOUND else len(words) // 2]
            looks.append((words[clear:], generator.permutation(sound)[: self.num_sound]))
        return looks

    def _gains(self, doubts: Sequence[WordDoubt], samples: Mapping[int, Sample]) -> np.ndarray:
        """Score gains ``(Q, P)`` when each doubtful word is replaced by its alternative."""
        before = [(samples[d.row].image_path, samples[d.row].caption) for d in doubts]
        after = [
            (path, replace_word(caption, doubt.start, doubt.word, doubt.alternative))
            for doubt, (path, caption) in zip(doubts, before, strict=True)
        ]
        gains = []
        for pairs in self._pairs.values():
            scores = pairs.scores([*before, *after]).double().numpy()
            pairs.release()
            scores = _logits(scores) if pairs.is_probability else scores
            gains.append(scores[len(doubts) :] - scores[: len(doubts)])
        return np.stack(gains, axis=1)


def _logits(probabilities: np.ndarray | np.float64) -> np.ndarray:
    inner = np.clip(probabilities, _LEAST_DOUBT, 1 - _LEAST_DOUBT)
    return np.log(inner / (1 - inner))


def log_likelihood_ratios(gains: np.ndarray, sound: np.ndarray) -> np.ndarray:
    """Log-likelihood ratio ``(Q,)`` of wrong to right, from the models' gains by the other word.

    Args:
        gains: ``(Q, P)`` of the words in doubt.
        sound: ``(R, P)`` of words that are taken for right ones. A network that gains by changing
            them knows nothing, and is left out.
    """
    if len(sound) < 2:
        return np.zeros(len(gains))
    centre = sound.mean(0)
    known = centre < 0
    if not known.any():
        return np.zeros(len(gains))
    spread = np.atleast_2d(np.cov(sound[:, known].T)) + _LEAST_SPREAD * np.eye(known.sum())
    return gains[:, known] @ np.linalg.solve(spread, -2 * centre[known])


def again(doubt: WordDoubt, ratio: float) -> WordDoubt:
    """Update a doubtful word by a log-likelihood ratio in nats."""
    if not ratio:
        return doubt
    logit = float(_logits(np.float64(doubt.probability))) + ratio
    probability = float(1 / (1 + np.exp(-np.clip(logit, -700, 700))))
    return replace(doubt, log_odds=doubt.log_odds + ratio, probability=probability)
