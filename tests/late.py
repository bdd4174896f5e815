"""Runs a script of the tests, ``python -m tests.late SCRIPT ...``, that starts as commands do.

They leave out what torchmetrics brings with it: a third of the time that Lightning takes to import.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from captioning.commands.quick_imports import import_torchmetrics_late

if __name__ == "__main__":
    import_torchmetrics_late()
    del sys.argv[0]
    sys.path[0] = str(Path(sys.argv[0]).parent)  # as of any script
    runpy.run_path(sys.argv[0], run_name="__main__")
