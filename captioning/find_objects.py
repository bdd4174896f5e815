"""``captioning find-objects data=NAME split=train detector=NAME``: what photos show.

Training, augmentation and evaluation then read them with ``steps=[take_detections]`` and
``steps.take_detections.files=[FILE]``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from rich.progress import track

from captioning.data.roster import Roster
from captioning.data.steps.take_detections import detection_line, read_detections
from captioning.files import write_lines
from captioning.training.parts import build_part
from captioning.training.rosters import read_roster
from captioning.vision.detectors import AbstractDetector
from captioning.vision.photos import load_rgb


def find_objects(config: DictConfig) -> tuple[Path, int]:
    """Look at all photos of a split that ``config.out`` does not have yet.

    Returns:
        The file, and how many photos it has.

    Raises:
        ValueError: wrong settings, or a file that another detector has written.
        OSError: files that cannot be read or written.
    """
    out = Path(config.out)
    roster = read_roster(config, config.split)
    made = {"detector": config.detector._target_, "settings": _settings(config)}
    done = _begun(out, made)
    left = [image_id for image_id in roster.rows_by_image if image_id not in done]
    if left:
        _look(build_part(config.detector), roster, left, out, config.batch_size)
    return out, len(read_detections(out)[1])


def _settings(config: DictConfig) -> dict[str, Any]:
    settings = OmegaConf.to_container(config.detector, resolve=True)
    return {key: value for key, value in settings.items() if key not in ("_target_", "device")}


def _begun(out: Path, made: dict[str, Any]) -> set[str]:
    """The photos that a file has already; the file is begun, or mended, if need be."""
    if not out.is_file():
        write_lines(out, [json.dumps(made)])
        return set()
    text = out.read_text(encoding="utf-8")
    if not text.endswith("\n"):  # it was stopped in the midst of a line
        write_lines(out, text.split("\n")[:-1])
    before, found = read_detections(out)
    if before != made:
        raise ValueError(
            f"{out}: made with other settings ({json.dumps(before)}); choose another out="
        )
    return set(found)


def _look(
    detector: AbstractDetector, roster: Roster, left: list[str], out: Path, batch_size: int
) -> None:
    paths = {key: roster.samples[rows[0]].image_path for key, rows in roster.rows_by_image.items()}
    batches = [left[start : start + batch_size] for start in range(0, len(left), batch_size)]
    with out.open("a", encoding="utf-8", newline="\n") as file:
        for batch in track(batches, description="detecting"):
            photos = [load_rgb(paths[image_id]) for image_id in batch]
            found = detector(photos)
            for image_id, photo, regions in zip(batch, photos, found, strict=True):
                line = detection_line(image_id, paths[image_id].name, photo.size, regions)
                file.write(line + "\n")
            file.flush()
