"""Distribution of work over the processes of a run, and the end of child processes."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from multiprocessing.connection import wait
from typing import Any, TypeVar

import torch.distributed as dist

Item = TypeVar("Item")
Value = TypeVar("Value")
WAITING = timedelta(days=2)  # for the work of the first process


def rank_and_size() -> tuple[int, int]:
    """Rank of this process and number of processes (world size); 0 and 1 for a single process."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def distribute(
    items: Sequence[Item],
    work: Callable[[Sequence[Item]], dict[Item, Value]],
    *,
    at_once: int | None = None,
) -> dict[Item, Value]:
    """Divide work over all processes; each process returns the results of all items.

    If one process fails, all processes raise instead of waiting.

    Args:
        items: the items of work, the same in every process.
        work: called with this process's share of items, or with parts of it.
        at_once: items per process between two synchronisations; None: once, at the end. Set it for
            hours of work: a process that waits longer than the group's timeout, half an hour, ends
            the run.

    Raises:
        RuntimeError: another process failed; its own error is raised where it failed.
    """
    rank, size = rank_and_size()
    if size == 1:
        return work(items)
    step = max(1, len(items)) if at_once is None else at_once * size
    results: dict[Item, Value] = {}
    for start in range(0, max(1, len(items)), step):
        results |= _shared_out(items[start : start + step], work, rank=rank, size=size)
    return results


def _shared_out(
    items: Sequence[Item],
    work: Callable[[Sequence[Item]], dict[Item, Value]],
    *,
    rank: int,
    size: int,
) -> dict[Item, Value]:
    """Compute this process's share of the items and gather the results of all processes."""
    failure: Exception | None = None
    results: dict[Item, Value] = {}
    try:
        results = work(items[rank::size])
    except Exception as error:  # noqa: BLE001 - raised below, once all processes know
        failure = error
    gathered: list[tuple[dict[Item, Value], str | None]] = [({}, None)] * size
    # Some errors have no text, such as those of a full memory.
    told = None if failure is None else str(failure) or type(failure).__name__
    dist.all_gather_object(gathered, (results, told))
    if failure is not None:
        raise failure
    for number, (_, message) in enumerate(gathered):
        if message is not None:
            raise RuntimeError(f"process {number} could not do its share: {message}")
    return {item: value for part, _ in gathered for item, value in part.items()}


def by_first(work: Callable[[], Value]) -> Value:
    """Run ``work`` in the first process and return its result in every process.

    The other processes wait for up to two days, by a group of their own: the run's timeout of half
    an hour is too short for METEOR or SPICE on many captions of an image.

    Raises:
        RuntimeError: in the others, with the text of the error that the first process raised.
    """
    rank, size = rank_and_size()
    if size == 1:
        return work()
    waiting: Any = dist.new_group(backend="gloo", timeout=WAITING)
    failure: Exception | None = None
    sent: list[Any] = [None, None]
    if rank == 0:
        try:
            sent[0] = work()
        except Exception as error:  # noqa: BLE001 - raised below, once all processes know
            failure, sent[1] = error, str(error)
    dist.broadcast_object_list(sent, src=0, group=waiting)
    dist.destroy_process_group(waiting)
    if failure is not None:
        raise failure
    # The same text: processes that end together tell an error of several of them once.
    if sent[1] is not None:
        raise RuntimeError(sent[1])
    return sent[0]


def end_with_parent() -> None:
    """End this process as soon as its parent process has ended, killed or not.

    Otherwise a pool's worker would wait for work for ever, as it holds both ends of the pipe.
    """
    if (parent := multiprocessing.parent_process()) is not None:
        threading.Thread(target=_follow, args=(parent.sentinel,), daemon=True).start()


def _follow(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)
