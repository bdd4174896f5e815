"""Render proposals as images, and record the source photo of all pasted pixels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
from PIL import Image

from augmentation.regions.boxes import area, aspect, clipped, relative_change
from augmentation.regions.paste import Blending, Paste, Pasted, PhotoCache, paste
from augmentation.regions.proposal import Proposal
from augmentation.regions.reranking import Ranker
from captioning.config.ranges import NonNegativeInt
from captioning.runtime.files import write_atomically

NO_PHOTO = "photo missing"
UNREADABLE = "photo unreadable"
TOO_UNLIKE = "similarity below the threshold"
NOT_BEST = "others of the same caption fit better"
FORMATS = ("png", "jpg")
OWNERS = ("none", "rle", "png")
PictureRecord = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureFormat:
    """Settings for rendering and saving images.

    Attributes:
        blending: blending of patches with the photo.
        suffix: ``"png"`` is lossless, ``"jpg"`` of high quality and a third of its size.
        quality: quality of JPEG, 1 to 95.
        owners: keep the map of each pixel's paste as run lengths in the record (``"rle"``), as a
            grey picture of paste numbers (``"png"``), or not.
        num_cached_photos: decoded photos that each process keeps in memory.

    Raises:
        ValueError: ``suffix`` or ``owners`` is unknown, or a number is out of range.
    """

    blending: Blending
    suffix: Literal["png", "jpg"] = "jpg"
    quality: int = 95
    owners: Literal["none", "rle", "png"] = "none"
    num_cached_photos: NonNegativeInt = 64

    def __post_init__(self) -> None:
        if self.suffix not in FORMATS or self.owners not in OWNERS:
            raise ValueError(
                f"suffix must be one of {FORMATS} and owners must be one of {OWNERS}: got "
                f"{self.suffix!r} and {self.owners!r}"
            )
        if not 1 <= self.quality <= 95 or self.num_cached_photos < 1:
            raise ValueError(
                f"quality must be 1 to 95, and num_cached_photos at least 1: got {self}"
            )


class Renderer:
    """Renders the images of proposals into a folder.

    Args:
        folder: the set's folder; pictures go to ``images`` and maps to ``owners`` in it.
        picture_format: format of the pictures.
        ranker: selects among candidates; None: all are made.
    """

    def __init__(
        self, *, folder: Path, picture_format: PictureFormat, ranker: Ranker | None = None
    ) -> None:
        self.folder, self.picture_format, self._ranker = folder, picture_format, ranker
        self._photo_cache = PhotoCache(capacity=picture_format.num_cached_photos)

    def records(self, candidates: Sequence[Proposal]) -> list[PictureRecord]:
        """Render the candidates, or only the best candidates, best first.

        Where pairs are ranked, candidates that are not made are counted by reason.

        Raises:
            OSError: a picture cannot be written.
        """
        if self._ranker is None:
            return [self.record(proposal) for proposal in candidates]
        refused: Counter[str] = Counter()
        rendered: list[Proposal] = []
        scores = self._ranker.scores(self._pairs(candidates, rendered, refused))
        selected = self._ranker.selected(scores)
        records = [self.record(rendered[n]) | {"similarity": float(scores[n])} for n in selected]
        num_unlike = int((scores < self._ranker.threshold.value).sum())
        refused.update(
            {TOO_UNLIKE: num_unlike, NOT_BEST: len(rendered) - num_unlike - len(selected)}
        )
        summary: PictureRecord = {"name": candidates[0].name, "candidates": len(candidates)}
        summary["refused"] = {
            reason: number for reason, number in sorted(refused.items()) if number
        }
        summary["best"] = float(scores.max()) if len(scores) else None
        return [*records, summary]

    def _pairs(
        self, candidates: Sequence[Proposal], rendered: list[Proposal], refused: Counter[str]
    ) -> Iterator[tuple[Image.Image, str]]:
        """Yield images with captions; add proposals to ``rendered`` or count them as rejected."""
        for proposal in candidates:
            result = self.paste_patches(proposal)
            if isinstance(result, str):
                refused[result] += 1
            else:
                rendered.append(proposal)
                yield Image.fromarray(result.picture), proposal.captions[0]

    def paste_patches(self, proposal: Proposal) -> Pasted | str:
        """Return the finished image, or the reason why there is none."""
        try:
            target = self._photo_cache.photo(proposal.image_path)
            sources = [self._photo_cache.photo(move.source) for move in proposal.pastes]
        except FileNotFoundError:
            return NO_PHOTO
        except ValueError:
            return UNREADABLE
        result = paste(
            np.asarray(target),
            proposal.pastes,
            sources,
            blending=self.picture_format.blending,
            protected=proposal.protected,
        )
        return result.problem or result

    def record(self, proposal: Proposal) -> PictureRecord:
        """Render an image and record the source of its parts, or return the reason for failure.

        Raises:
            OSError: the picture cannot be written.
        """
        result = self.paste_patches(proposal)
        if isinstance(result, str):
            return {"name": proposal.name, "refused": result}
        file_name = f"{proposal.name}.{self.picture_format.suffix}"
        self._save(Image.fromarray(result.picture), self.folder / "images" / file_name)
        height, width = result.owners.shape
        record = _record(proposal, file_name, (width, height), result.owners)
        if self.picture_format.owners == "rle":
            record["owners"] = run_lengths(result.owners)
        elif self.picture_format.owners == "png":
            path = self.folder / "owners" / f"{proposal.name}.png"
            write_atomically(path, lambda part: Image.fromarray(result.owners).save(part))
        return record

    def _save(self, picture: Image.Image, path: Path) -> None:
        if self.picture_format.suffix == "png":
            write_atomically(path, lambda part: picture.save(part, compress_level=1))
        else:
            settings: dict[str, Any] = {"quality": self.picture_format.quality, "subsampling": 0}
            write_atomically(path, lambda part: picture.save(part, **settings))


def run_lengths(owners: np.ndarray) -> list[int]:
    """Run-length encode a map row by row as owner, length, owner, length, and so on."""
    changes = np.flatnonzero(np.diff(owners.ravel())) + 1
    bounds = [0, *changes.tolist(), owners.size]
    flat = owners.ravel()
    return [v for a, b in pairwise(bounds) for v in (int(flat[a]), b - a)]


def from_run_lengths(runs: Sequence[int], *, width: int, height: int) -> np.ndarray:
    """Decode a map ``(H, W) uint8`` from the result of `run_lengths`."""
    values = np.asarray(runs, np.int64).reshape(-1, 2)
    return np.repeat(values[:, 0], values[:, 1]).astype(np.uint8).reshape(height, width)


def _record(
    proposal: Proposal, file_name: str, size: tuple[int, int], owners: np.ndarray
) -> PictureRecord:
    regions = [(r.label, clipped(r.box, size)) for r in proposal.regions]
    counts = np.bincount(owners.ravel(), minlength=len(proposal.pastes) + 1).tolist()
    return {
        "name": proposal.name,
        "file_name": file_name,
        "size": list(size),
        "target": {"image_id": proposal.image_id, "photo": proposal.image_path.name},
        "pastes": [
            _paste_record(m, counts[number]) for number, m in enumerate(proposal.pastes, start=1)
        ],
        "kept": [list(box) for box in proposal.protected],
        "before": list(proposal.before),
        "captions": list(proposal.captions),
        "regions": [{"label": label, "box": list(box)} for label, box in regions if box],
        "notes": proposal.notes,
    }


def _paste_record(paste_move: Paste, num_pixels: int) -> PictureRecord:
    source, target = paste_move.source_box, paste_move.target_box
    return {
        "label": paste_move.label,
        "photo": paste_move.source.name,
        "source_box": list(source),
        "target_box": list(target),
        "area_change": round(relative_change(area(source), area(target)), 4),
        "aspect_change": round(relative_change(aspect(source), aspect(target)), 4),
        "pixels": num_pixels,
    }
