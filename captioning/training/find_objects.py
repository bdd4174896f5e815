"""``captioning find-objects data=NAME split=train detector=NAME``: detects objects in photos.

Training, augmentation and evaluation then read them with ``steps=[take_detections]`` and
``steps.take_detections.files=[FILE]``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from rich.progress import track

from captioning.config.build import build_part
from captioning.config.ranges import Name, PositiveInt, Seed
from captioning.data.roster import Roster
from captioning.data.steps.take_detections import detection_line, read_detections
from captioning.runtime.files import write_lines
from captioning.training.rosters import read_roster
from captioning.training.settings import NO_STEPS, Data, DataSettings, Part, Paths
from captioning.vision.detectors import AbstractDetector
from captioning.vision.photos import load_rgb


def find_objects(
    *,
    data: Data,
    paths: Paths,
    detector: Part,
    split: Name,
    first_images: PositiveInt | None = None,
    steps: Mapping[str, Part] = NO_STEPS,
    seed: Seed = 0,
    batch_size: PositiveInt,
    out: Name,
) -> tuple[Path, int]:
    """Look at all photos of a split that ``out`` does not have yet.

    Args:
        data: the data set.
        paths: folders.
        detector: of objects.
        split: of the data set.
        first_images: photos read; None: all.
        steps: of the data.
        seed: of the steps.
        batch_size: photos at once.
        out: the file, a line a photo.

    Returns:
        The file, and how many photos it has.

    Raises:
        ValueError: wrong settings, or a file that another detector has written.
        OSError: files that cannot be read or written.
    """
    file = Path(out)
    read = {"first_images": first_images, "steps": steps, "seed": seed}
    roster = read_roster(DataSettings(data=data, paths=paths, **read), split)
    header = {"detector": detector._target_, "settings": _arguments(detector)}
    done = _finished_images(file, header)
    remaining = [image_id for image_id in roster.rows_by_image if image_id not in done]
    if remaining:
        finder = build_part(detector)
        file.parent.mkdir(parents=True, exist_ok=True)
        for lines in _lines(finder, roster, remaining, batch_size):
            if not file.is_file():  # begun once there is something to say
                lines.insert(0, json.dumps(header))
            with file.open("a", encoding="utf-8", newline="\n") as opened:
                opened.write("".join(f"{line}\n" for line in lines))
    return file, len(read_detections(file)[1])


def _arguments(detector: Part) -> dict[str, Any]:
    values: Any = OmegaConf.to_container(detector, resolve=True)
    return {key: value for key, value in values.items() if key not in ("_target_", "device")}


def _finished_images(out: Path, header: dict[str, Any]) -> set[str]:
    """The photos that a file has already; it is repaired, if necessary."""
    if not out.is_file():
        return set()
    text = out.read_text(encoding="utf-8")
    ours = text.startswith(json.dumps(header) + "\n")
    if ours and not text.endswith("\n"):  # it was stopped in the midst of a line
        write_lines(out, text.split("\n")[:-1])
    written_header, detections = read_detections(out)
    if written_header != header:
        raise ValueError(
            f"{out}: made with other settings ({json.dumps(written_header)}); choose another out="
        )
    return set(detections)


def _lines(
    detector: AbstractDetector, roster: Roster, image_ids: list[str], batch_size: int
) -> Iterator[list[str]]:
    """A line of the file for every photo, batch by batch."""
    paths = {key: roster.samples[rows[0]].image_path for key, rows in roster.rows_by_image.items()}
    batches = [
        image_ids[start : start + batch_size] for start in range(0, len(image_ids), batch_size)
    ]
    for batch in track(batches, description="detecting"):
        photos = [load_rgb(paths[image_id]) for image_id in batch]
        yield [
            detection_line(image_id, paths[image_id].name, photo.size, regions)
            for image_id, photo, regions in zip(batch, photos, detector(photos), strict=True)
        ]
