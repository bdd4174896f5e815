"""The reader of MiniWorld: draws a split on first use, then reads it from its folder."""

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
    """The samples of a MiniWorld split, five captions a scene; drawn on first use.

    Pictures and annotations lie in a folder below ``folder`` whose name gives the settings, so that
    different settings never mix. It appears complete or not at all, even if other processes build
    it at the same time.

    Args:
        name: name of the data set, the first part of the roster's.
        folder: folder of MiniWorld.
        split: ``"train"``, ``"val"``, ``"test_in"``, ``"test_near"`` or ``"test_out"``.
        num_scenes: number of pictures, at least 1.
        seed: seed of all scenes, at least 0.
        size: side of the pictures in pixels, 32 to 512.
        workers: processes that draw; 0 draws in this one. The result is the same.
        limit: draw and read only the first so many scenes; a scene depends on its number, not on
            the total. None: all.

    Returns:
        roster ``"{name}/{split}"`` with regions and phrases.

    Raises:
        ValueError: a setting out of its range, or a broken annotation file.
        FileNotFoundError: a picture that was drawn is gone.
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
    """Graphs of a split that was drawn, by image id.

    Raises:
        FileNotFoundError: the split was not drawn with these settings.
    """
    settings = make_settings(split=split, num_scenes=num_scenes, seed=seed, size=size)
    return {
        record["image_id"]: record["graph"]
        for record in _records(settings, Path(folder) / settings.folder_name())
    }


def _records(settings: Settings, target: Path) -> list[dict[str, Any]]:
    """The annotation lines, checked against the manifest."""
    path = target / ANNOTATIONS
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing; remove {target} and it is drawn again")
    text = path.read_text(encoding="utf-8")
    try:
        manifest = json.loads((target / MANIFEST).read_text(encoding="utf-8"))
    except ValueError:
        manifest = None
    digest = hashlib.sha256(text.rstrip("\n").encode()).hexdigest()
    if manifest != manifest_of(settings, digest):
        raise ValueError(
            f"{path} does not match {MANIFEST} beside it: it was changed or cut short; "
            f"remove {target} and it is drawn again"
        )
    return [json.loads(line) for line in text.splitlines()]


def _box(sides: Sequence[float]) -> tuple[float, float, float, float]:
    x1, y1, x2, y2 = map(float, sides)
    return x1, y1, x2, y2


def _read(settings: Settings, target: Path) -> Iterator[Sample]:
    for record in _records(settings, target):
        path = target / "images" / f"{record['image_id']}.jpg"
        if not path.exists():
            raise FileNotFoundError(f"{path} is missing; remove {target} and it is drawn again")
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
