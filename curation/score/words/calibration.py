"""From log-odds to the probability that a word is wrong, without any word known to be wrong.

Words written in the captions are a mixture: a share ``e`` is wrong. What the log-odds of wrong
words look like is known: for every place they are those of the row's other words. With the
densities ``f`` of the written words and ``g`` of the others,

    P(wrong | log-odds s) = e g(s) / f(s),    e = min over c of P_f(s > c) / P_g(s > c),

as right words become rare where log-odds are high: the largest share that the tails allow
(Blanchard et al., 2010, "Semi-supervised novelty detection"). ``g / f`` is fitted as a function
that only rises, so that the probability keeps the order of the log-odds.

The estimate may exceed 1, as its parts are estimates. It is squeezed below 1 in a way that keeps
the order, so that words of all topics can be ranked by it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

NUM_BINS = 100
MIN_WORDS = 300  # written words of a topic; below, all topics share one curve
_TAIL = 0.1  # least share of the other words that may lie above a cut
_SLOPE = 0.5  # of the logarithm of the estimate beyond the curve, by nat
_LEAST = 1e-6  # least share of either kind of words in a bin
_KNEE = 0.9  # estimates beyond it are squeezed


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """A curve from log-odds to probabilities.

    Attributes:
        log_odds: ``(B,)`` ascending.
        log_ratios: ``(B,)`` ascending, of the densities of wrong words and of all words.
        wrong: estimated share of wrong words.
        separation: chance that another word has higher log-odds than a written one (AUC), in
            [0, 1]; near .5 the networks know nothing, and ``wrong`` is no estimate.
    """

    log_odds: np.ndarray
    log_ratios: np.ndarray
    wrong: float
    separation: float = 0.5

    def __call__(self, log_odds: np.ndarray) -> np.ndarray:
        """Probabilities ``(Q,)`` in (0, 1), in the order of the log-odds and with no more ties."""
        ratios = np.interp(log_odds, self.log_odds, self.log_ratios)
        ratios += _SLOPE * np.maximum(log_odds - self.log_odds[-1], 0)
        ratios -= _SLOPE * np.maximum(self.log_odds[0] - log_odds, 0)
        return squeezed(self.wrong * np.exp(ratios))


def squeezed(values: np.ndarray) -> np.ndarray:
    """Probabilities of estimates that may exceed 1: 1 becomes 0.95, 2 becomes 0.99."""
    rest = 1 - _KNEE
    above = np.maximum(values, _KNEE) - _KNEE
    return np.minimum(values, 1 - rest**2 / (rest + above))


def calibrate(written: np.ndarray, others: np.ndarray, weights: np.ndarray) -> Calibration:
    """The curve of one topic.

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
    """The closest rising sequence (pool adjacent violators; Ayer et al., 1955), and its places.

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
