"""Read text files whose lines are captions of the photos in a list, line by line (Multi30k)."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from captioning.config.setting_error import Setting, SettingError
from captioning.data.line_files import GZIP, ending, read_head, read_text
from captioning.data.photo_folder import has_photo_suffix
from captioning.data.readers.entries import PhotoPolicy, Policy, Rules, roster_from_entries
from captioning.data.readers.joined_rows import Row, entries_of
from captioning.data.roster import Dropped, Roster

_HEAD = 1 << 12  # bytes by which a list is recognised


def lists_below(root: Path) -> dict[Path, dict[str, list[Path]]]:
    """Return photo lists below a folder, with texts of the same name by suffix.

    ``train.txt`` goes with ``train.en`` and ``train.de``; of ``train.1.en`` and ``train.2.en`` each
    is a caption of the same photo.
    """
    lists: dict[Path, dict[str, list[Path]]] = {}
    others: dict[str, list[Path]] = {}
    for place, _, names in sorted(os.walk(root)):
        photos = {os.path.splitext(name)[0] for name in names if has_photo_suffix(name)}
        plain = [name for name in sorted(names) if not has_photo_suffix(name)]
        for path in (Path(place, name) for name in plain if name.partition(".")[0] not in photos):
            if ending(path) == ".txt" and _is_list(path):
                lists[path] = {}
            elif path.suffix != GZIP or path.name.removesuffix(GZIP) not in names:
                others.setdefault(path.name.partition(".")[0], []).append(path)
    for path, texts in lists.items():
        for other in others.get(path.name.partition(".")[0], ()):
            end = re.sub(r"^\d+\.", "", other.name.partition(".")[2]).removesuffix(GZIP)
            texts.setdefault(end, []).append(other)
    return {path: texts for path, texts in lists.items() if texts}


def _is_list(path: Path) -> bool:
    lines = read_head(path, _HEAD).split("\n")
    lines = [line.strip() for line in lines[: -1 if len(lines) > 1 else None] if line.strip()]
    return bool(lines) and all(has_photo_suffix(line) and " " not in line for line in lines)


def texts_of_list(
    photos: Path, texts: dict[str, list[Path]], column: str | None
) -> tuple[str, list[Path]]:
    """Return the texts to read, and their suffixes.

    Raises:
        ValueError: several could be meant, or none is so called.
    """
    if column is None and len(texts) == 1:
        return next(iter(texts.items()))
    wanted = (column or "").lstrip(".")
    if wanted not in texts:
        problem = "texts of several kinds" if column is None else f"no text {wanted!r}"
        problem = f"{problem} go with it, {sorted(texts)}"
        raise SettingError(
            photos, problem, "choose ", Setting("caption_columns", sorted(texts, key=len)[0])
        )
    return wanted, texts[wanted]


def read_line_pairs(
    *,
    name: str,
    photos: str | Path,
    texts: Sequence[Path],
    image_folder: str | Path | None,
    missing_photos: PhotoPolicy = "error",
    missing_captions: Policy = "error",
    bad_captions: Policy = "error",
) -> Roster:
    """Read captions line by line for the photos of a list.

    Args:
        name: the roster's name.
        photos: the list of file names.
        texts: one caption a line, as many lines as the list has.
        image_folder: base of relative names; None: captions alone.
        missing_photos, missing_captions, bad_captions: see `Rules`.

    Raises:
        FileNotFoundError: a file or the photo folder is not there.
        ValueError: another number of lines, or by the rules.
    """
    rules = Rules(
        missing_photos=missing_photos, missing_captions=missing_captions, bad_captions=bad_captions
    )
    names = read_text(photos).rstrip("\n").split("\n")
    rows: list[Row] = []
    for path in texts:
        lines = read_text(path).rstrip("\n").split("\n")
        if len(lines) != len(names):
            problem = f"{len(lines):,} lines for the {len(names):,} photos of {photos}"
            raise SettingError(path, problem, "give each photo its line")
        for number, (file, line) in enumerate(zip(names, lines, strict=True), start=1):
            place = f"{path}:{number}"
            rows.append(Row(file.strip(), [(line, place)], place))
    dropped: list[Dropped] = []
    entries = entries_of(rows, dropped if bad_captions == "drop" else None)
    return roster_from_entries(
        name=name,
        source=str(photos),
        entries=entries,
        known_files=[entry.file_name for entry in entries],
        image_folder=image_folder,
        rules=rules,
        dropped=dropped,
    )
