"""Steps that add augmented pairs and captions to a training set, or select a share of photos.

The CutSwap thesis (Hahn, 2022, section 4.6) trains on 100, 70, 30 and 10% of the photos: on COCO's
train2017, on those of train2014, on those of val2014, and on 12,000 of the latter. It adds 10, 20
and 30% as many augmented pairs as there are photos, of these photos alone, and trains for the same
number of updates.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np

from captioning.config.ranges import NonNegativeFloat, Seed, Share
from captioning.data.line_files import read_lines
from captioning.data.readers.coco import load_annotations, read_coco
from captioning.data.roster import Roster, build_roster
from captioning.data.steps.added_captions import FILE, Mixture, read_added_captions
from captioning.data.steps.base import AbstractStep, StepContext
from captioning.types import UNPAIRED, Sample

log = logging.getLogger(__name__)

ADDED = "added:"


"""How origins of added pairs begin; the name of their folder follows."""
UNITS = ("photos", "captions")
PROVENANCE = "provenance.jsonl"


@dataclass(frozen=True, kw_only=True)
class AddPairs(AbstractStep):
    """Step that adds pairs from ``captioning augment``; the samples' origin is ``added:FOLDER``.

    Where an earlier step left photos or all their captions out, only pairs that were pasted onto
    remaining photos are taken (their patches may come from others), and only captions made for
    these, so that no photo comes back this way. Pictures of a folder without ``provenance.jsonl``
    count as separate photos, and all are taken.

    Attributes:
        folders: folders of pictures with captions, or of captions of the data's own photos.
        share: number of pictures to draw, as a share of the roster's photos; None takes all.
        share_of: ``"captions"``: as many pairs as this share of the roster's captions, in whole
            pictures; ``"photos"``: see ``share``.
        seed: seed of the draw of pictures.
        count_words: whether the vocabulary counts the pairs' words, too; False: it is the one of
            training without pairs.
        mixture: selects captions of the data's own photos.

    Raises:
        ValueError: another ``share_of``, or a negative share.
    """

    folders: Sequence[str | Path]
    share: NonNegativeFloat | None = None
    share_of: Literal["photos", "captions"] = "photos"
    seed: Seed = 0
    count_words: bool = True
    mixture: Mixture = field(default_factory=Mixture)

    def __post_init__(self) -> None:
        if self.share_of not in UNITS:
            raise ValueError(
                f"steps.add_pairs.share_of must be photos or captions: got {self.share_of!r}"
            )
        if self.share is not None and (isinstance(self.share, str) or self.share < 0):
            raise ValueError(
                f"steps.add_pairs.share must be at least 0, or null for all: got {self.share!r}"
            )

    def __call__(self, roster: Roster, context: StepContext) -> Roster:
        """Return the roster with the pairs appended.

        Raises:
            FileNotFoundError: a folder without finished pairs.
            ValueError: fewer pairs than the share asks for.
        """
        folders = [Path(folder) for folder in self.folders]
        captioned = [folder for folder in folders if (folder / FILE).is_file()]
        pasted = [folder for folder in folders if folder not in captioned]
        pairs = [
            pair for folder in pasted for pair in _pairs(folder, roster, is_cut=context.is_cut)
        ]
        if self.share is not None and pasted:
            pairs = self._draw_share(pairs, roster, self.share)
        paired = _paired_photos(roster)
        captions = [
            caption
            for folder in captioned
            for caption in read_added_captions(folder, roster)
            if caption.image_id in paired
        ]
        pairs += self.mixture(roster.samples, captions)
        if not self.count_words:
            context.uncounted = context.uncounted | {pair.origin for pair in pairs}
        log.info(f"{len(pairs)} pairs added from {', '.join(map(str, folders))}")
        return build_roster(roster.name, [*roster.samples, *pairs], roster.dropped)

    def _draw_share(self, pairs: Sequence[Sample], roster: Roster, share: float) -> list[Sample]:
        """Select pairs of the first pictures, in a seeded random order, up to the share."""
        sizes = Counter(_name(pair) for pair in pairs)
        total = len(roster.rows_by_image if self.share_of == "photos" else roster.samples)
        target = round(share * total)
        units = sizes if self.share_of == "captions" else dict.fromkeys(sizes, 1)
        if target > sum(units.values()):
            raise ValueError(
                f"steps.add_pairs.share={share} of {total} {self.share_of} needs {target}, but the "
                f"folders have {sum(units.values())} that fit; generate more, or lower the share"
            )
        selected, total_units = set(), 0
        for name in draw_names(sizes, self.seed):
            if total_units >= target:
                break
            selected.add(name)
            total_units += units[name]
        return [pair for pair in pairs if _name(pair) in selected]


def is_added(sample: Sample) -> bool:
    """Whether a caption was added by `AddPairs`."""
    return sample.origin.startswith(ADDED)


def original_samples(roster: Roster) -> list[Sample]:
    """Return the captions of a roster that were not added."""
    return [sample for sample in roster.samples if not is_added(sample)]


def photo_ids(samples: Sequence[Sample]) -> list[str]:
    """Return the ``image_id`` of the photo that each caption describes.

    A picture that `AddPairs` added is the photo that it was pasted onto, as ``provenance.jsonl`` of
    its folder tells; if that file is missing, it counts as a separate photo.
    """
    known: dict[Path, dict[str, str]] = {}
    ids = []
    for sample in samples:
        folder = sample.image_path.parent.parent
        # captions that were made for the data's own photos lie in another folder
        if sample.origin == f"{ADDED}{folder.name}" and folder not in known:
            known[folder] = _target_photos(folder) if (folder / PROVENANCE).is_file() else {}
        targets = known.get(folder, {}) if is_added(sample) else {}
        ids.append(targets.get(sample.image_id, sample.image_id))
    return ids


def _target_photos(folder: Path) -> dict[str, str]:
    """Return the ``image_id`` of the photo onto which each picture was pasted, by its name."""
    records = (json.loads(line) for _, line in read_lines(folder / PROVENANCE))
    return {r["name"]: r["target"]["image_id"] for r in records if "refused" not in r}


def _pairs(folder: Path, roster: Roster, *, is_cut: bool) -> list[Sample]:
    if not (folder / "captions.json").is_file():
        raise FileNotFoundError(
            f"steps.add_pairs.folders: {folder} has no captions.json and no {FILE}; give a folder "
            "that captioning augment has written to its end"
        )
    generated = read_coco(
        name=str(folder),
        annotations=folder / "captions.json",
        image_folder=folder / "images",
        instances=folder / "instances.json",
    )
    pairs = [replace(sample, origin=f"{ADDED}{folder.name}") for sample in generated.samples]
    if not is_cut or not (folder / PROVENANCE).is_file():  # pictures of their own
        return pairs
    photos, paired = _target_photos(folder), _paired_photos(roster)
    return [pair for pair in pairs if photos[pair.image_id] in paired]


def _paired_photos(roster: Roster) -> set[str]:
    """Return photos with a caption; photos of held-out classes may have none yet."""
    return {sample.image_id for sample in roster.samples if sample.origin != UNPAIRED}


def _name(pair: Sample) -> str:
    return f"{pair.origin}/{pair.image_id}"


@dataclass(frozen=True, kw_only=True)
class ShareOfPhotos(AbstractStep):
    """Step that keeps the captions of a share of the photos; smaller shares are subsets.

    Attributes:
        share: share of the photos, in (0, 1].
        photos_of: a file of COCO's captions, such as ``pycocoevalcap:captions_train2014``: its
            photos alone remain, and the share is one of them. None: all photos.
        all_words: whether the vocabulary counts the captions that are left out, too.
        seed: seed of the draw, which the roster's order does not change.

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
        """Return the roster of the share; store the removed captions in the context.

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
        """Return the ids of the photos from which the share is taken."""
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
    """Return names in an order that depends only on the names and the seed."""
    ordered = sorted(names)
    return [ordered[n] for n in np.random.default_rng(seed).permutation(len(ordered))]
