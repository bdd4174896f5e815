"""Read photos with captions in text files beside them: ``a.jpg`` and ``a.txt``."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any
from unicodedata import normalize

from captioning.config.setting_error import Setting, SettingError, SettingNotFoundError
from captioning.data.json_files import Record, parse_json
from captioning.data.line_files import read_lines, read_text
from captioning.data.photo_folder import PHOTO_SUFFIXES, UNREAD_SUFFIXES, without_masks
from captioning.data.readers.caption_columns import CaptionPer, listed
from captioning.data.readers.entries import (
    LEAVE_OUT,
    PhotoPolicy,
    Policy,
    Rules,
    roster_from_entries,
)
from captioning.data.readers.generator_folders import Concept, default_texts, folder_captions
from captioning.data.readers.joined_rows import Row, entries_of
from captioning.data.readers.jsonl import CAPTION_KEYS, caption_pairs
from captioning.data.readers.record_keys import CaptionKeys
from captioning.data.readers.split_words import split_of
from captioning.data.roster import Dropped, Roster

log = logging.getLogger(__name__)

TEXTS = (".txt", ".caption")
RECORDS = (".json", ".yaml", ".yml")  # which count where there is none of the others
UNREAD = "photo of a kind that is not read"
_Found = Sequence[tuple[Path, list[Path]]]  # photos with files that could have their captions
_Pairs = tuple[tuple[Any, str], ...]
_PARAGRAPHS = re.compile(r"\S[ \t]*\n(?:[ \t]*\n)+[ \t]*\S")
_BOXES = re.compile(r"\s*(?:\d+(?:[ \t]+-?\d*\.?\d+(?:e-?\d+)?){4,}[ \t\r]*(?:\n\s*|$))+")
_IN_NAME = re.compile(r"^\d+(?=[_ -])|[ _-]*\(\d+\)$|[ _-]+\d+$|[_+]|(?<=\w)-(?=\w)")


def read_text_files(
    *,
    name: str,
    folder: str | Path,
    caption_columns: str | Sequence[str] | None = None,
    caption_per: CaptionPer = "line",
    from_names: bool = False,
    concepts: Sequence[Concept] = (),
    missing_photos: PhotoPolicy = "error",
    missing_captions: Policy = "error",
    bad_captions: Policy = "error",
) -> Roster:
    """Read the captions of photos in a folder and its subfolders.

    Each line of ``a.txt`` (or ``a.caption``, ``a.jpg.txt``) is a caption of ``a.jpg``, or a list of
    captions, which may be the whole text; ``a.json`` and ``a.yaml`` have captions under a key.
    Texts may lie in a separate folder, such as ``captions/a.txt`` for ``images/a.jpg``. Text files
    without photo are left alone. ``default_caption.txt`` applies to photos without text, and
    ``10_sks dog`` to photos of a folder without texts, see
    `captioning.data.readers.generator_folders`.

    Args:
        name: the roster's name.
        folder: folder with the photos.
        caption_columns: suffixes of the files that are read, such as ``.caption``, and keys of JSON
            and YAML; None: the only one that is there, and usual names.
        caption_per: ``"file"``: a text file is one caption, whatever its lines are.
        from_names: captions are the names of the photos; no file is read.
        concepts: folders that count, and where their captions are; none: all.
        missing_photos: ``"keep"`` opens none.
        missing_captions, bad_captions: see `Rules`; of ``bad_captions`` are files that cannot be
            read, too.

    Raises:
        FileNotFoundError: no such folder.
        ValueError: a photo without captions or of a kind that is not read, or no photo at all; two
            files with other captions beside one photo.
    """
    rules = Rules(
        missing_photos=missing_photos, missing_captions=missing_captions, bad_captions=bad_captions
    )
    root = Path(folder)
    if not root.is_dir():
        raise SettingNotFoundError(root, "no such folder", "correct ", Setting("folder"))
    files = _Files(root, caption_columns, caption_per)
    dropped: list[Dropped] = []
    unread: list[str] = []
    found = list(pairs_below(root))
    if concepts:
        rows = [row for one in concepts for row in _concept_rows(root, found, one, files, unread)]
    else:
        rows = list(_name_rows(root, found) if from_names else _rows(root, found, files, unread))
    files.check(name, must_read=bad_captions == "error")
    entries = entries_of(rows, dropped if bad_captions == "drop" else None)
    if unread and missing_photos == "error":
        more = f" (and {len(unread) - 1} more)" if len(unread) > 1 else ""
        raise SettingError(
            unread[0],
            f"photos of this kind are not read{more}",
            "save them as JPEG, or set ",
            Setting("missing_photos", "drop"),
            " to leave them out",
        )
    dropped += [Dropped(item=path, rule=UNREAD) for path in unread]
    dropped += [
        Dropped(item=path, rule=error.finding.removeprefix(f"{path}: "))
        for path, error in files.bad.items()
    ]
    return roster_from_entries(
        name=name,
        source=str(root),
        entries=entries,
        known_files=[entry.file_name for entry in entries],
        image_folder=root,
        rules=rules,
        dropped=dropped,
    )


class _Files:
    """Reader of text files that collects notes about oddities.

    Attributes:
        bad: files that cannot be read, and why.
    """

    def __init__(
        self, root: Path, columns: str | Sequence[str] | None, caption_per: CaptionPer
    ) -> None:
        named = [columns] if isinstance(columns, str) else list(columns or ())
        self.root, self._per = root, caption_per
        self._suffixes = tuple(name.lower() for name in named if name.startswith("."))
        self._keys = CaptionKeys(CAPTION_KEYS, [n for n in named if not n.startswith(".")] or None)
        self.bad: dict[str, SettingError] = {}
        self._number, self._paragraphs, self._json = 0, [], []

    def captions(self, paths: Sequence[Path]) -> list[tuple[Any, str]]:
        """Return the captions of a photo from its candidate files.

        Raises:
            ValueError: several have, and they differ.
        """
        ends = {path.suffix.lower() for path in paths}
        wanted = self._suffixes or (RECORDS if ends.isdisjoint(TEXTS) else TEXTS)
        paths = [path for end in wanted for path in paths if path.suffix.lower() == end]
        found = {path: pairs for path in paths if (pairs := self._read(path))}
        if len({tuple(text for text, _ in pairs) for pairs in found.values()}) > 1:
            first, other = list(found)[:2]
            if self._suffixes and first.suffix != other.suffix:
                return [pair for pairs in found.values() for pair in pairs]
            raise SettingError(
                first,
                f"{other} has another text ({found[first][0][0]!r:.40} here, "
                f"{found[other][0][0]!r:.40} there)",
                "choose by ",
                Setting("caption_columns", other.suffix),
                " which is read, or move one out of the folder",
            )
        return [*next(iter(found.values()), ())]

    def _read(self, path: Path) -> _Pairs:
        try:
            return tuple(self._pairs(path, read_text(path)))
        except SettingError as error:
            self.bad[str(path)] = error
            return ()

    def _pairs(self, path: Path, text: str) -> list[tuple[Any, str]]:
        self._number += 1
        is_text = path.suffix.lower() in TEXTS
        value = _value(path, text)
        if value is not None:
            pairs = _pairs_of(value, str(path), self._keys)
            if pairs or not is_text:
                return pairs
            self._json.append(path)
        if is_text and _BOXES.fullmatch(text):
            problem = "holds boxes in numbers, as YOLO has them, and no caption"
            raise SettingError(path, problem, "move it out of the folder")
        if value is not None or (is_text and self._per == "file"):
            return [(one, str(path)) for one in listed(text, str(path)) if text.strip()]
        with suppress(ValueError):  # each line may be a list
            if (found := listed(text, str(path))) != [text.strip()]:
                return [(one, str(path)) for one in found]
        if _PARAGRAPHS.search(text):
            self._paragraphs.append(path)
        lines = ((f"{path}:{n}", line) for n, line in enumerate(text.split("\n"), start=1))
        return [
            (one, place) for place, line in lines if line.strip() for one in listed(line, place)
        ]

    def check(self, name: str, *, must_read: bool) -> None:
        """Log warnings about oddities of the files.

        Raises:
            ValueError: files cannot be read, and must be, or none can.
        """
        if self.bad and (must_read or len(self.bad) == self._number + len(self.bad)):
            more = f", and {len(self.bad) - 1} files more" if len(self.bad) > 1 else ""
            first = next(iter(self.bad.values()))
            error = SettingError(first.place, f"{first.problem}{more}", *first.remedy)
            raise error.or_else("leave such files out by ", LEAVE_OUT) if must_read else error
        if self._json:
            _say(
                f"{name}: {len(self._json)} text files hold JSON without a key of captions, such "
                f"as {self._json[0].name}: each is one caption"
            )
        if self._paragraphs:
            _say(
                f"{name}: {len(self._paragraphs)} text files have blank lines between others, as "
                f"paragraphs have, such as {self._paragraphs[0].name}: each line is a caption; the "
                "setting caption_per=file reads a file as one"
            )


@cache  # once for all parts of a set
def _say(message: str) -> None:
    log.warning(message)


def _value(path: Path, text: str) -> Any:
    """Parse a JSON or YAML file; None for plain text."""
    suffix = path.suffix.lower()
    if suffix in (".yaml", ".yml"):
        import yaml

        try:
            return yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise SettingError(
                path, f"not YAML ({' '.join(str(error).split())})", "correct it"
            ) from error
    if suffix == ".json":
        return parse_json(text, str(path))
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        value = parse_json(text, str(path))
    except ValueError:
        return None
    return value if isinstance(value, dict | list) and value else None


def _pairs_of(value: Any, where: str, keys: CaptionKeys) -> list[tuple[Any, str]]:
    """Return captions in parsed JSON: a text, an object with captions, or a list of them."""
    if isinstance(value, str):
        return [(value, where)]
    if isinstance(value, list):
        return [pair for one in value for pair in _pairs_of(one, where, keys)]
    if not isinstance(value, dict):
        return []
    return caption_pairs(Record(value, where), keys, may_lack=True, may_be_bad=True)


def records_beside(root: Path) -> Iterator[tuple[str, Record]]:
    """Return the content of JSON and YAML files beside photos, by the photo's path."""
    for photo, paths in pairs_below(root):
        for path in (path for path in paths if path.suffix.lower() in RECORDS):
            with suppress(ValueError):  # the reader says what is wrong
                value = _value(path, read_text(path))
                if isinstance(value, dict) and photo.suffix.lower() in PHOTO_SUFFIXES:
                    yield photo.relative_to(root).as_posix(), Record(value, str(path))


def has_captions(
    path: Path, columns: str | Sequence[str] | None, problems: list[SettingError]
) -> bool:
    """Whether a text file, or a JSON or YAML file, has captions of its photo.

    Args:
        path: the file.
        columns: keys of captions; None: usual names.
        problems: why it cannot be read is added to it.
    """
    files = _Files(path.parent, columns, "line")
    found = files.captions([path])
    problems += files.bad.values()
    return bool(found)


def pairs_below(root: Path) -> Iterator[tuple[Path, list[Path]]]:
    """Return photos below a folder, each with the files that may hold its captions.

    Where no photo of a folder has one beside it, folders of texts alone count whose path differs in
    one folder: ``train/images`` and ``train/captions``.
    """
    listed = {
        Path(place): sorted(without_masks(names)) for place, _, names in sorted(os.walk(root))
    }
    texts = {place: _texts(place, names) for place, names in listed.items()}
    is_photo = PHOTO_SUFFIXES | UNREAD_SUFFIXES
    photos = {
        place: [place / n for n in names if _end(n) in is_photo and not n.startswith(".")]
        for place, names in listed.items()
    }
    beside = {place: any(_of(p, texts[place]) for p in own) for place, own in photos.items()}
    apart: dict[tuple[str, ...], list[Path]] = {}
    for place, own in texts.items():
        if own and not photos[place]:
            for key in _keys(place.relative_to(root).parts):
                apart.setdefault(key, []).append(place)
    for place, own in photos.items():
        near = [place]
        if own and not beside[place]:
            keys = _keys(place.relative_to(root).parts)
            near = list(dict.fromkeys(folder for key in keys for folder in apart.get(key, ())))
        for photo in own:
            found = [path for folder in near for path in _of(photo, texts[folder])]
            yield photo, found or default_texts(place, root, texts)


def _keys(parts: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Return a path, and the path without one folder whose name gives no split."""
    shorter = (parts[:n] + parts[n + 1 :] for n, part in enumerate(parts) if not split_of(part))
    return [parts, *shorter]


def _end(name: str) -> str:
    return os.path.splitext(name)[1].lower()


def _texts(place: Path, names: Sequence[str]) -> dict[str, list[Path]]:
    """Map stems to text files; ``a.txt`` is preferred to ``a.TXT``."""
    found: dict[str, dict[str, Path]] = {}
    for name in names:
        stem, end = os.path.splitext(name)
        if end.lower() in (*TEXTS, *RECORDS):
            found.setdefault(normalize("NFC", stem), {})[end.lower()] = place / name
    return {stem: list(own.values()) for stem, own in found.items()}


def _of(photo: Path, texts: Mapping[str, list[Path]]) -> list[Path]:
    names = (normalize("NFC", name) for name in (photo.stem, photo.name))
    return [path for name in names for path in texts.get(name, ())]


def _concept_rows(
    root: Path, found: _Found, concept: Concept, files: _Files, unread: list[str]
) -> Iterator[Row]:
    """Return one row per photo of a OneTrainer concept."""
    own = [
        (photo, paths)
        for photo, paths in found
        if photo.parent == concept.folder or (concept.is_deep and concept.folder in photo.parents)
    ]
    if concept.prompts == "filename":
        yield from _name_rows(root, own)
    elif isinstance(concept.prompts, Path):
        lines = read_lines(concept.prompts)
        captions = [(line.strip(), f"{concept.prompts}:{number}") for number, line in lines]
        for row in _name_rows(root, own):
            yield row._replace(captions=captions)
    else:
        yield from _rows(root, own, files, unread)


def _rows(root: Path, found: _Found, files: _Files, unread: list[str]) -> Iterator[Row]:
    """Return one row per photo; unsupported captioned photos are added to ``unread``."""
    opened = {p.with_suffix("") for p, _ in found if p.suffix.lower() in PHOTO_SUFFIXES}
    words = folder_captions(found)
    for photo, paths in found:
        if photo.suffix.lower() in PHOTO_SUFFIXES:
            inside = PurePosixPath(photo.relative_to(root).as_posix())
            of_folder = [(words[photo.parent], str(photo))] if photo.parent in words else []
            yield Row(str(inside), files.captions(paths) or of_folder, str(photo))
        elif paths and photo.with_suffix("") not in opened:
            unread.append(str(photo))


def _name_rows(root: Path, found: _Found) -> Iterator[Row]:
    """Return one row per photo, with its cleaned name as the caption."""
    for photo, _ in found:
        if photo.suffix.lower() in PHOTO_SUFFIXES:
            caption = _IN_NAME.sub(" ", photo.stem)
            inside = photo.relative_to(root).as_posix()
            yield Row(inside, [(caption, str(photo))], str(photo))
