"""From log-odds to the probability that a word is wrong, without any word known to be wrong.

Words written in the captions are a mixture: a share ``e`` is wrong. What the log-odds of wrong
words look like is known: for every place they are those of the row's other words. With the
densities ``f`` of the written words and ``g`` of the others,

    P(wrong | log-odds s) = e g(s) / f(s),    e = min over c of P_f(s > c) / P_g(s > c),

as right words become rare where log-odds are high: the largest share that the tails allow
(Blanchard et al., 2010, "Semi-supervised novelty detection"). ``g / f`` is fitted as a function
that only rises, so that the probability keeps the order of the log-odds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

NUM_BINS = 100
MIN_WORDS = 300  # written words of a topic; below, all topics share one curve
_TAIL = 0.1  # least share of the other words that may lie above a cut


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """A curve from log-odds to probabilities.

    Attributes:
        log_odds: ``(B,)`` ascending.
        probabilities: ``(B,)`` in [0, 1], never falling.
        wrong: estimated share of wrong words.
    """

    log_odds: np.ndarray
    probabilities: np.ndarray
    wrong: float

    def __call__(self, log_odds: np.ndarray) -> np.ndarray:
        """Probabilities ``(Q,)``."""
        return np.interp(log_odds, self.log_odds, self.probabilities)


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
        return Calibration(log_odds=np.zeros(1), probabilities=np.zeros(1), wrong=0.0)
    is_written = np.histogram(written, edges)[0] / len(written)
    is_other = np.histogram(others, edges, weights=weights)[0] / weights.sum()
    wrong = _largest_share(is_written, is_other, len(written))
    # the share of others among both halves, which is steadier to fit than their ratio
    share = _rising(is_other / np.maximum(is_other + is_written, 1e-12), is_other + is_written)
    ratio = share / np.maximum(1 - share, 1e-9)
    return Calibration(
        log_odds=(edges[1:] + edges[:-1]) / 2,
        probabilities=np.clip(wrong * ratio, 0, 1),
        wrong=wrong,
    )


def _largest_share(is_written: np.ndarray, is_other: np.ndarray, num_written: int) -> float:
    above_written = np.cumsum(is_written[::-1])[::-1]
    above_other = np.cumsum(is_other[::-1])[::-1]
    cuts = above_other >= _TAIL
    # half a word, so that an empty tail is no proof
    return float(np.min((above_written[cuts] + 0.5 / num_written) / above_other[cuts]))


def _rising(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The closest sequence that never falls (pool adjacent violators; Ayer et al., 1955)."""
    blocks: list[tuple[float, float, int]] = []
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        block = (value, max(weight, 1e-12), 1)
        while blocks and blocks[-1][0] >= block[0]:
            mean, total, number = blocks.pop()
            both = total + block[1]
            block = ((mean * total + block[0] * block[1]) / both, both, number + block[2])
        blocks.append(block)
    return np.repeat([mean for mean, _, _ in blocks], [number for _, _, number in blocks])
