"""Score how well-formed English captions are, without references: grammar, redundancy, focus.

The score follows GRUEN (Zhu and Bhat, 2020), which CIC-BART-SSA reports as G: in [0, 1], the
grammar of sentences minus deductions for redundancy and lack of focus. It is not GRUEN, and its
values are not comparable with published ones:

- *Grammar* in GRUEN adds BERT's fit and the logit of an acceptability classifier trained on
  CoLA. Here it is a logistic regression on a language model's log-probabilities of each sentence,
  fitted to separate real captions from broken ones (`calibrate`).
- *Redundancy* in GRUEN compares sentences, so a one-sentence caption has none. Here each word
  that repeats a phrase of the same caption costs .1.
- *Focus* in both: .1 off if two neighbouring sentences are unrelated. GRUEN uses word mover's
  similarity; this score uses the cosine of their mean word vectors. One-sentence captions
  lose nothing.

Accuracy on broken captions, and the threshold: ``docs/cards/scores_control.md``.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, pairwise
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from captioning.config.ranges import Cosine
from captioning.interfaces import AbstractLanguageModel, AbstractWordVectors

Floats = NDArray[np.float64]

# Balanced evidence for both sides gives this score, so it is the threshold for filtering.
BALANCE = 0.7
DEDUCTION = 0.1  # GRUEN's unit
NUM_WORST = 3
_ARTICLES = "a an the this that these those some any each every another other one two three"
_PRONOUNS = "its his her their my your our it he she they them him i you we who which what"
_LINKS = (
    "while as when where and or but nor so not there is are was were be been being has have had"
)
_PLACES = (
    "in on at by to of from with into onto over under near for off up down out through across "
    "around along behind between beside next front top do does did"
)
FUNCTION_WORDS = frozenset(f"{_ARTICLES} {_PRONOUNS} {_LINKS} {_PLACES}".split())
MAX_PHRASE_LENGTH = 8  # what repeats more words repeats phrases of these
_SPACED_SIGNS = re.compile(r"\s+(?=[.,!?;:]|(?:'s|n't|'re|'ll|'ve|'d|'m)\b)")
_SENTENCE_END = re.compile(r"(?<=\w\w)[.!?]+(?=\s|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class GrammarCalibration:
    """Weights that map a language model's log-probabilities of a sentence to its grammar score.

    ``grammar = 1 / (1 + exp(−(intercept + mean · m + worst · w + end · e)))`` with, in nats, m the
    mean log-probability over tokens, w the mean of the three least likely tokens before the full
    stop, and e that of the full stop: an unlikely full stop indicates a truncated sentence.

    Attributes:
        language_model: name of the model that the weights were fitted to.
        intercept, mean, worst, end: the weights.
    """

    language_model: str
    intercept: float
    mean: float
    worst: float
    end: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WellFormed:
    """Well-formedness of one caption.

    Attributes:
        grammar: mean over its sentences, in [0, 1]; 0 for a caption without words.
        redundancy: deduction for repeated words, at least 0.
        focus: deduction for unrelated sentences, at least 0.
        total: ``grammar − redundancy − focus``, at least 0.
    """

    grammar: float
    redundancy: float
    focus: float
    total: float


class AbstractWellFormedness(ABC):
    """Base class of well-formedness scorers; captions are scored independently."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Return settings to store with scores."""

    @abstractmethod
    def score(self, captions: Sequence[str]) -> list[WellFormed]:
        """Return the scores of captions, in order."""


class WellFormedness(AbstractWellFormedness):
    """This project's well-formedness score."""

    def __init__(
        self,
        *,
        language_model: AbstractLanguageModel,
        calibration: GrammarCalibration,
        vectors: AbstractWordVectors | None = None,
        min_similarity: Cosine = 0.0,
    ) -> None:
        """Combine language model, calibration and word vectors.

        Args:
            language_model: language model that scores sentences.
            calibration: calibration that was fitted to this language model.
            vectors: word vectors for the focus of captions with several sentences; None: no focus.
            min_similarity: minimum cosine of neighbouring sentences for full focus.

        Raises:
            ValueError: the calibration belongs to another language model.
        """
        if calibration.language_model != language_model.name:
            raise ValueError(
                f"calibration must belong to the language model {language_model.name!r}, not to "
                f"{calibration.language_model!r}; fit one with benchmarks/bench_well_formedness.py"
            )
        self._language_model, self._calibration = language_model, calibration
        self._vectors, self._min_similarity = vectors, min_similarity

    def settings(self) -> dict[str, Any]:
        """Return settings to store with scores."""
        return {
            "calibration": asdict(self._calibration),
            "word_vectors": None if self._vectors is None else self._vectors.name,
            "least_similarity": self._min_similarity,
        }

    def score(self, captions: Sequence[str]) -> list[WellFormed]:
        """Return the scores of captions, in order.

        Letter case, blanks before punctuation and the final full stop do not matter.
        """
        split = [split_sentences(caption) for caption in captions]
        distinct = list(dict.fromkeys(chain.from_iterable(split)))
        features = _features(self._language_model.log_probs(distinct))
        weights = self._calibration
        logits = features @ [weights.mean, weights.worst, weights.end] + weights.intercept
        grammar = dict(zip(distinct, 1 / (1 + np.exp(-np.clip(logits, -50, 50))), strict=True))
        scores = []
        for caption, sentences in zip(captions, split, strict=True):
            correct = fmean(float(grammar[s]) for s in sentences) if sentences else 0.0
            repeated = DEDUCTION * count_repeated_words(caption)
            unfocused = DEDUCTION * self._lacks_focus(sentences)
            total = max(0.0, correct - repeated - unfocused)
            scores.append(
                WellFormed(grammar=correct, redundancy=repeated, focus=unfocused, total=total)
            )
        return scores

    def _lacks_focus(self, sentences: Sequence[str]) -> bool:
        if self._vectors is None or len(sentences) < 2:
            return False
        likeness = sentence_similarities(sentences, self._vectors)
        return any(value < self._min_similarity for value in likeness)


def split_sentences(caption: str) -> list[str]:
    """Return the sentences of a caption as prose: capital first, no blanks before punctuation.

    The score thus judges words, not a tokenizer's style. Sentences without a letter or
    digit are left out.
    """
    text = _SPACED_SIGNS.sub("", " ".join(caption.split()))
    parts = [part.strip(" .!?") for part in _SENTENCE_END.split(text)]
    return [f"{part[0].upper()}{part[1:]}." for part in parts if any(map(str.isalnum, part))]


def count_repeated_words(caption: str) -> int:
    """Count the repeated words of a caption.

    Words count in later copies of a phrase that directly follows itself ("in the in the sea": 2),
    and in later copies of a phrase with two or more content words; "a man in a red hat and a man
    in a blue one" repeats no word.
    """
    words = [word for piece in caption.lower().split() if (word := piece.strip(".,!?;:\"'()"))]
    repeated: set[int] = set()
    for size in range(1, min(MAX_PHRASE_LENGTH, len(words) // 2) + 1):
        seen: dict[tuple[str, ...], int] = {}
        for start in range(len(words) - size + 1):
            phrase = tuple(words[start : start + size])
            first = seen.setdefault(phrase, start)
            if start - first >= size and (
                phrase == tuple(words[start - size : start]) or _num_content(phrase) > 1
            ):
                repeated.update(range(start, start + size))
    return len(repeated)


def _num_content(phrase: Sequence[str]) -> int:
    return sum(word not in FUNCTION_WORDS for word in phrase)


def sentence_similarities(sentences: Sequence[str], vectors: AbstractWordVectors) -> list[float]:
    """Return cosines of the mean word vectors of successive sentences, without function words.

    Pairs with a sentence without word vectors are left out.
    """
    means = []
    for sentence in sentences:
        words = [word.strip(".,!?;:\"'()") for word in sentence.lower().split()]
        content = [word for word in words if word and word not in FUNCTION_WORDS]
        means.append(vectors.vectors(content).double().sum(0))
    return [
        float(first @ second / (first.norm() * second.norm()))
        for first, second in pairwise(means)
        if first.norm() > 0 and second.norm() > 0
    ]


def calibrate(
    language_model: AbstractLanguageModel,
    *,
    well_formed: Sequence[str],
    broken: Sequence[str],
) -> GrammarCalibration:
    """Fit the grammar weights to a language model by logistic regression.

    Both sides get equal weight whatever their sizes, and `BALANCE` is the assumed share of sound
    captions: a sentence scores above it if it is more similar to well-formed captions.

    Args:
        language_model: language model that scores the captions.
        well_formed: a few hundred human-written captions.
        broken: captions with words shuffled, dropped and so on.

    Raises:
        ValueError: one side has no sentences.
    """
    sides = [
        list(chain.from_iterable(map(split_sentences, side))) for side in (well_formed, broken)
    ]
    if not all(sides):
        raise ValueError(f"both sides need sentences: got {[len(side) for side in sides]}")
    features = _features(language_model.log_probs([*sides[0], *sides[1]]))
    truth = np.repeat([1.0, 0.0], [len(side) for side in sides])
    weight = np.repeat([0.5 / len(side) for side in sides], [len(side) for side in sides])
    intercept, mean, worst, end = _fit_logistic(features, truth, weight).tolist()
    return GrammarCalibration(
        language_model=language_model.name,
        intercept=intercept + float(np.log(BALANCE / (1 - BALANCE))),
        mean=mean,
        worst=worst,
        end=end,
    )


def _features(log_probs: Sequence[Tensor]) -> Floats:
    """Return mean, worst and end of each sentence, ``(n, 3)``; see `GrammarCalibration`."""
    return np.array([list(_feature_row(row.double().numpy())) for row in log_probs]).reshape(-1, 3)


def _feature_row(row: Floats) -> Iterator[float]:
    if not len(row):
        raise ValueError("log-probabilities must hold at least one token per sentence: got none")
    yield row.mean()
    yield np.sort(row[:-1] if len(row) > 1 else row)[:NUM_WORST].mean()
    yield row[-1]


def _fit_logistic(features: Floats, truth: Floats, weight: Floats, ridge: float = 1e-3) -> Floats:
    """Fit intercept and weights ``(4,)`` by Newton's method; the ridge bounds separable data."""
    centre = weight @ features / weight.sum()
    spread = np.sqrt(weight @ (features - centre) ** 2 / weight.sum()) + 1e-9
    inputs = np.column_stack([np.ones(len(features)), (features - centre) / spread])
    penalty = np.diag([0.0, *[ridge] * features.shape[1]])
    solution = np.zeros(inputs.shape[1])
    for _ in range(50):
        share = 1 / (1 + np.exp(-np.clip(inputs @ solution, -50, 50)))
        slope = inputs.T @ (weight * (truth - share)) - penalty @ solution
        curve = (inputs * (weight * share * (1 - share))[:, None]).T @ inputs + penalty
        step = np.linalg.solve(curve + 1e-9 * np.eye(len(solution)), slope)
        solution += step
        if np.abs(step).max() < 1e-9:
            break
    scaled = solution[1:] / spread
    return np.array([solution[0] - scaled @ centre, *scaled])
