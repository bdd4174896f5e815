"""The command ``captioning curate report``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from curation.finished_run import read_run
from curation.report.report import FILE_NAME, write_report


def main(arguments: Sequence[str] | None = None) -> int:
    """Write a run's page; errors of the user's making are one line on stderr and status 2."""
    parser = argparse.ArgumentParser(prog="captioning curate report", description=__doc__)
    parser.add_argument("run", help="run folder")
    parser.add_argument("--output", help=f"the page; default RUN/curation/{FILE_NAME}")
    parser.add_argument("--pictures", type=int, default=600, help="photos shown (600)")
    options = parser.parse_args(arguments)
    try:
        if options.pictures < 0:
            raise ValueError(f"--pictures must be at least 0: got {options.pictures}")
        record = read_run(options.run)
        path = Path(options.output or Path(options.run) / "curation" / FILE_NAME)
        num_listed = write_report(record, path, num_pictures=options.pictures)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    size = path.stat().st_size / 1e6
    print(f"{path}: {num_listed} of {len(record.view.journal)} edits listed, {size:.1f} MB")
    return 0
