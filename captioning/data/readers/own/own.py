"""Read ``data=own``: a user's photos in any layout, split by photo if they have no splits."""

from __future__ import annotations

import inspect
import itertools
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Gt, Lt

from captioning.config.loadable import loadable
from captioning.config.ranges import Name, Seed
from captioning.config.setting_error import (
    AbstractSettingError,
    Setting,
    SettingError,
    SettingNotFoundError,
)
from captioning.data.json_streams import stream_records
from captioning.data.line_files import read_lines
from captioning.data.readers import table
from captioning.data.readers.arrow import first_names, read_arrow
from captioning.data.readers.arrow_files import all_files
from captioning.data.readers.caption_columns import CaptionPer
from captioning.data.readers.coco import read_coco
from captioning.data.readers.entries import UNNAMED, PhotoPolicy, Policy
from captioning.data.readers.flickr8k import read_flickr8k
from captioning.data.readers.generator_folders import concepts_of
from captioning.data.readers.imagefolder import read_imagefolder
from captioning.data.readers.jsonl import read_jsonl, records_of
from captioning.data.readers.karpathy import read_karpathy
from captioning.data.readers.line_pairs import lists_below, read_line_pairs, texts_of_list
from captioning.data.readers.own.kinds import Kind
from captioning.data.readers.own.layout import (
    Layout,
    Source,
    place,
    recognise,
    shards_of,
    split_of_file,
)
from captioning.data.readers.own.marks import split_marks
from captioning.data.readers.own.named_photos import photo_folder
from captioning.data.readers.own.splits import ReadPart, chosen, drawn, joined, share
from captioning.data.readers.packed import Part
from captioning.data.readers.read_once import files_kept
from captioning.data.readers.record_keys import stated_name
from captioning.data.readers.split_words import COLUMN, SPLITS, Split, split_of, split_said
from captioning.data.readers.text_files import read_text_files
from captioning.data.readers.webdataset import read_webdataset, splits_of_shards
from captioning.data.roster import Roster, build_roster
from captioning.runtime.model_folder import data_folder
from captioning.vision.photo_keys import PhotoKeys
from captioning.vision.photo_places import photo_exists

log = logging.getLogger(__name__)

_NUM_PROBED = 40  # photos that are looked for to find their folder
# Settings that are not for all layouts.
_READ_BY: dict[str, tuple[Kind, ...]] = {
    "image_folder": ("token_file", "karpathy", "coco", "jsonl", "table", "arrow", "line_pairs"),
    "file_column": ("jsonl", "table", "arrow"),
    "caption_columns": (
        "imagefolder",
        "jsonl",
        "table",
        "arrow",
        "webdataset",
        "line_pairs",
        "concepts",
        "text_files",
    ),
    "caption_per": ("imagefolder", "jsonl", "table", "arrow"),
    "caption_per=file": ("concepts", "text_files"),
}
_NAME_OF_CAPTION = re.compile(r"\S+\.(?:jpe?g|png|webp)[#:]\S+", re.IGNORECASE)
HeldOut = Annotated[float, Gt(0), Lt(0.5)]


# Arguments of the readers of packed files by their names here.
_NAMES = {"image_column": "file_column"}


def _own_setting(setting: Setting) -> str | Setting:
    """Map a reader's argument to the setting of ``data=own``."""
    name = _NAMES.get(setting.name, setting.name)
    if name in inspect.signature(read_own).parameters:
        return Setting(name, setting.value)
    return f"the setting {name} of data=webdataset or data=arrow"


@contextmanager
def _own_settings() -> Iterator[None]:
    """Make errors of format readers name the settings of ``data=own``."""
    try:
        yield
    except AbstractSettingError as error:
        raise error.worded(_own_setting) from error


@loadable
@_own_settings()
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
    caption_per: CaptionPer | None = None,
    held_out: HeldOut = 0.1,
    seed: Seed = 0,
    split_by: Literal["content", "name"] = "name",
    keys_folder: str | Path | None = None,
    missing_photos: PhotoPolicy = "error",
    missing_captions: Policy = "drop",
    bad_captions: Policy = "error",
) -> Roster:
    """Read photos and captions of a folder in any layout.

    Validation and test are taken from the training photos where the folder has none: about
    ``held_out`` of them each, at least one photo, drawn by the seed. All captions of a photo stay
    together. Splits come from file and folder names, or from a column ``split``. Without training
    photos all others are split again, so that no photo is in two parts.

    Args:
        name: the roster's name.
        folder: folder with captions and photos; see `recognise`. ``OWNER/NAME@COMMIT`` fetches a
            data set from the hub.
        part: ``"train"``, ``"val"``, ``"test"``, or ``"all"``, with no split left out.
        layout: None: it is recognised, and said in the log.
        annotations: path below the folder of the file with the captions, where several could be
            meant.
        image_folder: base of photo names, below the folder; None: it is detected.
        file_column, caption_columns: columns of tables, JSON Lines and Parquet; None: columns with
            usual names. For text files beside photos suffixes, such as ``.caption``.
        caption_per: ``"file"``: a text file beside a photo is one caption; None or ``"line"``: its
            lines are. For tables, JSON Lines and Parquet, ``"bar"``, ``"semicolon"`` or ``"line"``
            separates several captions in one cell; ``"cell"``: a cell is one caption; None: the
            first cells decide if they are clear.
        held_out: share of the photos, above 0 and below 0.5.
        seed: the draw's seed.
        split_by: key of the draw: ``"content"`` of photos, so that every layout and cleaned copy of
            a set has the same test photos, see `drawn`; or image ids, as in older runs.
        keys_folder: caches hashes of contents; None: they are computed each time.
        missing_photos, missing_captions, bad_captions: see `captioning.data.readers.entries.Rules`.

    Raises:
        FileNotFoundError: no such folder, or nothing that is known in it.
        ValueError: annotations that are not as their reader has them; names file and row.
    """
    read = _reader(
        folder,
        layout=layout,
        annotations=annotations,
        image_folder=image_folder,
        file_column=file_column,
        caption_columns=caption_columns,
        caption_per=caption_per,
        missing_photos=missing_photos,
        missing_captions=missing_captions,
        bad_captions=bad_captions,
    )
    found = read.layout
    if part in ("train", "all"):
        log.info(
            f"{name}: {found.root} is read as {found.description}; the setting layout names another"
        )
    draw, each = partial(share, held_out=held_out, seed=seed), f"{held_out:.0%}"
    if split_by == "content":
        draw = partial(_drawn_by_content, held_out=held_out, seed=seed, keys_folder=keys_folder)
        each = f"about {each}"
    roster, splits = _part(read, name, part, draw)
    _check_captions(found, roster)
    _say(name, read, part, splits, each, seed)
    folders = {os.fspath(path) for path in read.folders} or {os.fspath(found.root)}
    return replace(roster, photo_root=Path(os.path.commonpath(folders)))


def _check_captions(found: Layout, roster: Roster) -> None:
    """Raise an error if captions are only names of captions, as in files of ratings."""
    if all(_NAME_OF_CAPTION.fullmatch(sample.caption) for sample in roster.samples):
        raise SettingError(
            found.root,
            f"it is read as {found.description}, and captions such as "
            f"{roster.samples[0].caption!r} are names of captions in another file",
            "give that by ",
            Setting("annotations", "NAME"),
            ", or choose other ",
            Setting("caption_columns"),
        )


@_own_settings()
def own_splits(folder: str | Path, **reading: Any) -> dict[Path, Split]:
    """Return the split that a folder gives each photo, by path; empty if none.

    Args:
        folder: see `read_own`.
        **reading: other arguments of `read_own`, except ``part`` and settings of a draw.
    """
    read = _reader(folder, **reading)
    splits, take = read.layout.splits, read
    if not splits:
        splits, take = _splits_inside(read, "", "train")
    return {s.image_path: split for split in splits for s in take("", split).samples}


def with_drawn(
    roster: Roster,
    given: Mapping[Path, Split],
    *,
    held_out: float,
    seed: int,
    keys_folder: str | Path | None = None,
) -> tuple[dict[Path, Split], tuple[Split, ...]]:
    """Return the splits of ``data=own``: those given, and those drawn at random.

    Nothing is drawn of fewer photos than ``1 / held_out``, nor where the set has splits but no
    training photos.

    Args:
        roster: the whole set.
        given: the set's own split of each photo, see `own_splits`.
        held_out, seed, keys_folder: settings of the draw by content, see `read_own`.

    Returns:
        The split of each photo by path, and those that were drawn.
    """
    lacking: list[Split] = [split for split in ("val", "test") if split not in given.values()]
    samples = [s for s in roster.samples if not given or given.get(s.image_path) == "train"]
    paths = dict.fromkeys(sample.image_path for sample in samples)
    if not lacking or len(paths) * held_out < 1:
        return dict(given), ()
    keys = PhotoKeys(keys_folder)(path for path in paths if photo_exists(path))
    if len({keys.get(path, str(path)) for path in paths}) <= len(lacking):  # copies of one photo
        return dict(given), ()
    splits: dict[Path, Split] = {**dict.fromkeys(paths, "train"), **given}
    whole = build_roster(roster.name, samples)
    for split in lacking:
        part = drawn(whole, split, lacking, held_out, seed, keys)
        splits.update((sample.image_path, split) for sample in part.samples)
    return splits, tuple(lacking)


def _reader(
    folder: str | Path,
    *,
    layout: Kind | None = None,
    annotations: Name | None = None,
    image_folder: str | Path | None = None,
    file_column: Name | None = None,
    caption_columns: str | list[str] | None = None,
    caption_per: CaptionPer | None = None,
    **rules: str,
) -> _Reader:
    """Return the reader of `read_own`; for arguments see there."""
    found = recognise(
        data_folder(folder),
        kind=layout,
        annotations=annotations,
        file_column=file_column,
        caption_columns=caption_columns,
    )
    given = {
        "image_folder": image_folder, "file_column": file_column,
        "caption_columns": caption_columns,
        # of text files, and of other layouts the usual, it is a line
        f"caption_per={caption_per}": None if caption_per == "line" else caption_per,
    }  # fmt: skip
    for key in (key for key, value in given.items() if value is not None):
        readers = _READ_BY.get(key) or _READ_BY[key.partition("=")[0]]
        if found.kind not in readers:
            raise SettingError(
                found.root,
                f"it is read as {found.description}, which does not read {key}",
                f"it is for {', '.join(readers)}: leave it out, or choose ",
                Setting("layout"),
            )
    file_column = file_column or found.file_column
    return _Reader(found, image_folder, file_column, caption_columns, caption_per, rules)


def _drawn_by_content(
    roster: Roster,
    part: Part,
    lacking: Sequence[str],
    *,
    held_out: float,
    seed: int,
    keys_folder: str | Path | None,
) -> Roster:
    paths = dict.fromkeys(sample.image_path for sample in roster.samples)
    keys = PhotoKeys(keys_folder)(path for path in paths if photo_exists(path))
    return drawn(roster, part, lacking, held_out, seed, keys)


def _part(
    read: _Reader, name: str, part: Part, draw: Callable[..., Roster]
) -> tuple[Roster, Sequence[Split]]:
    """Return a part by the folder's splits, the file's splits or drawn, and the given splits."""
    splits, take = read.layout.splits, read
    if not splits:
        splits, take = _splits_inside(read, name, part)
    lacking = [split for split in ("val", "test") if split not in splits]
    if "train" not in splits:  # so that no photo is in two parts
        lacking = ["val", "test"]
    if part == "all":
        roster = take(name, None)
    elif part in splits and not (lacking and part in ("train", *lacking)):
        roster = take(name, part)
    else:
        whole = take(name, "train" if "train" in splits else None)
        roster = draw(whole, part, lacking)
    return roster, splits


def _splits_inside(
    read: _Reader, name: str, part: Part
) -> tuple[tuple[Split, ...], Callable[[str, Split | None], Roster]]:
    """Return the splits in a layout's only file, and a function that selects one split."""
    with files_kept():
        whole = read(name, None)
        marks = {} if part == "all" else read.marks(whole)

    def take(name: str, split: Split | None) -> Roster:
        if split is None:
            return whole
        return chosen(whole, {image_id for image_id, own in marks.items() if own == split}, part)

    present = {marks[image_id] for image_id in whole.rows_by_image if image_id in marks}
    return tuple(split for split in SPLITS if split in present), take


class _Reader:
    """Reader of the parts of a layout, using the readers of its format."""

    def __init__(
        self,
        layout: Layout,
        image_folder: str | Path | None,
        file_column: str | None,
        caption_columns: str | list[str] | None,
        caption_per: CaptionPer | None,
        rules: Mapping[str, str],
    ) -> None:
        self.layout, self._image_folder = layout, image_folder
        self._file_column, self._caption_columns = file_column, caption_columns
        self._caption_per: CaptionPer | None = caption_per
        self._rules: dict[str, Any] = dict(rules)
        self.folders: list[Path] = []  # of the photos that were read

    def __call__(self, name: str, split: Split | None) -> Roster:
        """Read a split of the layout; None: all of it."""
        sources = [s for s in self.layout.sources if split is None or s.split == split]
        if split is None and self.layout.kind == "token_file":  # the lists may leave photos out
            sources = [Source(sources[0].path)]
        if split is None and self.layout.kind in ("arrow", "webdataset"):
            sources = [Source(self.layout.root)]
        roster = joined(name, [self._read_part(name, source) for source in sources])
        if {source.path for source in self.layout.sources} == {source.path for source in sources}:
            return roster
        # whether other files name the other photos is not known here
        dropped = [drop for drop in roster.dropped if drop.rule != UNNAMED]
        return build_roster(roster.name, roster.samples, dropped)

    def _read_part(self, name: str, source: Source) -> ReadPart:
        known, label = len(self.folders), place(source.path.with_suffix(""), self.layout.root)
        roster = _READERS[self.layout.kind](self, name, source)
        folder = self.folders[-1] if len(self.folders) > known else source.path
        return ReadPart(label, source.split, roster, folder)

    def marks(self, whole: Roster) -> dict[str, Split]:
        """Return the splits that the only source gives its photos, which were read before."""
        kind, path = self.layout.kind, self.layout.sources[0].path
        photos = self.folders[-1] if self.folders else path
        if kind == "webdataset":
            return self._marks_of_shards(self.layout.sources[0], whole)
        return split_marks(kind, path, self._file_column, photos, whole)

    def photos(self, source: Source, names: Sequence[str]) -> Path:
        """Return the folder of a source's photos."""
        if self._image_folder is not None:
            folder = self.layout.root / self._image_folder
            if not folder.is_dir():
                raise SettingNotFoundError(
                    folder, "no such photo folder", "correct ", Setting("image_folder")
                )
        else:
            folder = photo_folder(self.layout.root, names, source.split)
        self.folders.append(folder)
        return folder

    def imagefolder(self, name: str, source: Source) -> Roster:
        return read_imagefolder(
            name=name,
            folder=source.path,
            caption_columns=self._caption_columns,
            caption_per=self._caption_per,
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
            **self._rules,
        )

    def coco(self, name: str, source: Source) -> Roster:
        images = itertools.islice(stream_records(str(source.path), "images"), _NUM_PROBED)
        photos = self.photos(source, [str(r.value.get("file_name")) for r in images])
        return read_coco(name=name, annotations=source.path, image_folder=photos, **self._rules)

    def jsonl(self, name: str, source: Source) -> Roster:
        names = (stated_name(record, self._file_column) for record in records_of(source.path))
        first = itertools.islice((name for name in names if name), _NUM_PROBED)
        photos = self.photos(source, list(first))
        return read_jsonl(
            name=name,
            annotations=source.path,
            image_folder=photos,
            file_column=self._file_column,
            caption_columns=self._caption_columns,
            caption_per=self._caption_per,
            **self._rules,
        )

    def table(self, name: str, source: Source) -> Roster:
        names = table.file_names(source.path, self._file_column, self._caption_columns, _NUM_PROBED)
        return table.read_table(
            name=name,
            annotations=source.path,
            image_folder=self.photos(source, names),
            file_column=self._file_column,
            caption_columns=self._caption_columns,
            caption_per=self._caption_per,
            **self._rules,
        )

    def arrow(self, name: str, source: Source) -> Roster:
        files = self._names_of(source, all_files(source.path))
        ends = sorted({Path(file).suffix for file in files})
        if len(ends) > 1:  # one is likely made of the other
            raise SettingError(
                source.path,
                f"both {' and '.join(ends)} files of one split, such as {files[0]} and {files[-1]}",
                "move one kind out of the folder",
            )
        column = self._file_column
        names = first_names([source.path / file for file in files], column, self._caption_columns)
        return read_arrow(
            name=name,
            folder=source.path,
            image_folder=self.photos(source, names) if names else None,
            files=None if source.split is None or source.column else files,
            part=(source.split or "all") if source.column else "all",
            own_ids=True,
            split_column=source.column,
            image_column=self._file_column,
            caption_columns=self._caption_columns,
            caption_per=self._caption_per,
            **self._rules,
        )

    def webdataset(self, name: str, source: Source) -> Roster:
        with files_kept():
            shards = self._shards(source)
            roster = read_webdataset(name=name, own_ids=True, **shards, **self._rules)
            said = splits_of_shards(**shards) if source.split else {}
        others = [word for word in said.values() if word and split_of(word) != source.split]
        if others:
            log.warning(
                f"{source.path}: names of shards say {source.split}; the key {COLUMN!r} in their "
                f"JSON says otherwise of {len(others)} photos, such as {others[0]!r:.40}, and is "
                "not used: give the shards names without splits to split by it"
            )
        return roster

    def _shards(self, source: Source) -> dict[str, Any]:
        key = self._caption_columns
        return {
            "folder": source.path,
            "shards": self._names_of(source, shards_of(source.path)),
            "caption_key": (key[0] if isinstance(key, list) else key or "").lstrip(".") or None,
        }

    def _marks_of_shards(self, source: Source, whole: Roster) -> dict[str, Split]:
        """Return the splits in the shards' JSON; empty if a value is not a word for a split.

        Raises:
            ValueError: JSON of some photos says none.
        """
        said = splits_of_shards(**self._shards(source))
        words = {said[image_id] for image_id in whole.rows_by_image}
        odd = next((word for word in words if word and split_of(word) is None), None)
        if odd is not None:
            log.warning(
                f"{source.path}: the key {COLUMN!r} in the shards' JSON says {odd!r:.40}, which is "
                "none of train, val and test: it is not used"
            )
        if odd is not None or not any(words):
            return {}
        places = ((i, said[i], f"{source.path}: JSON of {i!r}") for i in whole.rows_by_image)
        return {image_id: split_said(word, where) for image_id, word, where in places}

    def _names_of(self, source: Source, files: Sequence[Path]) -> list[str]:
        """Return the files of a source's split."""
        return [
            place(path, source.path)
            for path in files
            if source.column or source.split in (None, split_of_file(path, source.path))
        ]

    def line_pairs(self, name: str, source: Source) -> Roster:
        named, of_list = self._caption_columns, lists_below(self.layout.root)[source.path]
        column = named[0] if isinstance(named, list) else named
        _, texts = texts_of_list(source.path, of_list, column)
        first = [line for _, line in read_lines(source.path)[:_NUM_PROBED]]
        return read_line_pairs(
            name=name,
            photos=source.path,
            texts=texts,
            image_folder=self.photos(source, first),
            **self._rules,
        )

    def text_files(self, name: str, source: Source) -> Roster:
        root, concepts = source.path, []
        if self.layout.kind == "concepts":
            root, concepts = self.layout.root, concepts_of(source.path, self.layout.root)
            concepts = [one for one in concepts if source.split in (None, one.split)]
            self.folders.append(root)
        return read_text_files(
            name=name,
            folder=root,
            concepts=concepts,
            caption_columns=self._caption_columns,
            caption_per=self._caption_per or "line",
            from_names=self.layout.kind == "file_names",
            **self._rules,
        )


_READERS: dict[Kind, Callable[[_Reader, str, Source], Roster]] = {
    "concepts": _Reader.text_files,
    "imagefolder": _Reader.imagefolder,
    "token_file": _Reader.token_file,
    "karpathy": _Reader.karpathy,
    "coco": _Reader.coco,
    "jsonl": _Reader.jsonl,
    "table": _Reader.table,
    "arrow": _Reader.arrow,
    "webdataset": _Reader.webdataset,
    "line_pairs": _Reader.line_pairs,
    "text_files": _Reader.text_files,
    "file_names": _Reader.text_files,
}


def _say(
    name: str, read: _Reader, part: Part, splits: Sequence[Split], each: str, seed: int
) -> None:
    """Log the folders of the photos, and how they are split."""
    root = read.layout.root
    folders = dict.fromkeys(place(folder, root) for folder in read.folders if folder != root)
    said = (
        [f"photos in {', '.join(folders)} (the setting image_folder names another)"]
        if folders
        else []
    )
    drawn = [split for split in ("val", "test") if split not in splits or "train" not in splits]
    shares = " and ".join(f"{each} for {split}" for split in drawn)
    if splits and part != "val" and part != "test":
        said.append(f"splits: {', '.join(splits)}")
    if splits and "train" not in splits and part != "all":
        said.append(
            f"no training photos: all are split again, {shares} (seed {seed}), the rest for train"
        )
    elif part == "train" and drawn:
        of_all = f"no splits: {shares} of the photos (seed {seed}), the rest for train"
        said.append(f"of its training photos {shares} (seed {seed})" if splits else of_all)
    if said:
        log.info(f"{name}: {'; '.join(said)}")
