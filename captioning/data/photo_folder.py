"""Folder of photos whose directories are listed only once."""

from __future__ import annotations

import os
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

from captioning.config.setting_error import Setting, SettingError, SettingNotFoundError

PHOTO_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff"})
UNREAD_SUFFIXES = frozenset({".heic", ".heif", ".avif", ".jxl"})  # photos that are not opened
MASK_ENDS = ("-masklabel", "-condlabel")  # pictures that go with a photo, as OneTrainer names them
_NUM_ALIKE = 5  # photos of a name that are shown
_DRIVE = re.compile(r"\A[A-Za-z]:/")
_MARK = r"/[0-9a-f]{8}-(?=[^/]+\Z)"  # before names of files that were uploaded to Label Studio
_NUMBER = re.compile(r"(?:.*[_-])?0*([0-9]+)")
_WHOLE = re.compile(r"0*([0-9]+)(?:\.0+)?")  # a number, which tables of floats write as 42.0
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(?:/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")


def checked_file_name(name: str, where: str, *, given: str = "") -> str:
    """Normalise a file name of an annotation (``./a.jpg`` becomes ``a.jpg``), and check it.

    Messages name ``where``, and ``given`` if the file has that name.

    Raises:
        ValueError: the name is blank, absolute, leads out of its folder, or no file can bear it.
    """
    if len(name) < 250 and _PLAIN.fullmatch(name):
        return name
    path = PurePosixPath(name)
    problem = ""
    if not name.strip() or not path.parts:
        problem = "is blank"
    elif path.is_absolute() or "\\" in name or name[1:3] == ":/":
        problem = "must be relative, with / between folders"
    elif ".." in path.parts:
        problem = "must not lead out of the photo folder by '..'"
    elif not name.isprintable():
        problem = "holds a control character"
    elif len(name) > 1024 or any(len(part.encode()) > 255 for part in path.parts):
        problem = "is too long for a file name"
    if problem:
        raise SettingError(
            where, f"file name {(given or name)[:80]!r} {problem}", "name a file in the folder"
        )
    return str(path)


class GivenName(str):
    """Normalised name of a photo that remembers the spelling in the annotations.

    Attributes:
        given: the name as the annotations write it.
    """

    given: str

    @classmethod
    def of(cls, name: str, given: str) -> GivenName:
        """Normalise a name, and remember its original spelling."""
        made = cls(name)
        made.given = given
        return made


def given_name(name: str) -> str:
    """Return the annotation's text from which `photo_name` made a name."""
    return name.given if isinstance(name, GivenName) else name


def photo_name(name: str, where: str) -> str:
    r"""The name of a photo in annotations, made plain.

    An absolute path stays one, see `PhotoFolder.below`; of Windows ``\\`` is ``/``, and drives are
    left out. Label Studio's addresses of local files are paths.

    Raises:
        ValueError: see `checked_file_name`.
    """
    if len(name) < 250 and _PLAIN.fullmatch(name):
        return name
    path, _, local = name.removeprefix("file://").partition("?d=")
    path = unquote(local) if local else path
    path = _DRIVE.sub("/", path.replace("\\", "/"))
    start = "/" if path.startswith("/") else ""
    return GivenName.of(start + checked_file_name(path.lstrip("/"), where, given=name), name)


class PhotoFolder:
    """Find photos by name; each directory is listed once, so look-ups need no disk access.

    Args:
        folder: folder of the photos.

    Raises:
        FileNotFoundError: there is no such folder.
    """

    def __init__(self, *, folder: str | Path) -> None:
        self.folder = Path(folder)
        if not self.folder.is_dir():
            raise SettingNotFoundError(
                self.folder,
                "no such photo folder",
                "`captioning prepare data=NAME` says where to get it, and ",
                Setting("image_folder", "null"),
                " reads the captions alone",
            )
        self._names: dict[str, frozenset[str]] = {}
        self._stems: dict[str, dict[str, str]] = {}
        self._spellings: dict[str, dict[str, list[str]]] = {}

    def names(self, directory: str = "") -> frozenset[str]:
        """Return file names in a directory below the folder; empty if it does not exist."""
        if directory not in self._names:
            path = self.folder / directory
            entries = os.scandir(path) if path.is_dir() else ()
            self._names[directory] = frozenset(item.name for item in entries if item.is_file())
        return self._names[directory]

    def find(self, file_name: str) -> Path | None:
        """Return the path of a photo, or None if it does not exist.

        A name without suffix is of the one photo of that name; a number finds ``0042.jpg``, too,
        also as ``42.0``. Else the one photo counts whose name differs in case, or in how accents
        are stored.
        """
        directory, _, base = file_name.rpartition("/")
        if base in self.names(directory):
            return self.folder / file_name
        name = None
        if not has_photo_suffix(base):
            stems, number = self._by_stem(directory), _WHOLE.fullmatch(base)
            name = stems.get(base) or (stems.get(number[1]) if number else None)
        alike = () if name else self._spelt_as(directory, base)
        name = alike[0] if len(alike) == 1 else name
        return None if name is None else self.folder / directory / name

    def below(self, names: Iterable[str]) -> dict[str, str]:
        """Convert absolute names to paths below the folder, which may have been moved.

        The same number of folders is cut off all of them, the fewest with which most photos are
        there. Where none is there, Label Studio's mark before the name is cut off, too.
        """
        absolute = [name for name in names if name.startswith("/")]
        deepest = max((name.count("/") for name in absolute), default=0)
        for pattern in ("", _MARK):
            cut = [re.sub(pattern, "/", name, count=1) if pattern else name for name in absolute]
            found = [
                sum(self.find(_without(name, number)) is not None for name in cut)
                for number in range(1, deepest + 1)
            ]
            if any(found):
                number = found.index(max(found)) + 1
                pairs = zip(absolute, cut, strict=True)
                return {name: _without(own, number) or name[1:] for name, own in pairs}
        return {name: name[1:] for name in absolute}

    def _by_stem(self, directory: str) -> dict[str, str]:
        """Return photos of a directory by stem and by number, if these identify a photo."""
        if directory not in self._stems:
            photos = sorted(filter(has_photo_suffix, self.names(directory)))
            stems = [os.path.splitext(name)[0] for name in photos]
            numbers = [match[1] if (match := _NUMBER.fullmatch(stem)) else "" for stem in stems]
            self._stems[directory] = {
                key: name
                for keys in (numbers, stems)  # a stem counts before a number
                for counts in [Counter(keys)]
                for key, name in zip(keys, photos, strict=True)
                if key and counts[key] == 1
            }
        return self._stems[directory]

    def below_or_cut(self, names: Sequence[str]) -> dict[str, str]:
        """Apply `below`; if no relative name exists, cut off leading folders, too."""
        found = self.below(names)
        if found or not any("/" in name for name in names) or any(map(self.find, names)):
            return found
        cut = self.below([f"/{name}" for name in names])
        return {name: cut[f"/{name}"] for name in names}

    def _spelt_as(self, directory: str, base: str) -> Sequence[str]:
        """Return photos of a directory whose names differ only in case or accent encoding."""
        if directory not in self._spellings:
            spellings: dict[str, list[str]] = {}
            for name in sorted(filter(has_photo_suffix, self.names(directory))):
                spellings.setdefault(_plain(name), []).append(name)
            self._spellings[directory] = spellings
        return self._spellings[directory].get(_plain(base), ())

    def alike(self, file_name: str) -> list[str]:
        """Return at most five photos with this stem, or with a name that differs only in case."""
        base = _plain(file_name.rpartition("/")[2])
        stem = os.path.splitext(base)[0]
        found: list[str] = []
        for place, _, names in os.walk(self.folder):
            inside = Path(place).relative_to(self.folder)
            for name in sorted(filter(has_photo_suffix, names)):
                if stem in (_plain(name), _plain(os.path.splitext(name)[0])):
                    found.append((inside / name).as_posix())
            if len(found) >= _NUM_ALIKE:
                break
        return found[:_NUM_ALIKE]

    def unclaimed(self, claimed: Iterable[str]) -> list[str]:
        """Return the photos in listed directories that ``claimed`` does not name, sorted."""
        known_names = (
            f"{directory}/{name}" if directory else name
            for directory, names in self._names.items()
            for name in without_masks(names)
            if has_photo_suffix(name)
        )
        known = set(known_names)
        return sorted(known.difference(n if n in known else self._full_name(n) for n in claimed))

    def _full_name(self, file_name: str) -> str:
        path = self.find(file_name)
        return file_name if path is None else path.relative_to(self.folder).as_posix()


def has_photo_suffix(name: str) -> bool:
    """Whether a file name has a suffix of photos."""
    return os.path.splitext(name)[1].lower() in PHOTO_SUFFIXES


def without_masks(names: Iterable[str]) -> list[str]:
    """Remove the names of photos' masks from the names of a folder."""
    names = list(names)
    stems = {os.path.splitext(name)[0] for name in names}
    return [name for name in names if _masked(os.path.splitext(name)[0]) not in stems]


def _masked(stem: str) -> str | None:
    """Return the photo that a mask's name belongs to (both without suffix), or None."""
    end = next((end for end in MASK_ENDS if stem.endswith(end)), None)
    return None if end is None else stem.removesuffix(end)


def _without(name: str, number: int) -> str:
    """Remove the leading folders of an absolute name."""
    return name.split("/", number)[-1] if name.count("/") >= number else ""


def _plain(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()
