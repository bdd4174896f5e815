"""Iterators that let threads compute results before they are requested."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def done_ahead(
    work: Callable[[Item], Result], items: Iterable[Item], *, threads: int, most_ahead: int
) -> Generator[Result]:
    """Yield results in order, while threads compute at most ``most_ahead`` further items.

    An error is raised when its result is requested. Closing the generator waits for running tasks.
    """
    coming: deque[Future[Result]] = deque()
    pool = ThreadPoolExecutor(threads)
    try:
        for item in items:
            coming.append(pool.submit(work, item))
            if len(coming) > most_ahead:
                yield coming.popleft().result()
        while coming:
            yield coming.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


class _End:
    """Marker in the queue that no further item follows."""


_END = _End()


def done_as_they_come(
    work: Callable[[Item], Result], items: Iterable[Item], *, threads: int
) -> Generator[tuple[Item, Result]]:
    """Yield each item with its result, in the order in which results arrive.

    A free thread takes the next item. Closing the generator waits for no thread, as a request may
    take minutes and Ctrl+C should not.

    Raises:
        Exception: the first error of ``work`` or ``items``; threads then take no further item.
    """
    source, taking, stopped = iter(items), threading.Lock(), threading.Event()
    results: queue.Queue[Any] = queue.Queue(maxsize=2 * threads)

    def run() -> None:
        try:
            while not stopped.is_set():
                with taking:
                    item = next(source, _END)
                if isinstance(item, _End):
                    break
                results.put((item, work(item)))
            results.put(None)
        except BaseException as error:  # noqa: BLE001 (the caller raises it)
            results.put(error)

    for _ in range(threads):
        threading.Thread(target=run, daemon=True).start()
    num_running = threads
    try:
        while num_running:
            got = results.get()
            if isinstance(got, BaseException):
                raise got
            if got is None:
                num_running -= 1
            else:
                yield got
    finally:
        stopped.set()
        while not results.empty():  # threads that wait for room end
            results.get_nowait()
