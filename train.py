"""Train and test a captioner: ``python train.py``, the same as ``captioning train``."""

from __future__ import annotations

import sys

from captioning.commands.main import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
