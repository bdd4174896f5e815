"""A small data set: captions of animals and men, with boxes on some photos."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from captioning.data.roster import Roster
from captioning.types import Phrase, Region, Sample

CAPTIONS = (
    "A black dog runs on the grass .",
    "A black dog sits in the grass .",
    "A brown dog plays in the snow .",
    "A brown dog sits on the sand .",
    "A white cat runs on the grass .",
    "A white cat sits on the sand .",
    "An old cat sits in the snow .",
    "An old cat runs on the sand .",
    "Two black dogs run in the grass .",
    "Two black dogs sit in the snow .",
    "Three small horses run on the grass .",
    "Three small horses run in the snow .",
    "A man holds a red ball .",
    "A man holds a red ball in the snow .",
    "A woman holds an umbrella .",
    "A woman holds an umbrella in the snow .",
    "A tall truck .",
    "It rains .",
)
BOX = Region(box=(0.0, 0.0, 10.0, 10.0), label="Dog")


def sample(row: int, caption: str, **fields) -> Sample:
    image = f"photo{row // 2}"
    return Sample(
        row=row,
        sample_id=f"{image}#{row % 2}",
        image_id=image,
        image_path=Path(f"{image}.jpg"),
        caption=caption,
        **fields,
    )


def _regions(row: int) -> tuple[Region, ...]:
    return (Region(box=(5.0, 5.0, 9.0, 9.0), label="tree"), BOX) if row < 2 else ()


ROSTER = Roster(
    name="small",
    samples=tuple(sample(row, text, regions=_regions(row)) for row, text in enumerate(CAPTIONS)),
)


def grounded(caption: str, words: str, *regions: Region) -> Sample:
    """A sample with a phrase for each of whose words all regions are."""
    phrase = Phrase(
        start=caption.index(words),
        text=words,
        chain_id="1",
        regions=tuple(range(len(regions))),
    )
    return sample(0, caption, regions=regions, phrases=(phrase,))


class Letters:
    """A text is the counts of its letters: different words lie apart."""

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        rows = torch.zeros(len(texts), 26)
        for row, text in zip(rows, texts, strict=True):
            for letter in text.lower():
                row[(ord(letter) - 97) % 26] += 1
        return rows
