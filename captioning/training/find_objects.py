"""``captioning find-objects data=NAME split=train detector=NAME``: detects objects in photos.

Training, augmentation and evaluation then read them with ``steps=[take_detections]`` and
``steps.take_detections.files=[FILE]``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from rich.progress import track

from captioning.config.build import build_part
from captioning.data.roster import Roster
from captioning.data.steps.take_detections import detection_line, read_detections
from captioning.runtime.files import write_lines
from captioning.training.rosters import read_roster
from captioning.training.settings import FindObjectsSettings, Part
from captioning.vision.detectors import AbstractDetector
from captioning.vision.photos import load_rgb


def find_objects(settings: FindObjectsSettings) -> tuple[Path, int]:
    """Look at all photos of a split that ``settings.out`` does not have yet.

    Returns:
        The file, and how many photos it has.

    Raises:
        ValueError: wrong settings, or a file that another detector has written.
        OSError: files that cannot be read or written.
    """
    out, chosen = Path(settings.out), settings.detector
    roster = read_roster(settings, settings.split)
    header = {"detector": chosen._target_, "settings": _arguments(chosen)}
    done = _finished_images(out, header)
    remaining = [image_id for image_id in roster.rows_by_image if image_id not in done]
    if remaining:
        detector = build_part(chosen)
        out.parent.mkdir(parents=True, exist_ok=True)
        for lines in _lines(detector, roster, remaining, settings.batch_size):
            if not out.is_file():  # begun once there is something to say
                lines.insert(0, json.dumps(header))
            with out.open("a", encoding="utf-8", newline="\n") as file:
                file.write("".join(f"{line}\n" for line in lines))
    return out, len(read_detections(out)[1])


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
