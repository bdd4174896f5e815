"""Files of a check."""

from __future__ import annotations

import csv
import importlib.util
import io
import os
from pathlib import Path

from captioning.runtime.files import is_taken, write_text
from curation.check.page import write_page
from curation.check.result import CSV_NAME, PAGE_NAME, PARQUET_NAME, CheckResult

FOLDER_NAME = "folder.csv"


def check_place(folder: Path) -> None:
    """Refuse a place where a check's files cannot go, before the work.

    Raises:
        ValueError: it is a file, or holds something else than an earlier check.
        OSError: it cannot be written.
    """
    if is_taken(folder) and not _is_check(folder / CSV_NAME):
        first = "a file" if folder.is_file() else f"holds {min(os.listdir(folder))} and no check"
        raise ValueError(f"{folder}: {first}; choose another --out, a new or an empty folder")
    nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not os.access(nearest, os.W_OK):
        raise OSError(f"{folder} cannot be written; choose another place by --out FOLDER")


def _is_check(table: Path) -> bool:
    if not table.is_file():
        return False
    with table.open("rb") as file:
        head = file.readline(4096)
    return b"sample_id" in head and b"suspicion" in head


def write_result(result: CheckResult, folder: str | Path, *, num_shown: int = 24) -> list[Path]:
    """Write the table, the page, and the table as Parquet if pyarrow is there.

    What is said of the folder as a whole has a table of its own: a row a finding, or a row each of
    its files and words.

    Args:
        result: of a check.
        folder: earlier files of the same names are replaced.
        num_shown: captions of each kind on the page.

    Returns:
        The files.

    Raises:
        OSError: the folder cannot be written.
    """
    folder = Path(folder)
    paths = [folder / PAGE_NAME, folder / CSV_NAME]
    write_page(result, paths[0], num_shown=num_shown)
    result.issues.to_csv(paths[1])
    (folder / FOLDER_NAME).unlink(missing_ok=True)
    if result.notes:
        paths.append(folder / FOLDER_NAME)
        write_text(paths[-1], _notes(result))
    if importlib.util.find_spec("pyarrow") is not None:
        paths.append(folder / PARQUET_NAME)
        result.issues.to_parquet(paths[-1])
    return paths


def _notes(result: CheckResult) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["finding", "item", "said"])
    for note in result.notes:
        writer.writerows([note.name, *item] for item in note.items or (("", note.said),))
    return text.getvalue()
