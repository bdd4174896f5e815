"""Captions of a small world in which a few words are wrong, and it is known which."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from captioning.data.roster import Roster, build_roster
from captioning.types import Sample

COLORS = ("red", "blue", "yellow")  # each excludes the others
ANIMALS = ("dog", "cat", "horse", "cow")
ENDINGS = ("on the grass", "near a wall", "in the snow", "by the sea")


def colourful(
    num_photos: int, num_wrong: int, *, captions: int = 4, folder: Path = Path(), seed: int = 0
) -> tuple[Roster, dict[int, tuple[str, str]]]:
    """Captions of a photo agree on animal and colour, but for one word in some of them.

    Args:
        num_photos: with ``captions`` captions each.
        num_wrong: photos that have a caption with a wrong colour.
        captions: of each photo.
        folder: of the photos.
        seed: of all draws.

    Returns:
        The roster, and by row the wrong word and the right one.
    """
    rng = np.random.default_rng(seed)
    samples, wrong = [], {}
    for photo in range(num_photos):
        color, animal = rng.integers(len(COLORS)), rng.integers(len(ANIMALS))
        for number in range(captions):
            words = [COLORS[color], ANIMALS[animal]]
            row = len(samples)
            if photo < num_wrong and number == 1:
                other = COLORS[(color + 1 + rng.integers(len(COLORS) - 1)) % len(COLORS)]
                wrong[row], words[0] = (other, words[0]), other
            caption = f"A {words[0]} {words[1]} is {rng.choice(ENDINGS)}."
            name = f"{photo}.jpg"
            samples.append(
                Sample(
                    row=row,
                    sample_id=f"{name}#{number}",
                    image_id=name,
                    image_path=folder / name,
                    caption=caption,
                )
            )
    return build_roster("colours", samples), wrong
