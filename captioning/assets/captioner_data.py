"""Photos and captions of the shipped captioner: ``python -m captioning.assets.captioner_data``.

It learns from Flickr8k's training photos and a part of COCO's. Flickr8k's validation photos choose
the epoch; its test photos and the rest of COCO's are for the test alone.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path

from captioning.data.readers.coco import read_coco
from captioning.data.readers.flickr8k import read_flickr8k
from captioning.data.roster import Roster
from captioning.files import write_lines

COCO_TEST = 500  # photos
FLICKR8K = {"train": "train", "val": "dev", "test": "test"}  # what its lists call them


def flickr8k(folder: Path, split: str) -> Roster:
    """A split of Flickr8k; the captioned photo that does not exist is left out."""
    return read_flickr8k(
        name=f"flickr8k/{split}",
        token_file=folder / "Flickr8k.token.txt",
        image_folder=folder / "images",
        split_file=folder / f"Flickr_8k.{FLICKR8K[split]}Images.txt",
    )


def coco(photos: Path) -> Roster:
    """Captions of those of COCO's training photos of 2014 that are in a folder."""
    return read_coco(
        name="coco",
        annotations="pycocoevalcap:captions_train2014",
        image_folder=photos,
        missing_photos="drop",
    )


def photo_lines(roster: Roster, *, data: Path) -> list[str]:
    """A line a photo, as `captioning.data.readers.jsonl.read_jsonl` reads it.

    Args:
        roster: photos with captions.
        data: folder that photos are named from.
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
    parser.add_argument("--seed", type=int, default=0, help="which of COCO's photos are the test")
    args = parser.parse_args()
    of_coco = photo_lines(coco(args.data / "coco" / "train2014_sample"), data=args.data)
    random.Random(args.seed).shuffle(of_coco)
    files = {
        split: photo_lines(flickr8k(args.data / "flickr8k", split), data=args.data)
        for split in FLICKR8K
    }
    files["train"] += of_coco[COCO_TEST:]
    files["coco_test"] = of_coco[:COCO_TEST]
    args.out.mkdir(parents=True, exist_ok=True)
    for name, lines in files.items():
        write_lines(args.out / f"{name}.jsonl", lines)
        print(f"{args.out / name}.jsonl: {len(lines)} photos")


if __name__ == "__main__":
    main()
