"""Cut windows around the objects that a caption mentions, to train image generators.

A small generator draws few cells. If a photo shows a dozen objects and a caption names one, that
object has a few cells beside others that no prompt explains; in a window around it, it is most of
the picture.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from PIL import Image
from rich.progress import track

from augmentation.regions.boxes import area, clipped
from augmentation.set_folder import data_identity
from captioning.config.loadable import loadable
from captioning.config.ranges import Seed, Share
from captioning.data.batches.controls import mentioned_regions
from captioning.data.roster import Roster, build_roster
from captioning.runtime.files import write_atomically
from captioning.types import Phrase, Region, Sample
from captioning.vision.photo_keys import PhotoKeys
from captioning.vision.photos import load_rgb

Window = tuple[int, int, int, int]
MIN_VISIBLE_SHARE = 0.5
"""Share of a box that a window must show so that the box is kept."""


@loadable
def read_closeups(
    *,
    name: str,
    roster: Roster,
    folder: str | Path,
    margins: tuple[float, float] = (0.2, 0.3),
    smallest: Share = 0.25,
    centred: bool = True,
    keep_photos: bool = False,
    seed: Seed = 0,
) -> Roster:
    """Read a dataset with a close-up for each set of objects that a photo's captions mention.

    Captions that name the same boxes share a close-up; those that name none keep the photo.

    Args:
        name: name of the new roster.
        roster: photos whose captions are grounded in boxes.
        folder: holds the windows, which are written once, and again where a photo changed.
        margins: smallest and largest room on each side, as share of the boxes' longer side; drawn
            for each window.
        smallest: smallest side of a window, as share of the photo's shorter side.
        centred: put the boxes into the middle, where the photo's edges leave room; otherwise
            anywhere within. A generator learns shapes sooner where it need not learn places.
        keep_photos: keep the photos too, with all of their captions.
        seed: seed of margins and places.

    Raises:
        ValueError: no caption of the roster is grounded, or settings out of range.
        OSError: a photo cannot be read, or a window cannot be written.
    """
    if not 0 <= margins[0] <= margins[1] or not 0 < smallest <= 1:
        raise ValueError(
            "close-ups need margins with 0 <= first <= second, and smallest in (0, 1]: got "
            f"{tuple(margins)} and {smallest}"
        )
    if not any(map(mentioned_regions, roster.samples)):
        raise ValueError(f"close-ups need captions with boxes, but {roster.name} has none")
    settings = {"margins": tuple(margins), "smallest": smallest, "centred": centred, "seed": seed}
    identity = [settings, roster.fingerprint, data_identity(roster)["boxes"]]
    digest = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:12]
    photos = list(roster.rows_by_image.values())
    keys = PhotoKeys(None)(roster.samples[rows[0]].image_path for rows in photos)
    cutter = _Cutter(folder=Path(folder) / digest, photo_keys=keys, **settings)
    closeups: list[Sample] = []
    for rows in track(photos, description="close-ups", disable=len(photos) < 100):
        samples = [roster.samples[row] for row in rows]
        closeups += samples if keep_photos else []
        closeups += cutter.closeups(samples, keep_photos=keep_photos)
    return build_roster(name, closeups)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Cutter:
    folder: Path
    photo_keys: Mapping[Path, str]
    margins: tuple[float, float]
    smallest: float
    centred: bool
    seed: int

    def closeups(self, samples: Sequence[Sample], *, keep_photos: bool) -> Iterator[Sample]:
        """Samples of a photo, each cropped to the window around its objects."""
        groups: dict[tuple[int, ...], list[Sample]] = {}
        for sample in samples:
            groups.setdefault(tuple(sorted(mentioned_regions(sample))), []).append(sample)
        photo = load_rgb(samples[0].image_path)
        for boxes, members in groups.items():
            if boxes:
                yield from self._cut_window(photo, members, boxes)
            elif not keep_photos:
                yield from members

    def _cut_window(
        self, photo: Image.Image, members: list[Sample], boxes: tuple[int, ...]
    ) -> Iterator[Sample]:
        first = members[0]
        name = "-".join(map(str, boxes))
        image_id = f"{first.image_id}@{name}"
        draw = random.Random(f"{self.seed} {image_id}")
        window = self._window([first.regions[index].box for index in boxes], photo.size, draw)
        # of the photo's content too: another photo may come under its name
        key = self.photo_keys[first.image_path][:8]
        path = self.folder / f"{image_id.replace('/', '_')}-{key}.png"
        if not path.is_file():
            write_atomically(path, photo.crop(window).save)
        regions, new_index = regions_within(first.regions, window)
        for member in members:
            yield dataclasses.replace(
                member,
                sample_id=f"{member.sample_id}@{name}",
                image_id=image_id,
                image_path=path,
                regions=regions,
                phrases=tuple(_moved(phrase, new_index) for phrase in member.phrases),
            )

    def _window(
        self, boxes: list[tuple[float, ...]], size: tuple[int, int], draw: random.Random
    ) -> Window:
        """Square window around boxes, inside the photo and at most as large as its shorter side."""
        spans = [(min(b[a] for b in boxes), max(b[a + 2] for b in boxes)) for a in (0, 1)]
        longest = max(end - start for start, end in spans)
        room = longest * (1 + 2 * draw.uniform(*self.margins))
        side = min(min(size), round(max(room, self.smallest * min(size))))
        left, top = (
            self._start(span, side, length, draw) for span, length in zip(spans, size, strict=True)
        )
        return left, top, left + side, top + side

    def _start(self, span: tuple[float, float], side: int, length: int, draw: random.Random) -> int:
        """Start of a window of length ``side`` that contains the whole span, if possible."""
        min_start, max_start = sorted((span[1] - side, span[0]))
        start = (min_start + max_start) / 2 if self.centred else draw.uniform(min_start, max_start)
        return min(max(0, round(start)), length - side)


def regions_within(
    regions: Sequence[Region], window: Window
) -> tuple[tuple[Region, ...], dict[int, int]]:
    """Regions of a photo within a window, and the new index of each kept region.

    A region is kept if at least half of its area lies within.
    """
    left, top, right, bottom = window
    new_index: dict[int, int] = {}
    inside: list[Region] = []
    for index, region in enumerate(regions):
        x1, y1, x2, y2 = region.box
        visible = clipped((x1 - left, y1 - top, x2 - left, y2 - top), (right - left, bottom - top))
        if visible is None or area(visible) < MIN_VISIBLE_SHARE * area(region.box):
            continue
        new_index[index] = len(inside)
        inside.append(dataclasses.replace(region, box=visible))
    return tuple(inside), new_index


def _moved(phrase: Phrase, new_index: dict[int, int]) -> Phrase:
    return dataclasses.replace(
        phrase, regions=tuple(new_index[index] for index in phrase.regions if index in new_index)
    )
