"""Read Flickr30k Entities (Plummer et al., 2015): captions, phrases, chains and boxes.

Its ids cover Flickr8k's photos too: a Flickr8k photo ``ID_HASH.jpg`` is the image ``ID``. Boxes are
given in pixels of the original photo; where the photo at hand has another size they are scaled to
it. A region's label is its chain's kind, such as ``people``. Phrases of chain 0 (``notvisual``) and
of scenes have no regions.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
import zipfile
import zlib
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path, PurePosixPath

from captioning.config.loadable import loadable
from captioning.config.setting_error import SettingError, SettingNotFoundError
from captioning.data.line_files import decode, read_image_list
from captioning.data.photo_folder import PHOTO_SUFFIXES, PhotoFolder, checked_file_name
from captioning.data.readers.entries import (
    BoxEntry,
    CaptionEntry,
    ImageEntry,
    PhotoPolicy,
    Policy,
    Rules,
    normalised,
    roster_from_entries,
)
from captioning.data.readers.many_samples import collector_paused
from captioning.data.roster import Roster
from captioning.types import Box, Phrase

_MEMBER = re.compile(r"(?:.*/)?(Annotations|Sentences)/([^/]+)\.(xml|txt)")
_SUFFIX = {"Annotations": "xml", "Sentences": "txt"}
_LARGEST = 4 * 2**20  # bytes of one file; the official ones have at most some 10 thousand


class EntitiesFiles:
    """Texts of Flickr30k Entities by kind (``Annotations`` or ``Sentences``) and image id.

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
                raise SettingError(self.path, f"{name} occurs twice in it", "remove one")
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
        """Return the path of a file for messages."""
        return f"{self.path}/{self._members[kind][image_id]}"

    def text(self, kind: str, image_id: str) -> str:
        """Return the text of a file.

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
        """Close the zip file."""
        if self._zip is not None:
            self._zip.close()


_PHRASE = re.compile(r"\[/EN#(?P<chain>[0-9]+)(?P<kinds>(?:/[a-z]+)+) (?P<text>[^\[\]]+)\]")


@loadable
@collector_paused()
def read_flickr30k_entities(
    *,
    name: str,
    annotations: str | Path,
    image_folder: str | Path | None,
    split_file: str | Path | None = None,
    image_ids: Sequence[str] | None = None,
    missing_photos: PhotoPolicy = "error",
    bad_boxes: Policy = "error",
) -> Roster:
    """Read one split: captions with phrases, and images with boxes.

    Args:
        annotations: the official ``annotations.zip``, or its unpacked folder.
        image_folder: Flickr30k's photos (``ID.jpg``) or Flickr8k's (``ID_HASH.jpg``); None for the
            text alone.
        split_file: ids or photo names, one a line (Flickr8k's own lists too); None for all.
        image_ids: keep these alone, out of the split; None for all of it.
        missing_photos, bad_boxes: see `Rules`.

    Raises:
        FileNotFoundError: a file or the photo folder is not there.
        ValueError: anything in the files that is not as said.
    """
    rules = Rules(missing_photos=missing_photos, bad_boxes=bad_boxes)
    with closing(EntitiesFiles(path=annotations)) as files:
        needs_folder = missing_photos != "keep" or Path(image_folder or "").is_dir()
        photos = _photos_by_id(image_folder if needs_folder else None)
        entries = [
            _entry(files, image_id, photos.get(image_id, f"{image_id}.jpg"))
            for image_id in _chosen(files, split_file, image_ids)
        ]
        known_ids = set(files.ids)
    return roster_from_entries(
        name=name,
        source=str(annotations),
        entries=entries,
        known_files=[file for image_id, file in photos.items() if image_id in known_ids],
        image_folder=image_folder,
        rules=rules,
    )


def photo_id(file_name: str) -> str:
    """Return the Entities id of a photo's name or id: the part before ``_`` and the suffix."""
    base = PurePosixPath(file_name)
    stem = base.stem if base.suffix.lower() in PHOTO_SUFFIXES else base.name
    return stem.split("_")[0]


def _photos_by_id(image_folder: str | Path | None) -> dict[str, str]:
    if image_folder is None:
        return {}
    photos: dict[str, str] = {}
    for file_name in sorted(PhotoFolder(folder=image_folder).names()):
        if PurePosixPath(file_name).suffix.lower() not in PHOTO_SUFFIXES:
            continue
        image_id = photo_id(file_name)
        if image_id in photos:
            problem = f"{photos[image_id]} and {file_name} are both image {image_id}"
            raise SettingError(image_folder, problem, "remove one")
        photos[image_id] = file_name
    return photos


def _chosen(
    files: EntitiesFiles, split_file: str | Path | None, image_ids: Sequence[str] | None
) -> list[str]:
    known_ids = set(files.ids)
    chosen = files.ids
    if split_file is not None:
        listed: dict[str, str] = {}
        for entry, where in read_image_list(split_file).items():
            image_id = photo_id(entry)
            if image_id in listed:
                problem = f"{entry!r} is image {image_id} of {listed[image_id]}"
                raise SettingError(where, problem, "remove one of the two")
            listed[image_id] = where
        unknown = next((image_id for image_id in listed if image_id not in known_ids), None)
        if unknown is not None:
            problem = f"the split names {unknown!r}, which {files.path} does not have"
            raise SettingError(listed[unknown], problem, "is the list for other annotations?")
        chosen = list(listed)
    if image_ids is not None:
        unknown = next((image_id for image_id in image_ids if image_id not in known_ids), None)
        if unknown is not None:
            problem = f"names {unknown!r}, which {files.path} does not have"
            raise SettingError("image_ids", problem, "is the list for other annotations?")
        requested_ids = set(image_ids)
        chosen = [image_id for image_id in chosen if image_id in requested_ids]
    return chosen


def _entry(files: EntitiesFiles, image_id: str, file_name: str) -> ImageEntry:
    where = files.where("Sentences", image_id)
    size, objects = _boxes(
        files.text("Annotations", image_id), files.where("Annotations", image_id)
    )
    lines = files.text("Sentences", image_id).split("\n")
    captions = tuple(
        grounded_caption(line, key=str(key), chains=objects, where=f"{where}:{number}")
        for key, (number, line) in enumerate(
            (number, line) for number, line in enumerate(lines, start=1) if line.strip()
        )
    )
    kinds = {phrase.chain_id: phrase.kinds[0] for item in captions for phrase in item.phrases}
    return ImageEntry(
        image_id=image_id,
        file_name=checked_file_name(file_name, where),
        where=where,
        captions=captions,
        boxes=tuple(
            BoxEntry(box=box, label=kinds.get(chain_ids[0], "other"), where=place)
            for chain_ids, box, place in objects
        ),
        size=size,
    )


Objects = list[tuple[list[str], Box, str]]


def grounded_caption(line: str, *, key: str, chains: Objects, where: str) -> CaptionEntry:
    """Parse a line of ``Sentences`` into caption and bracketed phrases.

    Args:
        line: such as ``[/EN#1/people Two men] run .``
        key: the caption's key.
        chains: the image's boxes, each with the ids of its chains.
        where: file and line, for messages.

    Raises:
        ValueError: brackets that are no ``[/EN#ID/KIND TEXT]``, or an empty caption.
    """
    line = normalised(line, where)
    caption, end, phrases = "", 0, []
    for match in _PHRASE.finditer(line):
        caption += line[end : match.start()]
        end = match.end()
        chain_id, text = match["chain"], match["text"]
        regions = [position for position, (ids, _, _) in enumerate(chains) if chain_id in ids]
        phrases.append(
            Phrase(
                start=len(caption),
                text=text,
                chain_id=chain_id,
                kinds=tuple(match["kinds"][1:].split("/")),
                regions=tuple(regions),
            )
        )
        caption += text
    caption += line[end:]
    if "[" in caption or "]" in caption or "/EN#" in caption:
        problem = f"brackets must be [/EN#ID/KIND TEXT]: got {line[:80]!r}"
        raise SettingError(where, problem, "get the file again")
    if caption != normalised(caption, where):
        raise SettingError(
            where, f"white space at a bracket's edge: {line[:80]!r}", "get the file again"
        )
    return CaptionEntry(key=key, text=caption, phrases=tuple(phrases))


def _boxes(text: str, where: str) -> tuple[tuple[int, int], Objects]:
    """Return the photo's size, and each box with its chains and location."""
    if re.search("<!(DOCTYPE|ENTITY)", text, re.IGNORECASE):
        raise SettingError(where, "declares a document type or entities", "annotations have none")
    try:
        root = ElementTree.fromstring(text)
    except (ElementTree.ParseError, ValueError) as error:
        raise SettingError(where, f"not XML ({error})", "is the file truncated?") from error
    size = root.find("size")
    if size is None:
        raise SettingError(where, "has no <size>", "get the file again")
    width, height = (_pixels(size, tag, where) for tag in ("width", "height"))
    if width < 1 or height < 1:
        raise SettingError(where, f"<size> is {width}x{height}", "it must be at least 1x1")
    objects: Objects = []
    for number, item in enumerate(root.findall("object")):
        place = f"{where}: object[{number}]"
        chain_ids = [(element.text or "").strip() for element in item.findall("name")]
        if not chain_ids or not all(chain_ids):
            raise SettingError(place, "has no <name>, so no chain", "remove the object")
        for bounds in item.findall("bndbox"):
            tags = ("xmin", "ymin", "xmax", "ymax")
            x1, y1, x2, y2 = (float(_pixels(bounds, tag, place)) for tag in tags)
            objects.append((chain_ids, (x1, y1, x2, y2), place))
    return (width, height), objects


def _pixels(element: ElementTree.Element, tag: str, where: str) -> int:
    text = (element.findtext(tag) or "").strip()
    if not re.fullmatch(r"-?[0-9]{1,6}", text):
        problem = f"<{tag}> must be a whole number of pixels: got {text[:40]!r}"
        raise SettingError(where, problem, "get the file again")
    return int(text)
