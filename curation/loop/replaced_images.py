"""Store the images that a run's edits inserted in the run folder."""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import replace
from pathlib import Path

from captioning.runtime.files import write_atomically
from captioning.types import Edit

FOLDER = Path("curation") / "images"


class PictureFolder:
    """Folder in the run folder that holds every image named by the journal.

    A journal's value is then a path below the run folder: it means the same on any machine that
    the folder is copied to, and a resumed run finds its pictures whatever became of the cache.
    Files are linked where the file system allows it, so that they take no further space.

    Args:
        run_folder: the run's folder; its ``curation/images`` holds the pictures, named by their
            content.
    """

    def __init__(self, *, run_folder: Path) -> None:
        self.run_folder = run_folder

    def adopt(self, edit: Edit) -> Edit:
        """Link or copy an edit's image into the run folder; other edits stay unchanged.

        All processes may call this at the same time.

        Raises:
            FileNotFoundError: the image does not exist.
            OSError: the folder cannot be written.
        """
        if edit.action != "replace_image":
            return edit
        source = Path(edit.value or "")
        with source.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()[:32]
        value = FOLDER / f"{digest}{source.suffix.lower()}"
        _put(source, self.run_folder / value)
        return replace(edit, value=value.as_posix())


def _put(source: Path, target: Path) -> None:
    if target.is_file() and target.stat().st_size == source.stat().st_size:
        return
    if not target.exists() and _linked(source, target):
        return
    write_atomically(target, lambda part: shutil.copyfile(source, part))


def _linked(source: Path, target: Path) -> bool:
    """Return whether a hard link was made; some file systems and other disks do not allow it."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        os.link(source, target)
    except OSError:
        return False
    return True
