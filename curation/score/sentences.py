"""Score sentences of long captions by their loss, their fit to the photo, or their words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from captioning.config.ranges import PositiveFloat, PositiveInt
from captioning.text.sentence_spans import sentence_spans
from curation.base import (
    SENTENCE_LOSS,
    AbstractSentenceScore,
    AbstractWordScore,
    Context,
    SentenceDoubt,
    by_row,
)
from curation.score.caption_fit import FitScores, misfit, waits_for_caption

ABOVE = " above its caption's others"


class SentenceLoss(AbstractSentenceScore):
    """Mean loss of a sentence's tokens over the last epochs.

    Args:
        num_epochs: how many; 1 is the epoch that just ended. Epochs in which a sample had another
            caption or picture do not count.
        within_caption: take the mean loss of the caption's other sentences off, so that hard
            captions do not count as a whole. A caption of one sentence then has none to judge.

    Raises:
        ValueError: ``num_epochs`` below 1.
    """

    def __init__(self, *, num_epochs: PositiveInt = 1, within_caption: bool = True) -> None:
        if num_epochs < 1:
            raise ValueError(f"num_epochs must be at least 1: got {num_epochs}")
        self.num_epochs, self.within_caption = num_epochs, within_caption
        self.name = "loss of a sentence" + ABOVE * within_caption

    @property
    def signals(self) -> tuple[str, ...]:
        """Name of the sentence losses that the score reads."""
        return (SENTENCE_LOSS,)

    def doubts(self, context: Context) -> list[SentenceDoubt]:
        """Losses in nats per token; sentences that were not seen have no record.

        Raises:
            ValueError: the losses of sentences were not measured.
        """
        if SENTENCE_LOSS not in context.signals:
            raise ValueError(
                "curation/score=sentence_loss needs the loss of each sentence, which this run did "
                "not measure: train with curation/score=sentence_loss from the start, or choose "
                "curation/score=sentence_fit"
            )
        history = context.signals[SENTENCE_LOSS]
        if not len(history):
            return []
        losses = context.of_present_pairs(history)[-self.num_epochs :].nanmean(0)
        doubts = _judged(context, losses.tolist())
        return above_others(doubts) if self.within_caption else doubts


class SentenceFit(AbstractSentenceScore):
    """Misfit of a sentence to its photo: 1 minus the match probability, or minus the cosine.

    Args:
        pairs: scores of pairs of photo and text.
        within_caption: see `SentenceLoss`.
    """

    def __init__(self, *, pairs: FitScores, within_caption: bool = True) -> None:
        self._pairs, self.within_caption = pairs, within_caption
        sign = "1 - " if pairs.is_probability else "minus "
        self.name = f"{sign}{pairs.name} of a sentence" + ABOVE * within_caption

    @property
    def opens_photos(self) -> bool:
        """Whether photos are opened; the pair scorer reads photos."""
        return True

    def doubts(self, context: Context) -> list[SentenceDoubt]:
        """Suspicion: probabilities in [0, 1], cosines in [-1, 1], or their differences."""
        live = [sample for sample in context.live.values() if not waits_for_caption(sample)]
        places = [(s, start, stop) for s in live for start, stop in sentence_spans(s.caption)]
        if not places:
            return []
        pairs = [(s.image_path, s.caption[start:stop]) for s, start, stop in places]
        values = misfit(self._pairs.scores(pairs), self._pairs).tolist()
        self._pairs.release()
        doubts = [
            SentenceDoubt(row=s.row, start=start, sentence=s.caption[start:stop], suspicion=value)
            for (s, start, stop), value in zip(places, values, strict=True)
        ]
        return above_others(doubts) if self.within_caption else doubts


class SentenceWords(AbstractSentenceScore):
    """Highest probability that a word of a sentence is wrong.

    Args:
        words: score that names the doubtful words.
    """

    def __init__(self, *, words: AbstractWordScore) -> None:
        self._words = words
        self.name = f"{words.name} in a sentence"

    @property
    def opens_photos(self) -> bool:
        """Whether the word score opens photos."""
        return self._words.opens_photos

    @property
    def signals(self) -> tuple[str, ...]:
        """Additional measurements that the word score reads."""
        return self._words.signals

    def doubts(self, context: Context) -> list[SentenceDoubt]:
        """Probabilities in [0, 1]; sentences without a judged word have no record."""
        doubts = []
        for row, words in by_row(self._words.doubts(context)).items():
            caption = context.live[row].caption
            for start, stop in sentence_spans(caption):
                values = [word.value for word in words if start <= word.start < stop]
                if values:
                    text = caption[start:stop]
                    one = SentenceDoubt(row=row, start=start, sentence=text, suspicion=max(values))
                    doubts.append(one)
        return doubts


class SentenceJoint(AbstractSentenceScore):
    """Weighted mean of the z-scores of several sentence scores.

    Args:
        parts: scores by name.
        weights: weights of the parts by the same names; 1 each by default.

    Raises:
        ValueError: fewer than two parts, or weights that are not positive or of other names.
    """

    def __init__(
        self,
        *,
        parts: Mapping[str, AbstractSentenceScore],
        weights: Mapping[str, PositiveFloat] | None = None,
    ) -> None:
        if len(parts) < 2:
            raise ValueError(f"a joint score needs at least two parts: got {sorted(parts)}")
        weights = dict.fromkeys(parts, 1.0) if weights is None else dict(weights)
        if weights.keys() != parts.keys() or not all(value > 0 for value in weights.values()):
            raise ValueError(f"each of {sorted(parts)} needs one positive weight: got {weights}")
        self._parts, self._weights = dict(parts), weights
        self.name = f"joint score of a sentence by {' and '.join(parts)}"

    @property
    def opens_photos(self) -> bool:
        """Whether one of the parts opens photos."""
        return any(part.opens_photos for part in self._parts.values())

    @property
    def signals(self) -> tuple[str, ...]:
        """Additional measurements that the parts read."""
        return tuple(dict.fromkeys(name for part in self._parts.values() for name in part.signals))

    def doubts(self, context: Context) -> list[SentenceDoubt]:
        """Weighted means; a part that lacks a sentence contributes its mean."""
        places: dict[tuple[int, int], SentenceDoubt] = {}
        sums: dict[tuple[int, int], float] = {}
        for name, part in self._parts.items():
            doubts = part.doubts(context)
            values = np.array([doubt.suspicion for doubt in doubts])
            share = self._weights[name] / sum(self._weights.values())
            spread = values.std() if len(values) else 0.0
            scaled = share * (values - values.mean()) / spread if spread > 0 else 0 * values
            for doubt, value in zip(doubts, scaled.tolist(), strict=True):
                place = (doubt.row, doubt.start)
                places.setdefault(place, doubt)
                sums[place] = sums.get(place, 0.0) + value
        return [
            SentenceDoubt(row=row, start=start, sentence=doubt.sentence, suspicion=sums[row, start])
            for (row, start), doubt in sorted(places.items())
        ]


def above_others(doubts: Sequence[SentenceDoubt]) -> list[SentenceDoubt]:
    """Subtract the mean of the caption's other sentences; drop sentences without others."""
    sums = {
        row: (sum(doubt.suspicion for doubt in own), len(own))
        for row, own in by_row(doubts).items()
    }
    found = []
    for doubt in doubts:
        total, number = sums[doubt.row]
        if number > 1:
            others = (total - doubt.suspicion) / (number - 1)
            found.append(replace(doubt, suspicion=doubt.suspicion - others))
    return found


def _judged(context: Context, values: Sequence[Sequence[float]]) -> list[SentenceDoubt]:
    """Build a record for each sentence of the live captions that has a value.

    Args:
        context: with the captions.
        values: ``(N, K)``, NaN where unknown.
    """
    doubts = []
    for row, sample in context.live.items():
        for (start, stop), value in zip(sentence_spans(sample.caption), values[row], strict=False):
            if not np.isnan(value):
                text = sample.caption[start:stop]
                doubts.append(SentenceDoubt(row=row, start=start, sentence=text, suspicion=value))
    return doubts
