"""Words in doubt, looked at again by networks that know photos and sentences from elsewhere.

A network that scores pairs of photo and caption compares the caption as it stands with the one
that has the likelier word. With d the vector of what the networks gain by the change, and the
words that are hardly in doubt taken for right ones,

    d ~ N(-m, S) where the word is right,   d ~ N(m, S) where it is wrong,

the second because there the two captions have changed their parts. Both are learnt from the words
that are hardly in doubt, topic by topic, so no truth is needed. The log-likelihood ratio

    l = 2 m' S^-1 d

adds to the word's log-odds and to the logit of its probability.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from torch import Tensor

from captioning.config.ranges import Fraction, PositiveInt, Seed
from captioning.text.word_rows import replace_word
from captioning.types import Sample
from curation.base import AbstractWordScore, Context, WordDoubt, highest
from curation.score.caption_fit import FitScores

MIN_SOUND = 50  # words of a topic: with fewer those of all topics are taken
_LEAST_SPREAD = 1e-6  # of a network that is blind to what changes
_LEAST_DOUBT = 1e-6  # probabilities nearer to 0 and 1 have no usable logit


class SecondLook(AbstractWordScore):
    """The probability that a word is wrong, by a first score and by networks that look again.

    Args:
        words: the first score; its alternatives are what words are compared with.
        pairs: scores of pairs of photo and caption by name, such as
            `captioning.vision.pair_scores.PairScores`; one or more.
        least: probability of being wrong from which a word is looked at again.
        num_sound: at most so many words of each topic below it are looked at to learn how the
            networks judge right words.
        seed: of their choice.

    Raises:
        ValueError: no network.
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
            raise ValueError("a second look needs a network: matching@curation.score.pairs.NAME=")
        self.words, self._pairs = words, dict(pairs)
        self.least, self.num_sound, self.seed = least, num_sound, seed
        self.name = f"{words.name}, looked at again by {', '.join(self._pairs)}"
        self._last: tuple[object, list[WordDoubt]] | None = None

    @property
    def opens_photos(self) -> bool:
        """The networks look at them."""
        return True

    @property
    def counted_value(self) -> str:
        """That of the first score."""
        return self.words.counted_value

    def scores(self, context: Context) -> Tensor:
        """The highest probability of a caption's words to be wrong, in [0, 1], or log-odds in nats.

        Which of them the first score says. NaN without a word that is judged.
        """
        value = self.counted_value
        return highest(self.doubts(context), len(context.view.roster), value=value)

    def doubts(self, context: Context) -> list[WordDoubt]:
        """Those of the first score, with the log-odds and probabilities of both looks."""
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
        """By topic the numbers of words in doubt, and of those that are taken for right ones.

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
        """``(Q, P)`` scores of the captions with the alternative, less those as they stand."""
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
    """``(Q,)`` of being wrong against being right, by what networks gain by the other word.

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
    """A word in doubt after a second look by a log-likelihood ratio, in nats."""
    if not ratio:
        return doubt
    logit = float(_logits(np.float64(doubt.probability))) + ratio
    probability = float(1 / (1 + np.exp(-np.clip(logit, -700, 700))))
    return replace(doubt, log_odds=doubt.log_odds + ratio, probability=probability)
