"""Strikes a process in the midst of its work: at a count of file changes and updates."""

from __future__ import annotations

import os
import signal
import sys
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.truncate", "os.link", "os.symlink")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND


class Probe:
    """Counts events of this process: files changed below a folder, and optimiser steps.

    Args:
        folder: whose files count.
        at: the event before which the process gets ``number``; 0: none.
        number: of the signal.
        count: file that the count is written to when the process ends by itself.
    """

    def __init__(self, *, folder: Path, at: int, number: int, count: Path) -> None:
        self._folder, self._at, self._number, self._count = str(folder), at, number, count
        self._pid, self.events = os.getpid(), 0

    def install(self) -> None:
        """From now on; there is no way back."""
        from torch.optim.optimizer import register_optimizer_step_post_hook

        sys.addaudithook(self._audit)
        register_optimizer_step_post_hook(lambda *unused: self._event())
        Finalize(self, self._write, exitpriority=0)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        is_change = event in CHANGES or (event == "open" and self._writes(arguments))
        if is_change and any(str(a).startswith(self._folder) for a in arguments[:2]):
            self._event()

    @staticmethod
    def _writes(arguments: tuple[Any, ...]) -> bool:
        mode, flags = arguments[1], arguments[2]
        return any(sign in str(mode) for sign in "wax+") or bool((flags or 0) & WRITING)

    def _event(self) -> None:
        if os.getpid() != self._pid:  # forked from this one
            return
        self.events += 1
        if self.events == self._at:
            os.kill(self._pid, signal.Signals(self._number))

    def _write(self) -> None:
        if os.getpid() == self._pid:
            self._count.write_text(str(self.events))
