"""Work that is cut into shards, and the classes that compute them.

A shard's records depend on its items and the settings alone, not on who computes it and when. So
the same records come out whatever the number of workers, and a shard that is there is never
computed again.
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
"""How records are kept: as lines of JSON, or as arrays."""


class Worker(Protocol):
    """Computes records; built once in each process."""

    @property
    def identity(self) -> Any:
        """Plain values that records depend on beside the settings, such as weights' checksums."""
        ...

    def __call__(self, items: Sequence[Any]) -> list[Any]:
        """A record an item: plain values, or a NumPy array."""
        ...


@dataclass(frozen=True, kw_only=True)
class Job:
    """Work to be spread.

    Attributes:
        name: name of the results, such as ``"captions"``.
        build: makes a worker, in any process: a function of a module with plain values.
        items: items in order; they can be sent to other processes.
        unit: items that are computed together, on which rounding may depend.
        save_every: items of a shard where the user names no number.
        settings: plain values that records depend on.
        folder: folder of the shards' files.
        form: form of the records.
        check: checks each worker's identity before it takes records; raises ValueError.
        plugins: packages that a worker imports first.
        uses_gpu: whether a worker computes on a GPU where it has one.
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
        start: place of its first item, from 0.
        items: items in order.
        path: its file's path.
    """

    number: int
    start: int
    items: Sequence[Any] = field(repr=False)
    path: Path


class AbstractSpread(ABC):
    """Runs work here or on other machines."""

    @abstractmethod
    def shard_size(self, *, unit: int, save_every: int) -> int:
        """Items of a shard, see `Job`: a multiple of ``unit``."""

    @abstractmethod
    def results(self, job: Job) -> Iterator[list[Any]]:
        """The records of all items in order, some at a time.

        The caller stores each result before it takes more: then its file goes.

        Raises:
            ValueError: work failed, or `Job.check` raises.
            OSError: files that cannot be written, or a cluster that does not answer.
        """


def cut(job: Job, size: int) -> list[Shard]:
    """The shards of a job; a file is named by items and settings, so it fits no other work."""
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
