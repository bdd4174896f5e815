"""The folder of one's own photos, looked for without reading anything."""

from __future__ import annotations

from pathlib import Path


def check_root(root: Path, annotations: str | None = None) -> None:
    """Refuse a folder of photos, or a file with their captions, that is not there.

    Args:
        root: the folder.
        annotations: name of the file below it; None: it is recognised later.

    Raises:
        FileNotFoundError: no such folder or no such file.
    """
    if not root.is_dir():
        hint = "give its folder, and the file's name as annotations"
        if not root.is_file():
            hint = "give the folder of the photos and their captions (data.root=)"
        here = "" if root.is_absolute() else f" in {Path.cwd()}"
        raise FileNotFoundError(f"{root}: no such folder{here}; {hint}")
    if annotations is not None and not (root / annotations).is_file():
        raise FileNotFoundError(f"{root / annotations}: no such file; correct annotations=")
