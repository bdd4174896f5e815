"""Read Flickr8k in its official text layout (Hodosh et al., 2013): token file, split lists."""

from __future__ import annotations

import re
from pathlib import Path

from captioning.config.loadable import loadable
from captioning.config.setting_error import SettingError
from captioning.data.line_files import read_image_list, read_lines
from captioning.data.photo_folder import PhotoFolder, photo_name
from captioning.data.readers.entries import (
    BAD_CAPTION,
    NO_PHOTO,
    CaptionEntry,
    ImageEntry,
    PhotoPolicy,
    Policy,
    Rules,
    check_unique,
    normalised,
    roster_from_entries,
    selected,
)
from captioning.data.readers.read_once import read_once
from captioning.data.roster import Dropped, Roster

_LINE = re.compile(r"(?P<file>[^\t]+?)#(?P<key>[0-9]{1,6})\t(?P<caption>.*)", re.DOTALL)
# Of Flickr8k-CN, Flickr30k-CN and COCO-CN, with the language, and names without suffix.
_OTHER_LINE = re.compile(
    r"(?P<file>[^\t ]+?)#[a-z]{2,4}#(?P<key>[0-9]{1,6})[\t ](?P<caption>.*)", re.DOTALL
)
FIRST_LINE = re.compile(r"(?m)^[^\t\n]+(?:#0\t|#[a-z]{2,4}#0[\t ])")


@loadable
def read_flickr8k(
    *,
    name: str,
    token_file: str | Path,
    image_folder: str | Path | None,
    split_file: str | Path | None = None,
    missing_photos: PhotoPolicy = "error",
    missing_captions: Policy = "error",
    bad_captions: Policy = "error",
) -> Roster:
    """Read one split of Flickr8k, or of Flickr30k's ``results_20130124.token``.

    Sample ids are the token file's own keys, ``NAME.jpg#K``; image ids are the file names.

    Args:
        name: name of the roster, such as ``flickr8k/train``.
        token_file: lines ``NAME.jpg#K TAB CAPTION``, or ``NAME#zhc#K CAPTION``.
        image_folder: folder of the photos; None: captions alone.
        split_file: file names, one a line; None for all. A captioned image that the split does not
            name and that has no photo (Flickr8k has one) is recorded in ``dropped``.
        missing_photos: ``"error"`` or ``"drop"`` for an image of the split without its photo.
        missing_captions, bad_captions: see `Rules`.

    Raises:
        FileNotFoundError: a file or the photo folder is not there.
        ValueError: a line in another form, a key twice, an empty caption, a split that names an
            unknown image, a missing photo.
    """
    rules = Rules(
        missing_photos=missing_photos, missing_captions=missing_captions, bad_captions=bad_captions
    )
    entries, dropped = _read_token_file(Path(token_file), bad_captions)
    check_unique(entries)
    split = None if split_file is None else read_image_list(split_file)
    chosen = selected(entries, split, str(token_file))
    return roster_from_entries(
        name=name,
        source=str(token_file),
        entries=chosen,
        known_files=[entry.file_name for entry in entries],
        image_folder=image_folder,
        rules=rules,
        dropped=[
            *dropped,
            *_without_photo(
                entries,
                {entry.image_id for entry in chosen},
                None if missing_photos == "keep" else image_folder,
            ),
        ],
    )


def _without_photo(
    entries: list[ImageEntry], chosen: set[str], image_folder: str | Path | None
) -> list[Dropped]:
    """Return captioned images outside the split that have no photo."""
    if image_folder is None:
        return []
    folder = PhotoFolder(folder=image_folder)
    return [
        Dropped(item=entry.file_name, rule=f"{NO_PHOTO}, not in this split")
        for entry in entries
        if entry.image_id not in chosen and folder.find(entry.file_name) is None
    ]


@read_once
def _read_token_file(path: Path, bad_captions: Policy) -> tuple[list[ImageEntry], list[Dropped]]:
    dropped: list[Dropped] = []
    captions: dict[str, dict[str, str]] = {}
    first_places: dict[str, str] = {}
    for number, line in read_lines(path):
        where = f"{path}:{number}"
        match = _OTHER_LINE.fullmatch(line) or _LINE.fullmatch(line)
        if match is None:
            problem = f"must be 'NAME.jpg#K', a tab and a caption: got {line[:60]!r}"
            raise SettingError(where, problem, "is the line cut or the tab lost?")
        file_name = photo_name(match["file"], where)
        of_image = captions.setdefault(file_name, {})
        first_places.setdefault(file_name, where)
        key = str(int(match["key"]))
        if key in of_image:
            problem = f"{file_name}#{key} occurs twice"
            raise SettingError(where, problem, "renumber or remove one")
        try:
            of_image[key] = normalised(match["caption"], where)
        except ValueError:
            if bad_captions == "error":
                raise
            dropped.append(Dropped(item=where, rule=BAD_CAPTION))
    entries = [
        ImageEntry(
            image_id=file_name,
            file_name=file_name,
            where=first_places[file_name],
            captions=tuple(CaptionEntry(key=key, text=text) for key, text in of_image.items()),
        )
        for file_name, of_image in captions.items()
    ]
    return entries, dropped
