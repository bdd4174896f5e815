"""Run the ``captioning`` command by ``python -m captioning``."""

from __future__ import annotations

import sys

from captioning.commands.main import main

if __name__ == "__main__":
    sys.argv[0] = "captioning"  # what a run's record calls the program
    sys.exit(main())
