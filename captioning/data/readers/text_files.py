"""Photos with their captions in text files beside them: ``a.jpg`` and ``a.txt``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from captioning.data.line_files import read_lines
from captioning.data.photo_folder import PHOTO_SUFFIXES, UNREAD_SUFFIXES
from captioning.data.readers.entries import PhotoPolicy, Policy, Rules, roster_from_entries
from captioning.data.readers.rows import Row, entries_of
from captioning.data.roster import Dropped, Roster
from captioning.setting_error import Setting, SettingError, SettingNotFoundError

SUFFIXES = (".txt", ".caption")
UNREAD = "photo of a kind that is not read"


def read_text_files(
    *,
    name: str,
    folder: str | Path,
    missing_photos: PhotoPolicy = "error",
    missing_captions: Policy = "error",
    bad_captions: Policy = "error",
) -> Roster:
    """Captions of the photos of a folder and those below it.

    Each line of ``a.txt`` (or ``a.caption``) is a caption of ``a.jpg``. Text files without photo
    are left alone.

    Args:
        name: of the roster.
        folder: with the photos.
        missing_photos: ``"keep"`` opens none.
        missing_captions, bad_captions: see `Rules`.

    Raises:
        FileNotFoundError: no such folder.
        ValueError: a photo without captions or of a kind that is not read, or no photo at all.
    """
    rules = Rules(
        missing_photos=missing_photos, missing_captions=missing_captions, bad_captions=bad_captions
    )
    root = Path(folder)
    if not root.is_dir():
        raise SettingNotFoundError(f"{root}: no such folder; correct ", Setting("folder"))
    dropped: list[Dropped] = []
    unread: list[str] = []
    entries = entries_of(_rows(root, unread), dropped if bad_captions == "drop" else None)
    if unread and missing_photos == "error":
        more = f" (and {len(unread) - 1} more)" if len(unread) > 1 else ""
        raise SettingError(
            f"{unread[0]}: photos of this kind are not read{more}; save them as JPEG, or set ",
            Setting("missing_photos", "drop"),
            " to leave them out",
        )
    dropped += [Dropped(item=path, rule=UNREAD) for path in unread]
    return roster_from_entries(
        name=name,
        source=str(root),
        entries=entries,
        known_files=[entry.file_name for entry in entries],
        image_folder=root,
        rules=rules,
        dropped=dropped,
    )


def _texts(names: Sequence[str]) -> dict[str, str]:
    """Text files by their names with small suffixes; ``a.txt`` counts beside ``a.TXT``."""
    pairs = ((os.path.splitext(name), name) for name in sorted(names))
    return {stem + end.lower(): name for (stem, end), name in pairs if end.lower() in SUFFIXES}


def _text_of(stem: str, texts: Mapping[str, str]) -> str | None:
    """The text file beside a photo."""
    return next((texts[stem + end] for end in SUFFIXES if stem + end in texts), None)


def _rows(root: Path, unread: list[str]) -> Iterator[Row]:
    """A row a photo; captioned photos that cannot be opened are added to ``unread``."""
    for directory, folders, names in os.walk(root):
        folders.sort()
        texts = _texts(names)
        pairs = (os.path.splitext(name) for name in names)
        photos = {stem for stem, end in pairs if end.lower() in PHOTO_SUFFIXES}
        for name in sorted(names):
            path = Path(directory, name)
            stem, suffix = os.path.splitext(name)
            if name.startswith("."):
                continue
            if suffix.lower() in UNREAD_SUFFIXES and stem not in photos and _text_of(stem, texts):
                unread.append(str(path))
            if suffix.lower() not in PHOTO_SUFFIXES:
                continue
            beside = _text_of(stem, texts)
            lines = [] if beside is None else read_lines(path.with_name(beside))
            places = [(text, f"{path.with_name(beside or '')}:{line}") for line, text in lines]
            inside = PurePosixPath(path.relative_to(root).as_posix())
            yield Row(str(inside), places, str(path))
