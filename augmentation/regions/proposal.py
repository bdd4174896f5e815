"""A proposal describes one augmented pair (pastes and captions) before any pixel is changed."""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from augmentation.regions.boxes import area, intersection_area
from augmentation.regions.paste import Paste
from augmentation.regions.reranking import Threshold
from captioning.data.roster import Roster
from captioning.types import Box, Region

HIDDEN = 0.9  # a box of which a larger share lies under a patch is no longer visible


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A planned image, with captions that fit the finished image.

    Attributes:
        name: unique in the set and the same in every run; made into the picture's file name.
        image_id: image id of the photo pasted onto.
        image_path: path of that photo.
        before: its captions that were edited, one for each of ``captions``.
        pastes: patches with their targets; their sources are photos.
        captions: captions of the finished picture.
        regions: regions of the finished picture.
        protected: boxes of the photo that no patch may cover.
        notes: plain values worth keeping beside the picture.

    Raises:
        ValueError: pastes or captions are missing, or the captions do not match ``before``.
    """

    name: str
    image_id: str
    image_path: Path
    before: tuple[str, ...]
    pastes: tuple[Paste, ...]
    captions: tuple[str, ...]
    regions: tuple[Region, ...]
    protected: tuple[Box, ...] = ()
    notes: dict[str, Any]

    def __post_init__(self) -> None:
        if not self.pastes or not self.captions or len(self.captions) != len(self.before):
            raise ValueError(
                f"{self.name}: a proposal needs pastes, and a new caption for each old one: got "
                f"{len(self.pastes)} pastes, {len(self.captions)} new and {len(self.before)} old "
                "captions"
            )


class AbstractRegionMethod(ABC):
    """Proposes new pairs; equal roster, settings and seed give equal proposals."""

    @abstractmethod
    def candidates(self, roster: Roster) -> Iterator[tuple[Proposal, ...]]:
        """Proposals in an order that is independent of the roster's order and of earlier calls.

        Proposals of one tuple compete where pairs are ranked
        (`augmentation.regions.reranking.Ranker`); without ranking, all proposals are rendered.

        Args:
            roster: photos with boxes and captions.

        Raises:
            ValueError: the roster lacks what the method needs.
        """

    @abstractmethod
    def report(self) -> dict[str, Any]:
        """Counts of used data, and of unused data by reason; called after `candidates` has ended.

        Plain values. Names of counts by reason say that they are such.
        """

    def threshold(self, roster: Roster) -> Threshold | None:
        """Similarity below which pairs are discarded; None if pairs are not ranked."""
        del roster

    def finish(self, folder: Path, roster: Roster) -> None:
        """Write additional files about a finished dataset into its folder."""
        del folder, roster


def draw_key(seed: int, *names: str) -> str:
    """Pseudo-random sort key that depends only on the seed and the names."""
    text = "\x1f".join((str(seed), *names))
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=12).hexdigest()


def drawn_generator(seed: int, *names: str) -> np.random.Generator:
    """Random generator that depends only on the seed and the names."""
    return np.random.default_rng(int(draw_key(seed, *names), 16))


def finished_regions(
    regions: Sequence[Region], pastes: Sequence[Paste], protected: Sequence[Region]
) -> tuple[Region, ...]:
    """Regions of the finished image: visible original regions, and pasted regions."""
    boxes = [paste.target_box for paste in pastes]
    visible = [
        region
        for region in regions
        if region in protected
        or all(intersection_area(region.box, box) <= HIDDEN * area(region.box) for box in boxes)
    ]
    pasted = [Region(box=paste.target_box, label=paste.label) for paste in pastes]
    return (*visible, *pasted)


def file_name(*parts: str) -> str:
    """Build a file name from arbitrary names; different names give different file names."""
    plain = "-".join(parts)
    safe = re.sub(r"[^A-Za-z0-9_.-]+", "_", plain)
    return safe if safe == plain else f"{safe}-{draw_key(0, *parts)[:8]}"
