"""Files of a check."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from curation.check.page import write_page
from curation.check.result import CSV_NAME, PAGE_NAME, PARQUET_NAME, CheckResult


def write_result(result: CheckResult, folder: str | Path, *, num_shown: int = 24) -> list[Path]:
    """Write the table, the page, and the table as Parquet if pyarrow is there.

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
    if importlib.util.find_spec("pyarrow") is not None:
        paths.append(folder / PARQUET_NAME)
        result.issues.to_parquet(paths[-1])
    return paths
