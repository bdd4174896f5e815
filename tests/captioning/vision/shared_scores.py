"""A process of several that score and caption photos together; started by the test beside it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from captioning.vision.pair_scores import PairScores
from captioning.vision.photo_captions import PhotoCaptions


class Toy:
    """Scores by the caption's length, captions by the photo's name; notes what it did."""

    name, identity, is_probability, batch_size = "toy", "toy", False, 2

    def __init__(self) -> None:
        self.photos: list[str] = []

    def score_pairs(self, photos, captions, photo_of):
        self.photos += [str(photo.getpixel((0, 0))[0]) for photo in photos]
        return torch.tensor([len(text) / 10 for text in captions])

    def prepare_photos(self, photos, *, keys):
        """All is there."""

    def write_captions(self, photos, *, keys, beginnings=None):
        self.photos += [path.stem for path in photos]
        return [[f"photo {path.stem}"] for path in photos]

    def release(self):
        """Nothing is held."""


def main(rank: int, size: int, folder: Path) -> None:
    """Scores twice, captions once; each process writes what came out."""
    store = dist.FileStore(str(folder / "store"), size)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    photos = sorted(folder.glob("*.png"))
    scorer, writer = Toy(), Toy()
    pairs = [(path, "x" * length) for path in photos for length in (1, 2)]
    scores = PairScores(scorer=scorer, cache_folder=folder / "cache", photos_at_once=2)
    first = scores.scores(pairs).tolist()
    longer = [*pairs, (photos[0], "xxx")]
    second = scores.scores(longer).tolist()
    captions = PhotoCaptions(captioner=writer, cache_folder=folder / "cache").captions(photos)
    results = {"scores": [first, second], "captions": captions}
    results |= {"scored": scorer.photos, "written": writer.photos}
    (folder / f"{rank}.json").write_text(json.dumps(results))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
