"""Condition the captioner on how reliable each caption is (Kang et al., ICCV 2023)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np
import pytorch_lightning as pl
from annotated_types import Ge, Le

from captioning.data.roster import MAX_BUCKETS
from captioning.text.control_tokens import begin_token
from curation.base import Amended, Amender, Context, Selected, Selector, as_numpy


class Condition(Amender):
    """Puts the selected samples into buckets by quantiles of the selector's score.

    Bucket 0 has the least suspect ones. The captioner learns captions of another bucket with that
    bucket's begin token in the place of the usual one, so that it writes captions as in bucket 0.
    Samples with one score share a bucket. Captions without a score get a bucket by another
    caption's score, drawn at random: their trust is unknown, and no bucket gets more of them than
    others.

    Args:
        num_buckets: 2 to 8.

    Raises:
        ValueError: ``num_buckets`` is not from 2 to 8.
    """

    def __init__(self, *, num_buckets: Annotated[int, Ge(2), Le(MAX_BUCKETS)] = 4) -> None:
        if num_buckets not in range(2, MAX_BUCKETS + 1):
            raise ValueError(f"num_buckets must be 2 to {MAX_BUCKETS}: got {num_buckets!r}")
        self.num_buckets = num_buckets
        self._select: Selector | None = None

    def follow(self, select: Selector) -> None:
        """Use the selector's score to assign samples to buckets."""
        self._select = select

    def attach(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Raise ValueError if the captioner has no tokens for buckets.

        Raises:
            ValueError: the captioner has no tokens for buckets.
        """
        del trainer
        tokenizer = getattr(module, "tokenizer", None)
        if tokenizer is None:
            raise ValueError(
                f"curation=condition needs a tokenizer: {type(module).__name__} has none"
            )
        for bucket in range(self.num_buckets):
            begin_token(tokenizer, bucket)

    def amend(self, context: Context, selected: Sequence[Selected]) -> Amended:
        """Return an edit for each sample whose bucket has changed.

        Raises:
            ValueError: no sample has a score.
        """
        if self._select is None:
            raise ValueError(
                "curation=condition needs a selector with a score: choose another curation/select"
            )
        buckets = self._buckets(context, as_numpy(self._select.scores(context)))
        edits, unchanged = [], []
        for candidate in selected:
            sample = candidate.sample
            bucket = int(buckets[sample.row])
            if bucket == sample.bucket:
                unchanged.append(sample.sample_id)
            else:
                edits.append(context.edit(candidate, "set_bucket", value=str(bucket)))
        notes = [f"in bucket {bucket}" for bucket in buckets[[c.sample.row for c in selected]]]
        return Amended(edits=tuple(edits), unchanged=tuple(unchanged), notes=tuple(notes))

    def _buckets(self, context: Context, scores: np.ndarray) -> np.ndarray:
        """Bucket of each roster row, ``(N,)``; undefined for removed samples."""
        known = scores[context.live_rows]
        known = known[~np.isnan(known)]
        if not len(known):
            raise ValueError(
                "curation=condition sorts samples into buckets by score, but no sample has a score"
            )
        unknown = np.isnan(scores)
        drawn = context.random("buckets of samples without a score").choice(known, len(scores))
        edges = np.quantile(known, np.arange(1, self.num_buckets) / self.num_buckets)
        # number of edges below the score, so that equal scores share a bucket
        return np.searchsorted(edges, np.where(unknown, drawn, scores), side="left")
