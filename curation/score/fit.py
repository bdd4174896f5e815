"""Estimate the probability that a caption does not belong to its photo, from the dataset itself."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from captioning.config.ranges import Seed
from captioning.data.roster import build_roster
from captioning.interfaces import JointEmbedder, TextEmbedder
from captioning.runtime.devices import leave_device
from captioning.types import Sample
from curation.base import Context, Score
from curation.check.fit_checks import caption_fit
from curation.check.folder_check import build_encoders
from curation.check.photo_vectors import look_at

log = logging.getLogger(__name__)


class Fit(Score):
    """The check ``fit`` of ``captioning check`` as a score.

    `curation.check.fit_checks.caption_fit` computes it.

    A caption of a photo with several is compared with the photo and with the photo's other
    captions, a single one with the photo. Captions at random other photos show how wrong ones look;
    the share of wrong ones is estimated beside the chances. Where the space can hardly tell given
    pairs from random ones, every score is NaN and nothing is selected.

    Args:
        space: space of photos and texts, a built one or a name, see
            `curation.check.folder_check.check`.
        cache_folder: caches embeddings of captions; None: no cache.
        seed: seed of the random pairs.

    Raises:
        FileNotFoundError, ValueError: the space is unknown or cannot be loaded.
    """

    name = "chance of a wrong caption"
    may_know_none = True

    def __init__(
        self,
        *,
        space: str | JointEmbedder = "joint_space",
        cache_folder: str | Path | None = None,
        seed: Seed = 0,
    ) -> None:
        if isinstance(space, str) and space == "none":
            raise ValueError(
                "the score 'fit' needs an embedding space of photos and texts: got space=none"
            )
        self._space, self._cache_folder, self._seed = space, cache_folder, seed
        self._encoders: tuple[JointEmbedder | None, TextEmbedder | None] | None = None
        self._known: dict[tuple[Path, str], float] = {}

    @property
    def opens_photos(self) -> bool:
        """Whether photos are opened; each photo is opened once."""
        return True

    def scores(self, context: Context) -> Tensor:
        """Probabilities in [0, 1]; NaN for removed samples and for samples that cannot be judged.

        Pairs that were judged among more keep their chance; a new one has all judged again.
        """
        live = list(context.live.values())
        pairs = [(sample.image_path, sample.caption) for sample in live]
        if not self._known.keys() >= set(pairs):
            self._known = dict(zip(pairs, self._judged(live), strict=True))
        scores = torch.full((len(context.view.roster),), torch.nan)
        scores[[sample.row for sample in live]] = torch.tensor([self._known[p] for p in pairs])
        return scores

    def _judged(self, live: Sequence[Sample]) -> list[float]:
        """Estimate the probability for each sample's pair of photo and caption."""
        if self._encoders is None:
            self._encoders = build_encoders(self._space, self._cache_folder)
        roster = build_roster("live", live)
        found = caption_fit(look_at(roster, *self._encoders, seed=self._seed))
        tell = log.warning if np.isnan(found.values).all() else log.info
        tell(f"{self.name}: {found.note}")
        for encoder in self._encoders:
            leave_device(encoder)
        return found.values.tolist()
