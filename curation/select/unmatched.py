"""Select captions that a model judges not to match their photo, and samples of one origin."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from curation.base import Context, Selected, Selector, as_numpy
from curation.score.caption_fit import CaptionFit, FitScores, waits_for_caption
from curation.select.ranking import ordered_rows


class Unmatched(Selector):
    """Selects captions that do not match their photo, and samples that wait for a caption.

    Args:
        pairs: scores of pairs, such as BLIP's matching head.
        threshold: captions of a lower score do not match; for BLIP's head 0.5.
        written: select captions that do not match, worst first.
        waiting: then select all samples that wait for a caption, in roster order.

    Raises:
        ValueError: ``threshold`` is not a finite number, nothing is to be selected, or no scores.
    """

    for_fewer = "lower curation.select.threshold"

    def __init__(
        self,
        *,
        pairs: FitScores | None,
        threshold: float = 0.5,
        written: bool = True,
        waiting: bool = True,
    ) -> None:
        if isinstance(threshold, bool) or not math.isfinite(threshold):
            raise ValueError(f"threshold must be a finite number: got {threshold!r}")
        if not written and not waiting:
            raise ValueError("written and waiting must not both be false, or nothing is selected")
        if pairs is None:
            raise ValueError(
                "curation/select=unmatched needs scores of pairs: add "
                "+matching@curation.filter=NAME (see configs/matching)"
            )
        self.pairs, self.threshold = pairs, float(threshold)
        self.written, self.waiting = written, waiting
        self._score = CaptionFit(pairs=pairs)

    def scores(self, context: Context) -> Tensor:
        """Misfit scores of the captions, as in `CaptionFit`."""
        return self._score.scores(context)

    def select(self, context: Context) -> list[Selected]:
        """Return the samples that the class describes."""
        selected = self._unmatched(context) if self.written else []
        if self.waiting:
            selected += [
                Selected(sample=sample, reason="waits for a caption")
                for sample in context.live.values()
                if waits_for_caption(sample)
            ]
        return selected

    def _unmatched(self, context: Context) -> list[Selected]:
        suspicion = as_numpy(self.scores(context))
        fit = (1 if self.pairs.is_probability else 0) - suspicion
        rows = context.live_rows[fit[context.live_rows] < self.threshold]
        return [
            Selected(
                sample=context.live[row],
                reason=below(self.pairs, fit[row], self.threshold),
            )
            for row in ordered_rows(context, suspicion, rows)
        ]


def below(pairs: FitScores, fit: float, threshold: float) -> str:
    """Reason why a caption does not match, as readable text."""
    return f"{pairs.name} {fit:.3f} < {threshold:g}"


class Origin(Selector):
    """Selects every live sample with one origin in the annotations, in roster order.

    Later edits do not count: a caption written for a photo without one can be written again at the
    next epoch's end.

    Args:
        origin: `Sample.origin` as read, such as ``"unpaired"``.

    Raises:
        ValueError: ``origin`` is empty.
    """

    def __init__(self, *, origin: str) -> None:
        if not origin:
            raise ValueError("origin must name the source of the samples, such as 'unpaired'")
        self.origin = origin

    def scores(self, context: Context) -> Tensor:
        """Scores ``(N,)``: 1 for live samples of the origin, 0 for other live samples, else NaN."""
        scores = torch.full((len(context.view.roster),), torch.nan)
        for row in context.live:
            scores[row] = float(context.view.roster.samples[row].origin == self.origin)
        return scores

    def select(self, context: Context) -> list[Selected]:
        """Return all live samples of the origin."""
        rows = torch.nonzero(self.scores(context) == 1).flatten().tolist()
        reason = f"of origin {self.origin}"
        return [Selected(sample=context.live[row], reason=reason) for row in rows]
