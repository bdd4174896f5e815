"""Find the folder of the user's photos without reading any file."""

from __future__ import annotations

from pathlib import Path

from captioning.config.setting_error import Setting, SettingNotFoundError


def check_root(root: Path, annotations: str | None = None) -> None:
    """Raise an error if the photo folder, or the file with its captions, does not exist.

    Args:
        root: the folder.
        annotations: name of the file below it; None: it is recognised later.

    Raises:
        FileNotFoundError: no such folder or no such file.
    """
    if not root.is_dir():
        here = "" if root.is_absolute() else f" in {Path.cwd()}"
        remedy = "give the folder of the photos and their captions by ", Setting("folder")
        if root.is_file():
            name = ", and the file's name by ", Setting("annotations", root.name)
            remedy = "give its folder by ", Setting("folder"), *name
        raise SettingNotFoundError(root, f"no such folder{here}", *remedy)
    if annotations is not None and not (root / annotations).is_file():
        raise SettingNotFoundError(
            root / annotations, "no such file", "correct ", Setting("annotations")
        )
