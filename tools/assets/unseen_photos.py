"""List COCO photos that were not used to train the small joint space.

The command is ``python -m tools.assets unseen-photos``. The small ViECap reads photos through the
joint space, so it is only tested on the listed photos (docs/papers/toca.md, scale ``flickr8k``).
"""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

from captioning.config.compose import setting
from captioning.config.folders import own_folder
from captioning.data.roster import build_roster
from captioning.runtime.files import write_lines
from tools.assets.captioner_data import roster_of

CARD = files("captioning.vision") / "weights" / "joint_space.json"
FILE_NAME = "coco_unseen.txt"


def write_unseen_photos(out: Path | None = None) -> tuple[int, Path]:
    """Write the list of photo ids, one per line.

    Args:
        out: file of the list; by default `FILE_NAME` in the user's folder ``cache``.

    Returns:
        Number of photos, and the list.
    """
    out = out or own_folder("cache") / FILE_NAME
    ids = unseen_photos(own_folder("data") / "coco" / "train2014_sample")
    write_lines(out, ids)
    return len(ids), out


def unseen_photos(folder: Path) -> list[str]:
    """Ids of the photos, in the order of COCO's file.

    Args:
        folder: folder of the 5,000 COCO photos with the lowest ids (4,000 for training).

    Raises:
        FileNotFoundError: the folder does not exist.
        ValueError: the folder holds other photos.
    """
    choices = (setting("data.image_folder", folder), "data.missing_photos=drop")
    roster = roster_of(folder.parents[1], "coco_train2014", "train", *choices)
    card = json.loads(CARD.read_text(encoding="utf-8"))["data"]
    ids = list(roster.rows_by_image)[card["train_more"]["photos"] :]
    kept = set(ids)
    samples = [sample for sample in roster.samples if sample.image_id in kept]
    digest = build_roster(roster.name, samples).fingerprint if samples else None
    if digest != card["test_more"]["fingerprint"]:
        raise ValueError(
            f"{folder}: must hold the 5,000 photos of COCO's train2014 with the lowest ids and no "
            f"others, since the joint space saw 4,000 of them: got {len(roster.rows_by_image)} "
            "photos, not all of them those; put those there"
        )
    return ids
