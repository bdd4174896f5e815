"""Checkpoints that are written atomically: complete or not at all."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import torch
from lightning_fabric.plugins import TorchCheckpointIO

from captioning.files import write_atomically


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes beside the checkpoint and renames.

    Lightning's own writer goes through the system's temporary folder; where that is another disk,
    moving the file is a copy, and a kill in its midst leaves half a checkpoint.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None
    ) -> None:
        """Write ``checkpoint`` to ``path``.

        Raises:
            OSError: the disk is full; the checkpoint that was there before still is.
        """
        write_atomically(Path(path), functools.partial(torch.save, checkpoint))
