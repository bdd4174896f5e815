"""``data=own``: one's own photos in any layout, split by photo where they have no splits."""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Gt, Lt

from captioning.data.json_streams import stream_records
from captioning.data.line_files import read_lines
from captioning.data.readers import table
from captioning.data.readers.arrow import read_arrow
from captioning.data.readers.arrow_files import SUFFIXES
from captioning.data.readers.coco import read_coco
from captioning.data.readers.entries import PhotoPolicy, Policy
from captioning.data.readers.flickr8k import read_flickr8k
from captioning.data.readers.imagefolder import read_imagefolder
from captioning.data.readers.jsonl import read_jsonl, records_of
from captioning.data.readers.karpathy import read_karpathy
from captioning.data.readers.own.layout import (
    SPLITS,
    Kind,
    Layout,
    Source,
    Split,
    photo_folder,
    recognise,
    split_of,
)
from captioning.data.readers.packed import Part
from captioning.data.readers.text_files import read_text_files
from captioning.data.readers.webdataset import read_webdataset
from captioning.data.roster import Dropped, Roster, build_roster
from captioning.loadable import loadable
from captioning.model_folder import data_folder
from captioning.ranges import Name, Seed
from captioning.types import Sample

log = logging.getLogger(__name__)

_NUM_PROBED = 40  # photos that are looked for to find their folder
# Settings that are not for all layouts.
_READ_BY: dict[str, tuple[Kind, ...]] = {
    "image_folder": ("token_file", "karpathy", "coco", "jsonl", "table"),
    "file_column": ("table", "arrow"),
    "caption_columns": ("imagefolder", "table", "arrow", "webdataset"),
}
HeldOut = Annotated[float, Gt(0), Lt(0.5)]


@loadable
def read_own(
    *,
    name: str,
    folder: str | Path,
    part: Part = "all",
    layout: Kind | None = None,
    annotations: Name | None = None,
    image_folder: str | Path | None = None,
    file_column: Name | None = None,
    caption_columns: str | list[str] | None = None,
    held_out: HeldOut = 0.1,
    seed: Seed = 0,
    missing_photos: PhotoPolicy = "error",
    missing_captions: Policy = "drop",
    bad_captions: Policy = "error",
) -> Roster:
    """Photos and captions of a folder, whatever layout it has.

    Validation and test are taken from the training photos where the folder has none: ``held_out``
    of them each, at least one photo, drawn by the seed. All captions of a photo stay together.

    Args:
        name: of the roster.
        folder: with captions and photos; see `recognise`. ``OWNER/NAME@COMMIT`` fetches a data set
            from the hub.
        part: ``"train"``, ``"val"``, ``"test"``, or ``"all"``, with no split left out.
        layout: None: it is recognised, and said in the log.
        annotations: name of the file with the captions, where several could be meant.
        image_folder: that names of photos are relative to, below the folder; None: it is found.
        file_column, caption_columns: of tables and Parquet; None: those with usual names.
        held_out: share of the photos, above 0 and below 0.5.
        seed: of the draw.
        missing_photos, missing_captions, bad_captions: see `captioning.data.readers.entries.Rules`.

    Raises:
        FileNotFoundError: no such folder, or nothing that is known in it.
        ValueError: annotations that are not as their reader has them; names file and row.
    """
    found = recognise(data_folder(folder), kind=layout, annotations=annotations)
    given = {
        "image_folder": image_folder, "file_column": file_column, "caption_columns": caption_columns
    }  # fmt: skip
    for key in (key for key, value in given.items() if value is not None):
        if found.kind not in _READ_BY[key]:
            raise ValueError(
                f"{found.root} is read as {found.description}, which does not read {key}; it is "
                f"for {', '.join(_READ_BY[key])}: leave it out, or choose layout="
            )
    rules = {"missing_photos": missing_photos, "missing_captions": missing_captions}
    read = _Reader(found, image_folder, file_column, caption_columns, rules, bad_captions)
    if part in ("train", "all"):
        _say(name, found, held_out, seed, part)
    if part == "all":
        return read(name, None)
    lacking = [split for split in ("val", "test") if split not in found.splits]
    if part in found.splits and (part != "train" or not lacking):
        return read(name, part)
    if "train" not in found.splits:  # a folder of a test set alone has no other use than all
        lacking = ["val", "test"]
    whole = read(name, "train" if "train" in found.splits else None)
    return _share(whole, part, lacking, held_out, seed)


class _Reader:
    """Reads parts of a layout by the readers of its format."""

    def __init__(
        self,
        layout: Layout,
        image_folder: str | Path | None,
        file_column: str | None,
        caption_columns: str | list[str] | None,
        rules: Mapping[str, str],
        bad_captions: Policy,
    ) -> None:
        self.layout, self._image_folder = layout, image_folder
        self._file_column, self._caption_columns = file_column, caption_columns
        self._packed: dict[str, Any] = dict(rules)
        self._rules: dict[str, Any] = {**rules, "bad_captions": bad_captions}

    def __call__(self, name: str, split: Split | None) -> Roster:
        """A split of the layout; None: all of it."""
        sources = [s for s in self.layout.sources if split is None or s.split == split]
        if split is None and self.layout.kind == "token_file":  # the lists may leave photos out
            sources = [Source(sources[0].path)]
        if split is None and self.layout.kind in ("arrow", "webdataset"):
            sources = [Source(self.layout.root)]
        read = _READERS[self.layout.kind]
        rosters = {source.split or "all": read(self, name, source) for source in sources}
        return _joined(name, rosters)

    def photos(self, source: Source, names: Sequence[str]) -> Path:
        """The folder of a source's photos."""
        if self._image_folder is not None:
            return self.layout.root / self._image_folder
        return photo_folder(self.layout.root, names, source.split)

    def imagefolder(self, name: str, source: Source) -> Roster:
        return read_imagefolder(
            name=name,
            folder=source.path,
            caption_columns=self._caption_columns,
            **self._rules,
        )

    def token_file(self, name: str, source: Source) -> Roster:
        lines = itertools.islice(read_lines(source.path), _NUM_PROBED)
        photos = self.photos(source, [line.partition("#")[0] for _, line in lines])
        return read_flickr8k(
            name=name,
            token_file=source.path,
            split_file=source.images,
            image_folder=photos,
            **self._rules,
        )

    def karpathy(self, name: str, source: Source) -> Roster:
        images = itertools.islice(stream_records(str(source.path), "images"), _NUM_PROBED)
        names = [f"{r.value.get('filepath', '')}/{r.value.get('filename')}" for r in images]
        photos = self.photos(source, [name.lstrip("/") for name in names])
        return read_karpathy(
            name=name,
            annotations=source.path,
            image_folder=photos,
            split=source.split or "train",
            **self._packed,
        )

    def coco(self, name: str, source: Source) -> Roster:
        images = itertools.islice(stream_records(str(source.path), "images"), _NUM_PROBED)
        photos = self.photos(source, [str(r.value.get("file_name")) for r in images])
        return read_coco(name=name, annotations=source.path, image_folder=photos, **self._rules)

    def jsonl(self, name: str, source: Source) -> Roster:
        lines = itertools.islice(records_of(source.path), _NUM_PROBED)
        photos = self.photos(source, [str(r.value.get("image")) for r in lines])
        return read_jsonl(name=name, annotations=source.path, image_folder=photos, **self._rules)

    def table(self, name: str, source: Source) -> Roster:
        names = table.file_names(source.path, self._file_column, _NUM_PROBED)
        return table.read_table(
            name=name,
            annotations=source.path,
            image_folder=self.photos(source, names),
            file_column=self._file_column,
            caption_columns=self._caption_columns,
            **self._rules,
        )

    def arrow(self, name: str, source: Source) -> Roster:
        files = [file for end in SUFFIXES for file in self._packed_files(source, end)]
        return read_arrow(
            name=name,
            folder=source.path,
            files=None if source.split is None else files,
            image_column=self._file_column,
            caption_columns=self._caption_columns,
            **self._packed,
        )

    def webdataset(self, name: str, source: Source) -> Roster:
        key = self._caption_columns
        return read_webdataset(
            name=name,
            folder=source.path,
            shards=self._packed_files(source, ".tar"),
            caption_key=key[0] if isinstance(key, list) else key,
            **self._packed,
        )

    def _packed_files(self, source: Source, suffix: str) -> list[str]:
        """Files of a split below a folder, in order; results of `datasets` beside them are none."""
        files = sorted(source.path.rglob(f"*{suffix}"))
        return [
            path.relative_to(source.path).as_posix()
            for path in files
            if not path.name.startswith((".", "cache-", "tmp"))
            and source.split in (None, split_of(str(path.relative_to(source.path).with_suffix(""))))
        ]

    def text_files(self, name: str, source: Source) -> Roster:
        return read_text_files(name=name, folder=source.path, **self._rules)


_READERS: dict[Kind, Callable[[_Reader, str, Source], Roster]] = {
    "imagefolder": _Reader.imagefolder,
    "token_file": _Reader.token_file,
    "karpathy": _Reader.karpathy,
    "coco": _Reader.coco,
    "jsonl": _Reader.jsonl,
    "table": _Reader.table,
    "arrow": _Reader.arrow,
    "webdataset": _Reader.webdataset,
    "text_files": _Reader.text_files,
}


def _joined(name: str, rosters: Mapping[str, Roster]) -> Roster:
    """One roster; image ids that several have begin with the split."""
    if len(rosters) == 1:
        return next(iter(rosters.values()))
    ids = [image_id for roster in rosters.values() for image_id in roster.rows_by_image]
    is_unique = len(set(ids)) == len(ids)
    samples: list[Sample] = []
    dropped: list[Dropped] = []
    for label, roster in rosters.items():
        dropped += roster.dropped
        samples += roster.samples if is_unique else (_named(s, label) for s in roster.samples)
    return build_roster(name, samples, dropped)


def _named(sample: Sample, label: str) -> Sample:
    return replace(
        sample, image_id=f"{label}/{sample.image_id}", sample_id=f"{label}/{sample.sample_id}"
    )


def _share(
    roster: Roster, part: Part, lacking: Sequence[str], held_out: float, seed: int
) -> Roster:
    """A part of a roster, by photo: each split that lacks gets its share of those in hash order."""
    image_ids = list(roster.rows_by_image)
    order = sorted(image_ids, key=lambda image_id: _draw(image_id, seed))
    number = max(1, round(held_out * len(order)))
    if number * len(lacking) >= len(order):
        raise ValueError(
            f"{roster.name}: {len(order)} photos are too few to be split into "
            f"{['train', *lacking]}; add photos, or give the folder splits of its own"
        )
    shares = {split: order[n * number : (n + 1) * number] for n, split in enumerate(lacking)}
    shares["train"] = order[len(lacking) * number :]
    chosen = set(shares[part])
    samples = [sample for sample in roster.samples if sample.image_id in chosen]
    return build_roster(roster.name, samples, roster.dropped if part == "train" else ())


def _draw(image_id: str, seed: int) -> bytes:
    key = json.dumps([seed, image_id]).encode()
    return hashlib.blake2b(key, digest_size=8).digest()


def _say(name: str, layout: Layout, held_out: float, seed: int, part: Part) -> None:
    lacking = [split for split in SPLITS if split not in layout.splits]
    splits = f"; splits: {', '.join(layout.splits)}" if layout.splits else ""
    if lacking and part != "all":
        taken = [split for split in ("val", "test") if split in lacking or "train" in lacking]
        shares = " and ".join(f"{held_out:.0%} for {split}" for split in taken)
        splits += (
            f"; of its training photos {shares} (seed {seed})"
            if layout.splits
            else (f"; no splits: {shares} of the photos (seed {seed}), the rest for train")
        )
    log.info(f"{name}: {layout.root} is read as {layout.description}{splits}; layout= for another")
