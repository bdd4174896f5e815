"""Checkpoints that are written atomically: complete and read back, or not at all."""

from __future__ import annotations

import errno
import functools
import os
from pathlib import Path
from typing import Any

import torch
from lightning_fabric.plugins import TorchCheckpointIO

from captioning.results.checkpoints import check_sums
from captioning.runtime.files import write_atomically


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes beside the checkpoint, reads what the disk holds against its sums, and renames.

    The former checkpoint stays until then. torch keeps a CRC-32 of every tensor as it was in
    memory.

    Lightning's own writer goes through the system's temporary folder; where that is another disk,
    moving the file is a copy, and a kill in its midst leaves half a checkpoint.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None
    ) -> None:
        """Write ``checkpoint`` to ``path``.

        Raises:
            OSError: the disk is full, or holds something else than what was written; the checkpoint
                that was there before still is.
        """
        write_atomically(Path(path), functools.partial(_write, checkpoint))


def _write(checkpoint: dict[str, Any], part: Path) -> None:
    try:
        with part.open("wb") as file:
            torch.save(checkpoint, file)
            file.flush()
            os.fsync(file.fileno())
            if hasattr(os, "posix_fadvise"):  # to read from the disk, not from memory
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    except RuntimeError as error:
        if isinstance(error.__context__, OSError):  # the disk's, which torch hides
            raise error.__context__ from error
        raise
    try:
        check_sums(part)
    except ValueError as error:
        problem = f"the disk does not hold what was written ({error})"
        raise OSError(errno.EIO, problem) from error
