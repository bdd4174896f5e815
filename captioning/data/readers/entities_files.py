"""The files of Flickr30k Entities, from the official zip or from its unpacked folder."""

from __future__ import annotations

import re
import zipfile
import zlib
from pathlib import Path

from captioning.config.setting_error import SettingError, SettingNotFoundError
from captioning.data.line_files import decode

_MEMBER = re.compile(r"(?:.*/)?(Annotations|Sentences)/([^/]+)\.(xml|txt)")
_SUFFIX = {"Annotations": "xml", "Sentences": "txt"}
_LARGEST = 4 * 2**20  # bytes of one file; the official ones have at most some 10 thousand


class EntitiesFiles:
    """Texts by kind (``Annotations`` or ``Sentences``) and image id.

    Args:
        path: ``annotations.zip``, or the folder that holds ``Annotations`` and ``Sentences``.

    Raises:
        FileNotFoundError: neither is there.
        ValueError: not a zip, or an image that has boxes but no captions, or the reverse.
    """

    def __init__(self, *, path: str | Path) -> None:
        self.path = Path(path)
        self._zip: zipfile.ZipFile | None = None
        if self.path.is_dir():
            names = [
                f"{kind}/{file.name}"
                for kind in _SUFFIX
                for file in sorted((self.path / kind).glob(f"*.{_SUFFIX[kind]}"))
            ]
        elif self.path.is_file():
            self._zip = self._opened()
            names = self._zip.namelist()
        else:
            raise SettingNotFoundError(
                self.path,
                "no such zip or folder",
                "it is annotations.zip of Flickr30k Entities, or the folder that holds its "
                "Annotations and Sentences",
            )
        self._members = self._indexed(names)
        self.ids = list(self._members["Annotations"])

    def _opened(self) -> zipfile.ZipFile:
        try:
            return zipfile.ZipFile(self.path)
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
            raise SettingError(
                self.path, f"not a whole zip file ({error})", "get annotations.zip again"
            ) from error

    def _indexed(self, names: list[str]) -> dict[str, dict[str, str]]:
        members: dict[str, dict[str, str]] = {kind: {} for kind in _SUFFIX}
        for name in names:
            match = _MEMBER.fullmatch(name)
            if match is None or _SUFFIX[match[1]] != match[3] or name.startswith("__MACOSX/"):
                continue
            kind, image_id = match[1], match[2]
            if image_id in members[kind]:
                raise SettingError(self.path, f"{name} stands twice in it", "remove one")
            members[kind][image_id] = name
        boxes, sentences = members["Annotations"].keys(), members["Sentences"].keys()
        unpaired = sorted(boxes ^ sentences)
        if unpaired:
            missing_kind = "Sentences" if unpaired[0] in boxes else "Annotations"
            raise SettingError(
                self.path,
                f"image {unpaired[0]} has no file in {missing_kind} ({len(unpaired)} such images)",
                "get annotations.zip again",
            )
        if not boxes:
            problem = "holds no Annotations/*.xml and Sentences/*.txt"
            raise SettingError(self.path, problem, "is it annotations.zip of Flickr30k Entities?")
        return members

    def where(self, kind: str, image_id: str) -> str:
        """Path of a file, for messages."""
        return f"{self.path}/{self._members[kind][image_id]}"

    def text(self, kind: str, image_id: str) -> str:
        """Text of a file.

        Raises:
            ValueError: damaged, too large, or not UTF-8.
        """
        where = self.where(kind, image_id)
        name = self._members[kind][image_id]
        try:
            data = self._read(name)
        except (
            zipfile.BadZipFile,
            zlib.error,
            OSError,
            EOFError,
            RuntimeError,  # encrypted
            NotImplementedError,  # a compression of another program
        ) as error:
            raise SettingError(where, f"cannot be read ({error})", "get the file again") from error
        if len(data) > _LARGEST:
            raise SettingError(where, f"larger than {_LARGEST} bytes", "get the file again")
        return decode(data, where)

    def _read(self, name: str) -> bytes:
        opened = self._zip.open(name) if self._zip else (self.path / name).open("rb")
        with opened as file:
            return file.read(_LARGEST + 1)

    def close(self) -> None:
        """Closes the zip."""
        if self._zip is not None:
            self._zip.close()
