"""Reads the files that a page of docs tells its readers to write."""

from __future__ import annotations

import re
from pathlib import Path

# A path alone on a line, and the block of code below it.
_FILE = re.compile(r"^`([\w./-]+\.(?:py|yaml))`\n+```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def files_of(page: Path) -> dict[str, str]:
    """Contents by path of all files that a page shows."""
    return dict(_FILE.findall(page.read_text(encoding="utf-8")))


def write_files(page: Path, folder: Path) -> list[str]:
    """Write a page's files below a folder; their paths."""
    files = files_of(page)
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    for package in {name.split("/")[0] for name in files if name.endswith(".py")}:
        (folder / package / "__init__.py").touch()
    return list(files)
