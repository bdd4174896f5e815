"""Write a curated dataset as COCO captions JSON, JSON Lines, or an image folder.

This project's readers, and other programs for these formats, can read all of them.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path, PurePosixPath
from typing import Any

from captioning.data.readers.split_words import SPLITS, Split
from captioning.data.roster import CurationView, Roster, masks_text
from captioning.runtime.files import write_json, write_lines
from captioning.types import Sample
from captioning.vision.photo_places import (
    open_photo,
    photo_exists,
    photo_stamp,
    place_in_shard,
    plain_path,
)
from curation.score.caption_fit import waits_for_caption

HUB_NAMES: dict[Split, str] = {"train": "train", "val": "validation", "test": "test"}
REPLACED = "replaced"  # folder of replacement images
# Words that make `datasets` treat files and folders of an image folder as a split.
SPLIT_NAMES: dict[Split, tuple[str, ...]] = {
    "train": ("train", "training"),
    "val": ("validation", "valid", "dev", "val"),
    "test": ("test", "testing", "eval", "evaluation"),
}
_APART = "-._ 0-9"  # characters that may surround such a word


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """An image of the curated dataset with its captions.

    Attributes:
        image_id: the roster's, with the picture's name after it where it replaced another; no two
            pictures of a set have the same.
        file_name: below the folder of photos, with ``/``.
        path: present path.
        samples: its captions.
        split: None: the set has none.
    """

    image_id: str
    file_name: str
    path: Path
    samples: tuple[Sample, ...]
    split: Split | None = None


def pictures(
    view: CurationView,
    splits: Mapping[Path, Split] | None = None,
    beside: Mapping[Split, Roster] | None = None,
) -> list[Picture]:
    """Group the live captioned samples by image, in roster order.

    Samples that still wait for a caption hold a placeholder, and are left out. A picture that
    stands for several images has the captions of all, and, if it is a photo of the roster, the id
    that most of its captions have there. Photos have the names of the annotations, where the roster
    knows their folder, or else names relative to the folder that all of the set's lie in; those of
    shards have theirs there, with the shard before it if two have the same; pictures that replaced
    others are ``replaced/NAME``, and have their split.

    Args:
        view: view of the curated set.
        splits: splits of photos by path; those without one, as where lists of splits do not name
            them, are left out. None or empty: the set has no splits.
        beside: the set's other splits, which were not curated; the view is its training split.

    Raises:
        ValueError: no sample has a caption.
    """
    own: Split | None = "train" if beside else None
    views: list[tuple[CurationView, Split | None]] = [(view, own)]
    views.extend((CurationView(roster=other), split) for split, other in (beside or {}).items())
    roots = {v.roster.photo_root for v, _ in views} - {None}
    paths = dict.fromkeys(s.image_path for v, _ in views for s in v.roster.samples)
    names = _names(paths, roots)
    if not captioned(view.samples()):
        raise ValueError("no photo has a caption yet: export a run that has written some")
    result = [p for v, split in views for p in _pictures(v, names, splits or {}, split)]
    _check_names(result)
    return result


def _pictures(
    view: CurationView, names: Mapping[Path, str], splits: Mapping[Path, Split], split: Split | None
) -> Iterator[Picture]:
    """Group the samples of a view by image; ``split`` is used if ``splits`` does not name one."""
    samples_by_path: dict[Path, list[Sample]] = {}
    for sample in captioned(view.samples()):
        samples_by_path.setdefault(sample.image_path, []).append(sample)
    own_ids, taken = _own_ids(view.roster), set()
    for path, samples in samples_by_path.items():
        new = path not in own_ids
        if splits:
            first = view.roster.by_id[samples[0].sample_id]
            split = splits.get(path) or splits.get(first.image_path)
            if split is None:
                continue
        choices = _possible_ids(own_ids.get(path, samples[0].image_id), path, new=new)
        image_id = next(choice for choice in choices if choice not in taken)
        taken.add(image_id)
        name = f"{REPLACED}/{path.name}" if new else names[path]
        yield Picture(
            image_id=image_id, file_name=name, path=path, samples=tuple(samples), split=split
        )


def _names(paths: Iterable[Path], roots: Collection[Path | None]) -> dict[Path, str]:
    """Map each photo's path to its name in the exported dataset.

    Args:
        paths: paths of all photos.
        roots: folders that they can be relative to.
    """
    places = {path: place_in_shard(path) for path in paths}
    names = {path: place.file_name for path, place in places.items() if place is not None}
    if len(names) == len(places) == len({*names.values()}):
        return names
    plain = {path: str(plain_path(path)) for path in places}
    root = os.path.commonpath({os.path.dirname(other) for other in plain.values()})
    known = [os.fspath(path) for path in roots if path is not None]
    if known and not names:
        above = os.path.commonpath(known)
        root = above if Path(root).is_relative_to(above) else root
    return {path: other[len(root) :].lstrip(os.sep) for path, other in plain.items()}


def of_splits(curated: Sequence[Picture]) -> Sequence[tuple[Split | None, Sequence[Picture]]]:
    """Group images by split; one group with key None if the dataset has no splits.

    Raises:
        ValueError: only some images have a split.
    """
    groups: dict[Split | None, list[Picture]] = {split: [] for split in (*SPLITS, None)}
    for picture in curated:
        groups[picture.split].append(picture)
    found: list[tuple[Split | None, Sequence[Picture]]]
    found = [(split, group) for split, group in groups.items() if group]
    if len(found) > 1 and groups[None]:
        raise ValueError(f"{groups[None][0].path} has no split, although other images have a split")
    return found


def captioned(samples: Sequence[Sample]) -> list[Sample]:
    """Samples that have a caption, without samples that still wait for one."""
    return [sample for sample in samples if not waits_for_caption(sample)]


def _own_ids(roster: Roster) -> dict[Path, str]:
    """Image id of each photo: the id of most of its captions, and on ties the first id."""
    counts: dict[Path, dict[str, int]] = {}
    for sample in roster.samples:
        own = counts.setdefault(sample.image_path, {})
        own[sample.image_id] = own.get(sample.image_id, 0) + 1
    return {path: max(own, key=own.__getitem__) for path, own in counts.items()}


def _possible_ids(image_id: str, path: Path, *, new: bool) -> Iterator[str]:
    """Yield candidate ids of an image, best first; the first unused candidate is taken."""
    if not new:
        yield image_id
    yield f"{image_id}/{path.stem}"
    yield from (f"{image_id}/{path.stem}-{number}" for number in count(2))


def _check_names(curated: Sequence[Picture]) -> None:
    first: dict[str, Path] = {}
    for picture in curated:
        other = first.setdefault(picture.file_name, picture.path)
        if other != picture.path:
            raise ValueError(
                f"{other} and {picture.path} would both be called {picture.file_name}; give the "
                f"run's pictures distinct names"
            )


def set_digest(curated: Sequence[Picture], *, photos: bool) -> str:
    """Hash a dataset's names, captions, splits, photo sizes and times to 16 hexadecimal digits.

    Args:
        curated: the pictures.
        photos: whether the photos count: they are part of the files that are read.
    """
    digest = hashlib.blake2b(digest_size=8)
    for picture in curated:
        stamp = _stamp(picture.path) if photos else ()
        captions = [
            (s.caption, s.sample_id, s.origin, s.weight, masks_text(s.masks), s.bucket)
            for s in picture.samples
        ]
        names = (picture.split, picture.image_id, picture.file_name, stamp)
        digest.update(ascii((names, captions)).encode())
    return digest.hexdigest()


def _stamp(path: Path) -> tuple[int, ...]:
    try:
        return photo_stamp(path)
    except FileNotFoundError:
        return ()


def safe_names(curated: Sequence[Picture]) -> dict[str, str]:
    """Map image names to file names that are safe in an image folder of one split.

    `datasets` takes a word such as ``test`` in the name of a file or folder for a split, and leaves
    files alone that begin with a dot. An ``x`` is added before such a word.
    """
    others = [w for s, names in SPLIT_NAMES.items() if s != curated[0].split for w in names]
    word = rf"(?<![^{_APART}/])(?:{'|'.join(others)})(?=[{_APART}/])"
    pattern = re.compile(rf"({word}|(?<![^/])(?:\.|__))")
    safe_by_name: dict[str, str] = {}
    own = {picture.file_name for picture in curated}
    for name in dict.fromkeys(picture.file_name for picture in curated):
        safe = pattern.sub(r"x\1", name)
        path = PurePosixPath(safe)
        choices = (f"{path.with_suffix('')}-{number}{path.suffix}" for number in count(2))
        taken = own.union(safe_by_name.values())
        is_free = safe == name or safe not in taken
        safe_by_name[name] = safe if is_free else next(one for one in choices if one not in taken)
    return safe_by_name


def write_coco(curated: Sequence[Picture], path: Path, *, name: str) -> None:
    """Write the curated dataset as COCO captions JSON.

    Ids are COCO's numbers where all of the roster's are numbers; otherwise they are counted, and
    ``roster_id`` holds the roster's. Each annotation has its ``sample_id`` and ``origin``, and a
    ``weight`` where it was weighted down, and ``masked_words``, such as ``"12-17"``, where it has
    some. Images have their ``split`` if there are several splits.
    """
    has_splits = len(of_splits(curated)) > 1
    numeric = all(picture.image_id.partition("/")[0].isdecimal() for picture in curated)
    free = max(
        (int(picture.image_id) for picture in curated if numeric and picture.image_id.isdecimal()),
        default=0,
    )
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for picture in curated:
        number = int(picture.image_id) if numeric and picture.image_id.isdecimal() else None
        if number is None:
            free += 1
            number = free
        said = {"split": picture.split} if has_splits else {}
        image = {"id": number, "file_name": picture.file_name, "roster_id": picture.image_id}
        images.append(image | said)
        annotations += [
            {
                "id": len(annotations) + place,
                "image_id": number,
                "caption": sample.caption,
                "sample_id": sample.sample_id,
                "origin": sample.origin,
                **({} if sample.weight == 1 else {"weight": sample.weight}),
                **({"masked_words": masks_text(sample.masks)} if sample.masks else {}),
                **({"bucket": sample.bucket} if sample.bucket else {}),
            }
            for place, sample in enumerate(picture.samples, start=1)
        ]
    info = {"description": f"{name}, curated"}
    value = {"info": info, "licenses": [], "images": images, "annotations": annotations}
    write_json(path, value, indent=None)


def write_jsonl(curated: Sequence[Picture], path: Path) -> None:
    """Write JSON Lines: ``image``, ``image_id``, ``captions``, ``sample_ids`` and ``origins``.

    Lines also have ``split`` if there are several splits.
    """
    has_splits = len(of_splits(curated)) > 1
    heads = (
        {"image": picture.file_name, "image_id": picture.image_id}
        | ({"split": picture.split} if has_splits else {})
        for picture in curated
    )
    write_lines(path, map(_line, heads, curated))


def write_metadata(curated: Sequence[Picture], path: Path, names: Mapping[str, str]) -> None:
    """Write ``metadata.jsonl`` of an image folder: ``file_name`` and ``captions`` on each line.

    Args:
        curated: the pictures.
        path: the file's path.
        names: names of the photos beside it, by the pictures' own, which are ``original_name``.
    """
    write_lines(
        path,
        (
            _line(
                {
                    "file_name": names[picture.file_name],
                    "original_name": picture.file_name,
                    "image_id": picture.image_id,
                },
                picture,
            )
            for picture in curated
        ),
    )


def _line(head: dict[str, Any], picture: Picture) -> str:
    fields = caption_fields(picture, told_fields([picture]))
    return json.dumps(head | fields, ensure_ascii=False)


def told_fields(curated: Sequence[Picture]) -> tuple[str, ...]:
    """Optional fields that at least one caption needs; see `caption_fields`."""
    fields = {
        "weights": lambda sample: sample.weight != 1,
        "masked_words": lambda sample: bool(sample.masks),
        "buckets": lambda sample: bool(sample.bucket),
    }
    samples = [sample for picture in curated for sample in picture.samples]
    return tuple(name for name, tells in fields.items() if any(map(tells, samples)))


def caption_fields(picture: Picture, told: Sequence[str]) -> dict[str, list[Any]]:
    """Fields to write for an image's captions: a list by field name, with one value per caption.

    Args:
        picture: the set's picture.
        told: further fields to write: ``weights`` (1 unless weighted down), ``masked_words`` (such
            as ``"12-17"``; empty for none) and ``buckets``.
    """
    samples = picture.samples
    fields: dict[str, list[Any]] = {
        "captions": [sample.caption for sample in samples],
        "sample_ids": [sample.sample_id for sample in samples],
        "origins": [sample.origin for sample in samples],
    }
    ways = {
        "weights": lambda sample: sample.weight,
        "masked_words": lambda sample: masks_text(sample.masks),
        "buckets": lambda sample: sample.bucket,
    }
    return fields | {name: list(map(ways[name], samples)) for name in told}


def place_photos(
    curated: Sequence[Picture], folder: Path, *, copy: bool, is_needed: bool = False
) -> None:
    """Copy or link the images into a new folder under their exported names.

    Args:
        curated: the pictures.
        folder: folder to write to.
        copy: whether they are copied; otherwise they are symbolic links.
        is_needed: whether the set cannot be written without them.

    Raises:
        FileNotFoundError: an image is missing; the message names it.
        ValueError: a link to a picture in a shard.
        OSError: the folder cannot be written.
    """
    folders: set[Path] = set()
    for picture in {picture.file_name: picture for picture in curated}.values():
        source, target = picture.path, folder / PurePosixPath(picture.file_name)
        if target.parent not in folders:
            target.parent.mkdir(parents=True, exist_ok=True)
            folders.add(target.parent)
        if copy:
            _copy(source, target, is_needed=is_needed)
        elif place_in_shard(source):
            raise ValueError(
                f"{source} is in a shard and cannot be linked to; choose --photos copy"
            )
        elif photo_exists(source):
            target.symlink_to(source.resolve())
        else:
            raise _is_gone(source, is_needed=is_needed)


def _copy(source: Path, target: Path, *, is_needed: bool) -> None:
    if place_in_shard(source):
        target.write_bytes(photo_bytes(source, is_needed=is_needed))
        return
    try:
        shutil.copyfile(source, target)
    except FileNotFoundError as error:
        raise _is_gone(source, is_needed=is_needed) from error


def photo_bytes(path: Path, *, is_needed: bool = True) -> bytes:
    """Read the bytes of an image file of the curated dataset.

    Raises:
        FileNotFoundError: the image is missing; the message names it.
    """
    try:
        if place_in_shard(path):
            return open_photo(path).read()
        with open(path, "rb", buffering=0) as file:
            return file.readall()
    except FileNotFoundError as error:
        raise _is_gone(path, is_needed=is_needed) from error


def _is_gone(path: Path, *, is_needed: bool) -> FileNotFoundError:
    ways = "" if is_needed else "--photos none exports the captions alone, or "
    return FileNotFoundError(
        f"{path}: no such picture; {ways}put it back, or take its captions out of the set"
    )
