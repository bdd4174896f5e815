"""Work that threads do before its results are asked for."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def done_ahead(
    work: Callable[[Item], Result], items: Iterable[Item], *, threads: int, most_ahead: int
) -> Generator[Result]:
    """Results in order; so many items at most are worked on ahead of the one that is asked for.

    An error comes when its result is asked for. Closed, it waits for what was begun.
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
