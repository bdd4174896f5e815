"""Step that replaces annotated boxes by a detector's boxes, and the format of their files.

The first line names the detector, such as ``{"detector": "torchvision:...", "threshold": 0.5}``.
Every other line is ``{"image_id": "1000", "file_name": "1000.jpg", "size": [640, 480], "regions":
[{"box": [x1, y1, x2, y2], "label": "dog", "score": 0.93}, ...]}``, boxes in pixels. Lines are only
appended, so a command that was stopped resumes where it stopped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from captioning.data.annotated_boxes import checked_box
from captioning.data.json_files import Record, load_json_lines
from captioning.data.roster import Roster, build_roster
from captioning.data.steps.base import CORPUS, AbstractStep, StepContext
from captioning.types import Region

RegionsByImage = dict[str, tuple[Region, ...]]


@dataclass(frozen=True, kw_only=True)
class TakeDetections(AbstractStep):
    """Step that replaces the annotated boxes of every split by a detector's boxes.

    Attributes:
        files: files of ``captioning find-objects``, which together have all photos of the run; of a
            photo in several files the last one counts.
    """

    every_split: ClassVar[bool] = True
    files: Sequence[str]

    def __call__(self, roster: Roster, context: StepContext) -> Roster:
        """Return the roster with detected regions; captions without photos are unchanged."""
        if context.split == CORPUS:
            return roster
        return with_detections(roster, read_all_detections(self.files))


def read_all_detections(paths: Sequence[str | Path]) -> RegionsByImage:
    """Read the regions of several files; for repeated photos the last file counts.

    Raises:
        FileNotFoundError, ValueError: see `read_detections`.
    """
    regions: RegionsByImage = {}
    for path in paths:
        regions |= read_detections(path)[1]
    return regions


def read_detections(path: str | Path) -> tuple[dict[str, Any], RegionsByImage]:
    """Read the header, which names the detector, and the regions by image id.

    Raises:
        FileNotFoundError: no such file.
        ValueError: not such a file, a photo twice, or a box that leaves its photo.
    """
    lines = load_json_lines(path)
    header = next(lines, None)
    if header is None or "detector" not in header:
        raise ValueError(
            f"{path}: its first line must name the detector, as captioning find-objects writes it"
        )
    regions: RegionsByImage = {}
    known_ids: dict[str, str] = {}
    for line in lines:
        image_id = line.unique_identifier("image_id", known_ids, "image")
        width, height = line.numbers("size", 2)
        regions[image_id] = tuple(
            _region(region, (width, height)) for region in line.records("regions")
        )
    return header.value, regions


def _region(record: Record, size: tuple[float, float]) -> Region:
    box = record.numbers("box", 4)
    score = record.get("score")
    if not isinstance(score, int | float) or not 0 <= score <= 1:
        raise record.invalid("score", "a confidence in [0, 1]")
    return Region(
        box=checked_box((box[0], box[1], box[2], box[3]), size, record.where),
        label=record.text("label").lower(),
        score=float(score),
    )


def detection_line(
    image_id: str, file_name: str, size: tuple[int, int], regions: Sequence[Region]
) -> str:
    """Return the line of a photo for a file of detections."""
    boxes = [{"box": list(r.box), "label": r.label, "score": r.score} for r in regions]
    entry = {"image_id": image_id, "file_name": file_name, "size": list(size), "regions": boxes}
    return json.dumps(entry, ensure_ascii=False)


def with_detections(roster: Roster, detections: Mapping[str, tuple[Region, ...]]) -> Roster:
    """Replace annotated regions by detected ones; phrases lose their boxes.

    Raises:
        ValueError: photos without an entry in ``detections``.
    """
    missing = [image_id for image_id in roster.rows_by_image if image_id not in detections]
    if missing:
        raise ValueError(
            f"{roster.name}: the files of detections lack {len(missing)} photos, such as "
            f"{missing[0]}: run captioning find-objects on this split too, and name its file as "
            "well, in steps.take_detections.files or, in evaluation, in detections"
        )
    samples = [
        replace(
            sample,
            regions=detections[sample.image_id],
            phrases=tuple(replace(phrase, regions=()) for phrase in sample.phrases),
        )
        for sample in roster.samples
    ]
    return build_roster(roster.name, samples, roster.dropped)
