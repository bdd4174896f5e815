"""Proposals made into pictures, each with a record of where its pixels come from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
from PIL import Image

from augmentation.regions.boxes import area, aspect, change, clipped
from augmentation.regions.paste import Blending, Paste, Pasted, PhotoShelf, paste
from augmentation.regions.proposal import Proposal
from augmentation.regions.ranking import Ranker
from captioning.files import write_atomically
from captioning.ranges import NonNegativeInt

NO_PHOTO = "photo missing"
UNREADABLE = "photo unreadable"
TOO_UNLIKE = "similarity below the threshold"
NOT_BEST = "others of the same caption fit better"
FORMATS = ("png", "jpg")
OWNERS = ("none", "rle", "png")
Record = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureFormat:
    """How pictures are made and kept.

    Attributes:
        blending: of patches with the photo.
        suffix: ``"png"`` is lossless, ``"jpg"`` of high quality and a third of its size.
        quality: of JPEG, 1 to 95.
        owners: keep the map of each pixel's paste as run lengths in the record (``"rle"``), as a
            grey picture of paste numbers (``"png"``), or not.
        shelf: decoded photos that each process keeps.

    Raises:
        ValueError: an unknown suffix or kind of map, or a quality out of range.
    """

    blending: Blending
    suffix: Literal["png", "jpg"] = "jpg"
    quality: int = 95
    owners: Literal["none", "rle", "png"] = "none"
    shelf: NonNegativeInt = 64

    def __post_init__(self) -> None:
        if self.suffix not in FORMATS or self.owners not in OWNERS:
            raise ValueError(
                f"suffix must be one of {FORMATS} and owners one of {OWNERS}: got "
                f"{self.suffix!r} and {self.owners!r}"
            )
        if not 1 <= self.quality <= 95 or self.shelf < 1:
            raise ValueError(f"quality must be 1 to 95 and shelf at least 1: got {self}")


class Renderer:
    """Makes pictures into a folder.

    Args:
        folder: of the set; pictures go to ``images`` and maps to ``owners`` in it.
        form: of the pictures.
        ranker: chooses among candidates; None makes all of them.
    """

    def __init__(self, *, folder: Path, form: PictureFormat, ranker: Ranker | None = None) -> None:
        self.folder, self.form, self._ranker = folder, form, ranker
        self._shelf = PhotoShelf(most=form.shelf)

    def records(self, candidates: Sequence[Proposal]) -> list[Record]:
        """Make the pictures of candidates, or of the best of them, the best first.

        Where pairs are ranked, candidates that are not made are counted by reason.

        Raises:
            OSError: a picture cannot be written.
        """
        if self._ranker is None:
            return [self.record(proposal) for proposal in candidates]
        refused: Counter[str] = Counter()
        rendered: list[Proposal] = []
        scores = self._ranker.scores(self._pairs(candidates, rendered, refused))
        kept = self._ranker.kept(scores)
        records = [self.record(rendered[n]) | {"similarity": float(scores[n])} for n in kept]
        low = int((scores < self._ranker.threshold.value).sum())
        refused.update({TOO_UNLIKE: low, NOT_BEST: len(rendered) - low - len(kept)})
        rest: Record = {"name": candidates[0].name, "candidates": len(candidates)}
        rest["refused"] = {why: number for why, number in sorted(refused.items()) if number}
        rest["best"] = float(scores.max()) if len(scores) else None
        return [*records, rest]

    def _pairs(
        self, candidates: Sequence[Proposal], rendered: list[Proposal], refused: Counter[str]
    ) -> Iterator[tuple[Image.Image, str]]:
        """Pictures with captions; the proposals are added to ``made`` or counted as refused."""
        for proposal in candidates:
            done = self.pasted(proposal)
            if isinstance(done, str):
                refused[done] += 1
            else:
                rendered.append(proposal)
                yield Image.fromarray(done.picture), proposal.captions[0]

    def pasted(self, proposal: Proposal) -> Pasted | str:
        """The finished picture, or why there is none."""
        try:
            target = self._shelf.photo(proposal.image_path)
            sources = [self._shelf.photo(move.source) for move in proposal.pastes]
        except FileNotFoundError:
            return NO_PHOTO
        except ValueError:
            return UNREADABLE
        done = paste(
            np.asarray(target),
            proposal.pastes,
            sources,
            blending=self.form.blending,
            kept=proposal.kept,
        )
        return done.problem or done

    def record(self, proposal: Proposal) -> Record:
        """Make a picture and say where its parts come from, or why there is none.

        Raises:
            OSError: the picture cannot be written.
        """
        done = self.pasted(proposal)
        if isinstance(done, str):
            return {"name": proposal.name, "refused": done}
        file_name = f"{proposal.name}.{self.form.suffix}"
        self._save(Image.fromarray(done.picture), self.folder / "images" / file_name)
        height, width = done.owners.shape
        record = _record(proposal, file_name, (width, height), done.owners)
        if self.form.owners == "rle":
            record["owners"] = run_lengths(done.owners)
        elif self.form.owners == "png":
            path = self.folder / "owners" / f"{proposal.name}.png"
            write_atomically(path, lambda part: Image.fromarray(done.owners).save(part))
        return record

    def _save(self, picture: Image.Image, path: Path) -> None:
        if self.form.suffix == "png":
            write_atomically(path, lambda part: picture.save(part, compress_level=1))
        else:
            settings: dict[str, Any] = {"quality": self.form.quality, "subsampling": 0}
            write_atomically(path, lambda part: picture.save(part, **settings))


def run_lengths(owners: np.ndarray) -> list[int]:
    """A map as owner, length, owner, length, ... of its pixels row by row."""
    changes = np.flatnonzero(np.diff(owners.ravel())) + 1
    bounds = [0, *changes.tolist(), owners.size]
    flat = owners.ravel()
    return [v for a, b in pairwise(bounds) for v in (int(flat[a]), b - a)]


def from_run_lengths(runs: Sequence[int], *, width: int, height: int) -> np.ndarray:
    """The map ``(H, W) uint8`` that `run_lengths` was made from."""
    values = np.asarray(runs, np.int64).reshape(-1, 2)
    return np.repeat(values[:, 0], values[:, 1]).astype(np.uint8).reshape(height, width)


def _record(
    proposal: Proposal, file_name: str, size: tuple[int, int], owners: np.ndarray
) -> Record:
    regions = [(r.label, clipped(r.box, size)) for r in proposal.regions]
    counts = np.bincount(owners.ravel(), minlength=len(proposal.pastes) + 1).tolist()
    return {
        "name": proposal.name,
        "file_name": file_name,
        "size": list(size),
        "target": {"image_id": proposal.image_id, "photo": proposal.image_path.name},
        "pastes": [_move(m, counts[number]) for number, m in enumerate(proposal.pastes, start=1)],
        "kept": [list(box) for box in proposal.kept],
        "before": list(proposal.before),
        "captions": list(proposal.captions),
        "regions": [{"label": label, "box": list(box)} for label, box in regions if box],
        "notes": proposal.notes,
    }


def _move(move: Paste, num_pixels: int) -> Record:
    source, target = move.source_box, move.target_box
    return {
        "label": move.label,
        "photo": move.source.name,
        "source_box": list(source),
        "target_box": list(target),
        "area_change": round(change(area(source), area(target)), 4),
        "aspect_change": round(change(aspect(source), aspect(target)), 4),
        "pixels": num_pixels,
    }
