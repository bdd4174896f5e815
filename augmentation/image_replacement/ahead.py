"""Pictures made ahead, in a process of their own, while training goes on."""

from __future__ import annotations

import logging
import multiprocessing
import os
import queue
import signal
from collections.abc import Sequence
from typing import Any

import torch

from augmentation.image_replacement.cache import PictureCache
from augmentation.image_replacement.generator import AbstractGenerator, Job, Producer
from captioning.runtime.sharing import end_with_parent

log = logging.getLogger(__name__)

# Seconds between checks whether the other process is alive.
PATIENCE = 1.0
# Added to the worker's niceness: on a busy processor training comes first.
NICENESS = 10


class AheadWorker:
    """Fills the cache with pictures that will probably be requested.

    It only adds complete pictures to the cache, so it changes nothing but the time that an
    epoch's end takes. If it dies, that is reported and pictures are made in place from then on.

    Args:
        generator: sent to the process before it has loaded weights.
        cache: the same for both.
        num_threads: of torch in the process.
    """

    def __init__(
        self, *, generator: AbstractGenerator, cache: PictureCache, num_threads: int = 1
    ) -> None:
        self._generator, self._cache, self._num_threads = generator, cache, num_threads
        self._process: Any = None
        self._orders: Any = None
        self._answers: Any = None
        self._num_pauses, self._ready = 0, False
        self.failed = False

    def order(self, jobs: Sequence[Job]) -> None:
        """Replace the list of jobs; they are done in this order. Never waits."""
        if not self._alive():
            if self.failed:
                return
            self.begin()
        self._orders.put((0, tuple(jobs)))

    def pause(self) -> None:
        """Stop after the current batch; returns when the worker is idle or has died.

        A worker that is still importing its packages makes nothing, and is not waited for.
        """
        if self._process is None:
            return
        self._num_pauses += 1
        self._orders.put((self._num_pauses, ()))
        while self._alive():
            try:
                answer = self._answers.get(timeout=PATIENCE if self._ready else 0.01)
            except queue.Empty:
                if not self._ready:
                    return
                continue
            self._ready = True
            if answer == self._num_pauses:
                return

    def close(self) -> None:
        """End the process; safe to call again."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.is_alive():
            self._orders.put(None)
            process.join(10 * PATIENCE)
        if process.is_alive():
            process.terminate()
            process.join()
        for channel in (self._orders, self._answers):
            channel.close()
            channel.cancel_join_thread()

    def begin(self) -> None:
        """Start the process, which takes seconds; does nothing if it runs."""
        if self._process is not None:
            return
        self._ready = False
        context = multiprocessing.get_context("spawn")
        self._orders, self._answers = context.Queue(), context.Queue()
        self._process = context.Process(
            target=_work,
            args=(
                self._generator,
                self._cache,
                self._orders,
                self._answers,
                self._num_threads,
            ),
            name="pictures made ahead",
            daemon=True,
        )
        self._process.start()

    def _alive(self) -> bool:
        """Whether the worker is alive; its death is reported once."""
        if self._process is None:
            return False
        if self._process.is_alive():
            return True
        log.warning(
            f"the process that makes pictures ahead ended with exit code {self._process.exitcode}; "
            "from now on they are made in place"
        )
        self.failed = True
        self.close()
        return False


def _work(
    generator: AbstractGenerator,
    cache: PictureCache,
    orders: Any,
    answers: Any,
    num_threads: int,
) -> None:
    """The worker: takes the newest list, makes its pictures batch by batch."""
    # Ctrl-C reaches the whole group of processes; the trainer's close() ends this one in order
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()  # also amid a picture, which may take minutes
    os.nice(NICENESS)
    torch.set_num_threads(num_threads)
    producer = Producer(generator=generator, cache=cache)
    remaining: list[Job] = []
    answers.put(0)
    while True:
        newest = _newest(orders, wait=not remaining)
        if newest is None:
            return
        if newest is not _NOTHING:
            number, jobs = newest
            remaining = list(jobs)
            if number:
                producer.release()  # who asks for a pause may load the model
                answers.put(number)
        elif not remaining:
            producer.release()  # training has the memory until there is work
        batch = []
        while remaining and len(batch) < generator.batch_size:
            job = remaining.pop(0)
            if producer.find(job) is None:
                batch.append(job)
        producer.produce(batch)


_NOTHING: Any = ("nothing new",)


def _newest(orders: Any, *, wait: bool) -> Any:
    """The last list that was sent; `_NOTHING` if there is no new one, None to end."""
    newest = _NOTHING
    try:
        newest = orders.get(timeout=PATIENCE if wait else 0)
        while newest is not None:
            newest = orders.get_nowait()
    except queue.Empty:
        return newest
    return None
