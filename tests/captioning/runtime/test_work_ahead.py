"""Results as they come, from threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from captioning.runtime.work_ahead import done_as_they_come


def test_a_slow_item_holds_none_up() -> None:
    held = threading.Event()
    results = done_as_they_come(lambda n: n or held.wait(60), range(20), threads=3)
    fast = [next(results) for _ in range(19)]
    assert sorted(fast) == [(n, n) for n in range(1, 20)]
    held.set()
    assert [*results] == [(0, True)]


def test_closed_it_waits_for_nothing() -> None:
    held = threading.Event()
    results = done_as_they_come(lambda n: held.wait(60) if n else n, range(9), threads=3)
    assert next(results) == (0, 0)
    begun = time.monotonic()
    results.close()
    assert time.monotonic() - begun < 1
    held.set()


def test_an_error_comes_at_once_and_no_more_items_are_taken() -> None:
    taken = []

    def items() -> Iterator[int]:
        for number in range(1000):
            taken.append(number)
            yield number

    def work(number: int) -> int:
        if number == 5:
            raise ValueError("five")
        time.sleep(0.001)
        return number

    with pytest.raises(ValueError, match="five"):
        list(done_as_they_come(work, items(), threads=2))
    time.sleep(0.05)
    assert len(taken) < 20
