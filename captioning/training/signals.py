"""Signals that ask a run to end: deferred during training, obeyed at once otherwise."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from types import FrameType
from typing import Any

from captioning.runtime.slurm import is_preempted, job_id, requeue

log = logging.getLogger(__name__)

HANDLED = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
# Further processes of a job wait this long for the first to requeue it, which ends them all: some
# clusters end a job as soon as one of its processes has ended.
REQUEUE_SECONDS = 20.0


class Stopped(BaseException):
    """Raised when a signal ends a run; this is not a failure.

    Args:
        message: which results are kept, and how to resume.
        number: the signal's number.

    Attributes:
        status: exit status, as shells report it. Further processes exit with 0, as their launcher
            would otherwise kill the first process; but only once all are connected, as the others
            would else wait half an hour for a process that seems done.
    """

    def __init__(self, message: str, *, number: int) -> None:
        super().__init__(message)
        self.number = number
        self.status = 0 if _rank() and _have_met() else 128 + number


class StopSignals:
    """Handle SIGTERM, SIGUSR1 and SIGUSR2 within the block; restore earlier handlers at its end.

    Only the first signal counts; further signals do not disturb files being written.

    Attributes:
        received: number of the first signal, or 0.
        deferred: whether a signal is only recorded; otherwise it raises `Stopped` at once.
    """

    def __init__(self) -> None:
        self.received = 0
        self.deferred = False
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopSignals:
        # Python lets no other thread set handlers
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.getsignal(number) for number in HANDLED}
        self.install()
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def install(self) -> None:
        """Install the signal handlers again, after other code has replaced them."""
        for number in self._previous:
            signal.signal(number, self._receive)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.received:
            return
        self.received = number
        if not self.deferred:
            raise Stopped("stopped before or after training; resume=auto resumes", number=number)

    def obey(self) -> None:
        """Obey signals at once from now on, starting with a recorded signal.

        Raises:
            Stopped: a signal was recorded.
        """
        self.deferred = False
        if self.received:
            raise Stopped("stopped after training; resume=auto resumes", number=self.received)

    def pass_on(self, stopped: Stopped) -> None:
        """Requeue the Slurm job as the last act, if the signal asks for it.

        An earlier handler, such as submitit's, is called. Otherwise SIGUSR1 and SIGUSR2 requeue the
        Slurm job, and SIGTERM does so if Slurm preempts it. Handlers stay in place, as the queue
        sends further signals.
        """
        previous = self._previous.get(signal.Signals(stopped.number))
        job, is_last_word = job_id(os.environ), stopped.number == signal.SIGTERM
        if callable(previous):
            if not is_last_word:
                log.warning(str(stopped))  # the handler may end this process
            previous(stopped.number, None)
        if job is None or not (is_preempted(job) if is_last_word else not callable(previous)):
            return
        if _rank():
            time.sleep(REQUEUE_SECONDS)
        else:
            log.warning(f"{stopped}\n{requeue(job)}")


def _rank() -> int:
    """Rank of this process in the run."""
    from pytorch_lightning.utilities import rank_zero_only  # seconds, for commands that need none

    return int(getattr(rank_zero_only, "rank", 0) or 0)


def _have_met() -> bool:
    """Whether the processes of the run are connected."""
    from torch import distributed

    return distributed.is_available() and distributed.is_initialized()
