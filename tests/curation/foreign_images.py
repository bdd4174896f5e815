"""A script: ``python foreign_images.py FOLDER NUM_PROCESSES`` replaces images while it trains."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
from foreign import ForeignData, ForeignModule, make_policy, make_roster, train
from squares import Squares

from augmentation.image_replacement.cache import PictureCache
from augmentation.image_replacement.generated import GeneratedImages
from curation.amend.replace import ReplaceImage
from curation.loop.callback import CurationCallback


class Logged(Squares):
    """Writes down what each process makes."""

    folder: Path

    def generate(self, jobs):
        with (self.folder / f"made-{os.getpid()}.txt").open("a") as file:
            file.writelines(f"{job.prompt} {job.seed}\n" for job in jobs)
        return super().generate(jobs)


def main(folder: str | Path, num_processes: str) -> None:
    """Train in ``folder``; processes are forked, which spares each the imports."""
    folder = Path(folder)
    pictures = folder.parent / f"{folder.name}-made"
    pictures.mkdir()
    generator = Logged(batch_size=1)
    generator.folder = pictures
    source = GeneratedImages(
        generator=generator,
        cache=PictureCache(folder=pictures / "cache"),
    )
    policy = make_policy(ratio=0.4, amend=ReplaceImage(source=source))
    train(
        folder,
        epochs=3,
        callback=CurationCallback(policy=policy, seed=3, plot=False),
        module=ForeignModule(rate=0.0),
        data=ForeignData(roster=make_roster(num_images=7)),
        devices=int(num_processes),
        strategy="ddp_fork" if int(num_processes) > 1 else "auto",
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*sys.argv[1:])
