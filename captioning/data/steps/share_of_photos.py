"""A share of a training set's photos, drawn by a seed.

The CutSwap thesis (Hahn, 2022, section 4.6) trains on 100, 70, 30 and 10% of the photos: on COCO's
train2017, on those of train2014, on those of val2014, and on 12,000 of the latter.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from captioning.config.ranges import Seed, Share
from captioning.data.readers.coco import load_annotations
from captioning.data.roster import Roster, build_roster
from captioning.data.steps.base import AbstractStep, StepContext


@dataclass(frozen=True, kw_only=True)
class ShareOfPhotos(AbstractStep):
    """Keeps the captions of a share of the photos; smaller shares of a seed lie in larger ones.

    Attributes:
        share: of the photos, in (0, 1].
        photos_of: a file of COCO's captions, such as ``pycocoevalcap:captions_train2014``: its
            photos alone remain, and the share is one of them. None: all photos.
        all_words: whether the vocabulary counts the captions that are left out, too.
        seed: of the draw, which the roster's order does not change.

    Raises:
        ValueError: a share out of range.
    """

    share: Share
    photos_of: str | None = None
    all_words: bool = False
    seed: Seed = 0

    def __post_init__(self) -> None:
        if isinstance(self.share, str) or not 0 < self.share <= 1:
            raise ValueError(
                f"steps.share_of_photos.share must be above 0 and at most 1: got {self.share!r}"
            )

    def __call__(self, roster: Roster, context: StepContext) -> Roster:
        """The roster of the share; what it leaves out goes into the context.

        Raises:
            FileNotFoundError: no such file of captions.
            ValueError: a share so small that no photo is left, or no photo of the file.
        """
        photos = self._photos(roster)
        number = round(self.share * len(photos))
        if number == len(roster.rows_by_image):
            return roster
        selected = set(draw_names(photos, self.seed)[:number])
        samples = [sample for sample in roster.samples if sample.image_id in selected]
        if not samples:
            raise ValueError(
                f"steps.share_of_photos.share={self.share} leaves no photo of {roster.name}: "
                "raise it"
            )
        left_out = tuple(sample for sample in roster.samples if sample.image_id not in selected)
        context.left_out = (*context.left_out, *left_out)
        if self.all_words:
            context.words = (*context.words, *left_out)
        context.is_cut = True
        return build_roster(roster.name, samples, roster.dropped)

    def _photos(self, roster: Roster) -> list[str]:
        """Ids of the photos that the share is of."""
        if self.photos_of is None:
            return list(roster.rows_by_image)
        records = load_annotations(self.photos_of).records("images")
        ids = {str(record.identifier("id")) for record in records}
        photos = [image_id for image_id in roster.rows_by_image if image_id in ids]
        if not photos:
            raise ValueError(
                f"steps.share_of_photos.photos_of={self.photos_of} has no photo of {roster.name}: "
                "give captions of the same data"
            )
        return photos


def draw_names(names: Iterable[str], seed: int) -> list[str]:
    """Names in an order that depends on them and on the seed alone."""
    ordered = sorted(names)
    return [ordered[n] for n in np.random.default_rng(seed).permutation(len(ordered))]
