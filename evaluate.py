"""Score captions: ``python evaluate.py``, the same as ``captioning evaluate``."""

from __future__ import annotations

import sys

from captioning.commands.main import main

if __name__ == "__main__":
    sys.exit(main(["evaluate", *sys.argv[1:]]))
