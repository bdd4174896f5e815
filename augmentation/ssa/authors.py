"""Read the captions that SSA's authors published, instead of making new captions.

The files have the layout of ASG2Caption (Chen et al., CVPR 2020): for each caption its words and
its objects with their boxes. The sets are part of the public code of CIC-BART-SSA.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from augmentation.captions.new_captions import (
    AbstractCaptionMethod,
    NewCaption,
    PhotoCaptions,
    placed_phrases,
)
from captioning.data.json_files import Record, is_number, load_json
from captioning.data.roster import Roster
from captioning.data.steps.added_captions import CLOSE
from captioning.types import Phrase, Sample

NO_BOX = "a thing without a box"
OTHER_BOX = "a box that is none of the photo's"
NOTHING = "no things"
SCENE, UNKNOWN = "scene", "unknown"  # in the place of an object's number
SIDES = ("xmin", "ymin", "xmax", "ymax")


class AuthorsCaptions(AbstractCaptionMethod):
    """Reads captions from published files, and matches their boxes to the photo's boxes.

    As in their code, a caption is left out if a thing of it has no box, or if it has no thing.
    Boxes are the photo's own regions, to a pixel. The "scene" is the whole photo.

    Args:
        folder: folder with a file ``IMAGE.json`` for each photo, also in subfolders.

    Raises:
        FileNotFoundError: the folder does not exist.
    """

    description = "captions by structured semantic augmentation, published by its authors"
    uses_gpu = False

    def __init__(self, *, folder: str | Path) -> None:
        self.folder = Path(folder)
        if not self.folder.is_dir():
            raise FileNotFoundError(
                f"method.folder={folder} does not exist; unpack the authors' archive there "
                "(flickr-ssa.tar.gz, or the joined parts of coco-ssa.tar.gz)"
            )

    def captions(self, roster: Roster, *, skip: int = 0) -> Iterator[PhotoCaptions]:
        """See `AbstractCaptionMethod`.

        Raises:
            ValueError: no file belongs to a photo of the roster, or a file is malformed.
        """
        files = {_number(path.stem): path for path in sorted(self.folder.rglob("*.json"))}
        photos = {_number(image_id): rows for image_id, rows in roster.rows_by_image.items()}
        if not files.keys() & photos.keys():
            raise ValueError(
                f"{self.folder} has no file for any photo of {roster.name}, such as "
                f"{next(iter(photos))}.json; choose the folder of the same dataset"
            )
        for number, rows in islice(photos.items(), skip, None):
            photo, path = roster.samples[rows[0]], files.get(number)
            yield PhotoCaptions(captions=[]) if path is None else _captions(photo, load_json(path))


def _number(name: str) -> str:
    """Name of a photo without leading zeros of its number."""
    return name.lstrip("0") or name


def _captions(photo: Sample, content: Record) -> PhotoCaptions:
    captions, refused = [], Counter[str]()
    for _, entry in content.members():
        caption = " ".join(entry.text("phrase").split())
        phrases = _phrases(entry, caption, photo)
        if isinstance(phrases, str):
            refused[phrases] += 1
        else:
            captions.append(NewCaption(sample=photo, text=caption, phrases=phrases))
    return PhotoCaptions(captions=captions, refused=refused)


def _phrases(entry: Record, caption: str, photo: Sample) -> tuple[Phrase, ...] | str:
    """Phrases of a caption in order, or the reason to skip the caption."""
    found: dict[str, Phrase] = {}
    for thing in entry.records("objects"):
        name, number = thing.text("name"), thing.get("object_id")
        if number == UNKNOWN:
            return NO_BOX
        regions: tuple[int, ...] = ()
        if number != SCENE:
            region = _region(thing, photo)
            if region is None:
                return OTHER_BOX
            regions = (region,)
        chain_id = str(number)
        known = found[chain_id].regions if chain_id in found else ()
        found[chain_id] = Phrase(
            start=0,
            text=name,
            chain_id=chain_id,
            kinds=(SCENE,) if number == SCENE else (),
            regions=tuple(dict.fromkeys((*known, *regions))),
        )
    if not found:
        return NOTHING
    return placed_phrases(found.values(), caption, sought=lambda phrase: phrase.text)


def _region(thing: Record, photo: Sample) -> int | None:
    """Region of the photo that has this box."""
    box = [thing.get(side) for side in SIDES]
    if not all(map(is_number, box)):
        raise thing.invalid("xmin", f"numbers, as {', '.join(SIDES)}")
    if not photo.regions:
        return None
    off = np.abs(np.subtract([region.box for region in photo.regions], box)).max(1)
    nearest = int(off.argmin())
    return nearest if off[nearest] <= CLOSE else None
