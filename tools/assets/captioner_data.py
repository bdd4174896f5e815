"""Write the shipped captioner's data: ``python -m tools.assets.captioner_data``.

The captioner is trained on Flickr8k's training photos and a part of COCO's photos. Flickr8k's
validation photos select the epoch; its test photos and COCO's other photos are only for testing.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path

from captioning.config.compose import compose_config, setting
from captioning.data.roster import Roster
from captioning.runtime.files import write_lines
from captioning.training.rosters import read_roster
from captioning.training.settings import DataSettings

COCO_TEST = 500  # photos
SPLITS = ("train", "val", "test")


def roster_of(data: Path, name: str, split: str, *overrides: str) -> Roster:
    """Read a split of ``data=NAME`` from a folder."""
    choices = [f"data={name}", setting("paths.data", data), *overrides]
    return read_roster(DataSettings.of(compose_config("train", choices)), split)


def photo_lines(roster: Roster, *, data: Path) -> list[str]:
    """One line per photo, in the format of `captioning.data.readers.jsonl.read_jsonl`.

    Args:
        roster: photos with captions.
        data: folder that photo paths are relative to.
    """
    samples = [[roster.samples[row] for row in rows] for rows in roster.rows_by_image.values()]
    return [
        json.dumps(
            {
                "image": str(of_photo[0].image_path.relative_to(data)),
                "captions": [sample.caption for sample in of_photo],
            },
            ensure_ascii=False,
        )
        for of_photo in samples
    ]


def main() -> None:
    """Write train.jsonl, val.jsonl, test.jsonl and coco_test.jsonl."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="folder with flickr8k and coco/train2014_sample")
    parser.add_argument("out", type=Path, help="folder of the four files")
    parser.add_argument("--seed", type=int, default=0, help="which COCO photos are for testing")
    args = parser.parse_args()
    photos = args.data / "coco" / "train2014_sample"
    choices = (setting("data.image_folder", photos), "data.missing_photos=drop")
    coco = roster_of(args.data, "coco_train2014", "train", *choices)
    of_coco = photo_lines(coco, data=args.data)
    random.Random(args.seed).shuffle(of_coco)
    files = {
        split: photo_lines(roster_of(args.data, "flickr8k", split), data=args.data)
        for split in SPLITS
    }
    files["train"] += of_coco[COCO_TEST:]
    files["coco_test"] = of_coco[:COCO_TEST]
    args.out.mkdir(parents=True, exist_ok=True)
    for name, lines in files.items():
        write_lines(args.out / f"{name}.jsonl", lines)
        print(f"{args.out / name}.jsonl: {len(lines)} photos")


if __name__ == "__main__":
    main()
