"""Jobs that are cut into shards, and the interface of classes that compute the shards.

A shard's records depend only on its items and the settings. So the records are the same for any
number of workers, and a finished shard is never computed again.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

Form = Literal["lines", "arrays"]
"""Form of stored records: lines of JSON, or arrays."""


class Worker(Protocol):
    """Worker that computes records, built once per process."""

    @property
    def identity(self) -> Any:
        """Plain values that records depend on besides settings, such as weights' checksums."""
        ...

    def __call__(self, items: Sequence[Any]) -> list[Any]:
        """Compute a record per item: plain values, or a NumPy array."""
        ...


@dataclass(frozen=True, kw_only=True)
class Job:
    """Job to be distributed in shards.

    Attributes:
        name: name of the results, such as ``"captions"``.
        build: builds a worker in any process: a module's function with plain arguments.
        items: items in order; they can be sent to other processes.
        unit: number of items computed together, on which rounding may depend.
        save_every: default number of items in a shard.
        settings: plain values that records depend on.
        folder: folder of the shards' files.
        form: form of the records.
        check: checks each worker's identity before it takes records; raises ValueError.
        plugins: packages that a worker imports before it starts.
        uses_gpu: whether a worker uses a GPU if it has one.
    """

    name: str
    build: Callable[[], Worker]
    items: Sequence[Any]
    unit: int
    save_every: int
    settings: Any
    folder: Path
    form: Form = "lines"
    check: Callable[[Any], None] | None = None
    plugins: Sequence[str] = ()
    uses_gpu: bool = True


@dataclass(frozen=True, kw_only=True)
class Shard:
    """Items that are computed and saved together.

    Attributes:
        number: number of the shard, from 1.
        start: position of its first item, from 0.
        items: items in order.
        path: path of the shard's file.
    """

    number: int
    start: int
    items: Sequence[Any] = field(repr=False)
    path: Path


class AbstractSpread(ABC):
    """Interface to run a job in this process or on other machines."""

    @abstractmethod
    def shard_size(self, *, unit: int, save_every: int) -> int:
        """Number of items in a shard, a multiple of ``unit``; see `Job`."""

    @abstractmethod
    def results(self, job: Job) -> Iterator[list[Any]]:
        """Yield the records of all items in order, some at a time.

        The caller must store each result before it takes the next, as its file is then deleted.

        Raises:
            ValueError: the work failed, or `Job.check` raises.
            OSError: files cannot be written, or the cluster does not answer.
        """


def cut(job: Job, size: int) -> list[Shard]:
    """Cut a job into shards, whose file names depend on items and settings."""
    return [
        Shard(
            number=number,
            start=start,
            items=job.items[start : start + size],
            path=_path(job, job.items[start : start + size]),
        )
        for number, start in enumerate(range(0, len(job.items), size), start=1)
    ]


def units(items: Sequence[Any], unit: int) -> Iterator[Sequence[Any]]:
    """Items in the groups that are computed together."""
    for start in range(0, len(items), unit):
        yield items[start : start + unit]


def _path(job: Job, items: Sequence[Any]) -> Path:
    content = [job.name, job.unit, job.settings, [repr(item) for item in items]]
    text = json.dumps(content, sort_keys=True, ensure_ascii=False)
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
    suffix = "jsonl" if job.form == "lines" else "safetensors"
    return job.folder / f"{digest}.{suffix}"
