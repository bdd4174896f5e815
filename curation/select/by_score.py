"""Base class of selectors that rank samples by a score."""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import Tensor

from curation.base import Context, Score, Selector
from curation.score.loss import Loss

log = logging.getLogger(__name__)


class AbstractByScore(Selector):
    """Base class of selectors that rank samples by a score.

    Args:
        score: score to rank by; default the epoch's mean loss per token.
    """

    def __init__(self, score: Score | None = None) -> None:
        self.score = score if score is not None else Loss()
        self._has_warned = False

    @property
    def opens_photos(self) -> bool:
        """Whether the score opens photos."""
        return self.score.opens_photos

    @property
    def signals(self) -> tuple[str, ...]:
        """Additional measurements that the score reads."""
        return self.score.signals

    def scores(self, context: Context) -> Tensor:
        """Scores of ``score``; logs a warning once if samples have no score.

        Raises:
            ValueError: before training, and no live sample has a score: nothing would be selected.
        """
        scores = self.score.scores(context)
        _check(scores, len(context.view.roster), by=self.score)
        if context.epoch < 0:
            self._require_known(context, scores)
        if context.epoch >= 0 and context.is_over and not self._has_warned:
            self._warn_of_unknown(context, scores)
        return scores

    def _require_known(self, context: Context, scores: Tensor) -> None:
        are_unknown = scores[torch.from_numpy(context.live_rows)].isnan().all()
        if are_unknown and not self.score.may_know_none:
            raise ValueError(
                f"no sample has a score ({self.score.name}) before training "
                "(curation.schedule.from_epoch=-1), when there are no losses: nothing would be "
                "selected. Set curation/schedule=every_epoch or once, choose a curation/score "
                "that needs no losses, such as similarity, or draw (curation/select=share)"
            )

    def _warn_of_unknown(self, context: Context, scores: Tensor) -> None:
        rows = torch.from_numpy(context.live_rows)
        is_unseen, is_unknown = context.losses[rows].isnan(), scores[rows].isnan()
        number = int((is_unseen & is_unknown).sum())
        if number:
            self._has_warned = True
            log.warning(
                f"epoch {context.epoch} trained on {len(rows) - number} of {len(rows)} captions: "
                f"the other captions have no {self.score.name} and are not selected; "
                "curation/probe=rescore scores all captions"
            )
        if is_unknown.all() and not is_unseen.all() and not self.score.may_know_none:
            self._has_warned = True
            log.warning(
                f"epoch {context.epoch}: no caption is selected, because {self.score.name} is NaN "
                f"for all {len(rows)} captions"
            )


def _check(scores: Any, num_rows: int, *, by: Score) -> None:
    """Raise ValueError unless there is one score for each row of the roster."""
    if isinstance(scores, Tensor) and tuple(scores.shape) == (num_rows,):
        return
    got = f"a tensor {tuple(scores.shape)}" if isinstance(scores, Tensor) else type(scores).__name__
    raise ValueError(
        f"{type(by).__qualname__}.scores must return a tensor ({num_rows},), a value for each row "
        f"of "
        f"the roster, whether live or not (Context.of_live makes the others NaN): got {got}"
    )
