"""The chance that a caption does not belong to its photo, estimated from the set itself."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from captioning.data.roster import build_roster
from captioning.interfaces import JointEmbedder, TextEmbedder
from captioning.ranges import Seed
from curation.base import AbstractScore, Context
from curation.check.fit import caption_fit
from curation.check.run import build_encoders
from curation.check.seen import look_at

log = logging.getLogger(__name__)


class Fit(AbstractScore):
    """The check ``fit`` of ``captioning check`` as a score, see `curation.check.fit.caption_fit`.

    A caption of a photo with several is compared with the photo and with the photo's other
    captions, a single one with the photo. Captions at random other photos show how wrong ones look;
    the share of wrong ones is estimated beside the chances. Where the space can hardly tell given
    pairs from random ones, every score is NaN and nothing is selected.

    Args:
        space: of photos and texts, a built one or a name, see `curation.check.run.check`.
        cache_folder: where embeddings of captions are kept; None: nowhere.
        seed: of the random pairs.

    Raises:
        FileNotFoundError, ValueError: an unknown space.
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
            raise ValueError("the score 'fit' needs a space of photos and texts: got space=none")
        self._space, self._cache_folder, self._seed = space, cache_folder, seed
        self._encoders: tuple[JointEmbedder | None, TextEmbedder | None] | None = None

    @property
    def opens_photos(self) -> bool:
        """Each of them once."""
        return True

    def scores(self, context: Context) -> Tensor:
        """In [0, 1]; NaN for samples that are not live or cannot be judged."""
        if self._encoders is None:
            self._encoders = build_encoders(self._space, self._cache_folder)
        live = list(context.live.values())
        roster = build_roster(context.view.roster.name, live)
        found = caption_fit(look_at(roster, *self._encoders, seed=self._seed))
        tell = log.warning if np.isnan(found.values).all() else log.info
        tell(f"{self.name}: {found.note}")
        scores = np.full(len(context.view.roster), np.nan, np.float32)
        scores[[sample.row for sample in live]] = found.values
        return torch.from_numpy(scores)
