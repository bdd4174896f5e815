"""Reader of MiniWorld: draw a split on first use, then read the split from its folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from captioning.config.loadable import loadable
from captioning.config.ranges import NonNegativeInt, PositiveInt, Seed
from captioning.data.roster import Roster, build_roster
from captioning.miniworld.build import (
    ANNOTATIONS,
    MANIFEST,
    Settings,
    build,
    make_settings,
    manifest_of,
)
from captioning.miniworld.captions import DECOR, PLACE
from captioning.types import Phrase, Region, Sample


@loadable
def read_miniworld(
    *,
    name: str, folder: str | Path, split: str, num_scenes: PositiveInt, seed: Seed = 0,
    size: PositiveInt = 128, workers: NonNegativeInt = 0, limit: PositiveInt | None = None,
) -> Roster:  # fmt: skip
    """Samples of a MiniWorld split, with five captions per scene; drawn on first use.

    Images and annotations lie in a subfolder named by the settings, so that different settings
    never mix. The subfolder appears complete or not at all, even if several processes build it at
    once.

    Args:
        name: name of the data set, the first part of the roster's.
        folder: folder of MiniWorld.
        split: ``"train"``, ``"val"``, ``"test_in"``, ``"test_near"`` or ``"test_out"``.
        num_scenes: number of images, at least 1.
        seed: seed of all scenes, at least 0.
        size: side length of the images in pixels, 32 to 512.
        workers: number of processes that draw; 0: this process. The result is the same.
        limit: number of scenes to draw and read, from the first; a scene does not depend on it.
            None: all.

    Returns:
        roster ``"{name}/{split}"`` with regions and phrases.

    Raises:
        ValueError: a setting is out of its range, or the annotation file is damaged.
        FileNotFoundError: an image that was drawn is missing.
    """
    if limit is not None:
        num_scenes = min(num_scenes, limit)
    settings = make_settings(split=split, num_scenes=num_scenes, seed=seed, size=size)
    if workers < 0:
        raise ValueError(f"workers must be at least 0: got {workers}")
    target = Path(folder) / settings.folder_name()
    if not (target / MANIFEST).exists():
        build(settings, target, workers=workers)
    return build_roster(f"{name}/{split}", list(_read(settings, target)))


def read_graphs(
    *, folder: str | Path, split: str, num_scenes: int, seed: int = 0, size: int = 128
) -> dict[str, dict[str, Any]]:
    """Graphs of a drawn split, by image id.

    Raises:
        FileNotFoundError: the split was not drawn with these settings.
    """
    settings = make_settings(split=split, num_scenes=num_scenes, seed=seed, size=size)
    return {
        record["image_id"]: record["graph"]
        for record in _records(settings, Path(folder) / settings.folder_name())
    }


def _records(settings: Settings, target: Path) -> list[dict[str, Any]]:
    """Annotation lines, verified against the manifest."""
    path = target / ANNOTATIONS
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing; remove {target} to draw the split again")
    text = path.read_text(encoding="utf-8")
    try:
        manifest = json.loads((target / MANIFEST).read_text(encoding="utf-8"))
    except ValueError:
        manifest = None
    digest = hashlib.sha256(text.rstrip("\n").encode()).hexdigest()
    if manifest != manifest_of(settings, digest):
        raise ValueError(
            f"{path} does not match {MANIFEST} beside it, as it was changed or truncated; remove "
            f"{target} to draw the split again"
        )
    return [json.loads(line) for line in text.splitlines()]


def _box(sides: Sequence[float]) -> tuple[float, float, float, float]:
    x1, y1, x2, y2 = map(float, sides)
    return x1, y1, x2, y2


def _read(settings: Settings, target: Path) -> Iterator[Sample]:
    for record in _records(settings, target):
        path = target / "images" / f"{record['image_id']}.jpg"
        if not path.exists():
            raise FileNotFoundError(f"{path} is missing; remove {target} to draw the split again")
        regions = tuple(
            Region(box=_box(region["box"]), label=region["label"]) for region in record["regions"]
        )
        for number, caption in enumerate(record["captions"]):
            yield Sample(
                row=0, sample_id=f"{record['image_id']}#{number}", image_id=record["image_id"],
                image_path=path, caption=caption["text"], regions=regions,
                phrases=tuple(_phrase(phrase) for phrase in caption["phrases"]),
            )  # fmt: skip


def _phrase(record: dict[str, Any]) -> Phrase:
    node = record["node"]
    return Phrase(
        start=record["start"], text=record["text"], kinds=(record["kind"],),
        chain_id={PLACE: "place", DECOR: "sky"}.get(node, str(node)),
        regions=tuple(record["regions"]),
    )  # fmt: skip
