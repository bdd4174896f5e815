"""What runs in the processes of a cluster: a worker, around which files and errors are handled."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from captioning.config.plugins import import_plugins, name_targets
from captioning.spread.base import Shard, Worker, units
from captioning.spread.shard_files import appears, read_shard, write_shard

# A shard that ended so many processes, as by taking their memory, is given up.
MAX_TRIES = 4


@dataclass(frozen=True, kw_only=True)
class Order:
    """What every process is told.

    Attributes:
        build, unit, plugins, uses_gpu: see `captioning.spread.base.Job`.
        folder: where the command runs, to which relative paths refer.
        token: a file that all machines must see.
        targets: what the user's config names, see `captioning.config.plugins`.
    """

    build: Callable[[], Worker]
    unit: int
    plugins: Sequence[str]
    folder: Path
    token: Path
    targets: Sequence[str] = ()
    uses_gpu: bool = True


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a shard.

    Attributes:
        problem: why it could not be computed; empty if it was.
        fatal: whether other shards must fail, too.
    """

    problem: str = ""
    fatal: bool = False


class ShardWorker:
    """Computes shards and writes their files.

    What fails is told, not raised, so that one bad item does not end the work on all others.

    Args:
        order: see `Order`.
    """

    def __init__(self, order: Order) -> None:
        self._order = order
        self._worker: Worker | None = None
        self._identity: Any = None

    def compute(self, shard: Shard) -> Outcome:
        """Write the shard's file unless it is there."""
        try:
            worker = self._built()
        except Exception as error:  # noqa: BLE001 - told by the process that the user sees
            return Outcome(problem=f"{host()}: {_reason(error)}", fatal=True)
        try:
            if read_shard(shard) is not None:
                return Outcome()
            if not _may_try(shard):
                problem = (
                    f"ended the process {MAX_TRIES} times; is there memory enough? Lower "
                    "spread.shard_size or the batch size of the work"
                )
                return Outcome(problem=problem)
            head = {"identity": self._identity, "host": host()}
            groups = units(shard.items, self._order.unit)
            write_shard(shard, head, [record for group in groups for record in worker(group)])
        except Exception as error:  # noqa: BLE001 - see above
            return Outcome(problem=_located(worker, shard, error))
        tries_of(shard).unlink(missing_ok=True)
        return Outcome()

    def _built(self) -> Worker:
        if self._worker is None:
            if not appears(self._order.token):
                raise ValueError(
                    f"{self._order.token.parent} is not the same folder there as where the command "
                    "runs: results, data and cache must lie on a disk that all machines share"
                )
            os.chdir(self._order.folder)
            import_plugins(self._order.plugins)
            name_targets(self._order.targets)
            worker = self._order.build()
            self._worker, self._identity = worker, worker.identity
        return self._worker


def host() -> str:
    """This machine's name."""
    return socket.gethostname()


def tries_of(shard: Shard) -> Path:
    """The file that counts beginnings of a shard; it goes when the shard is there."""
    return shard.path.with_suffix(".tries")


def _may_try(shard: Shard) -> bool:
    with tries_of(shard).open("a+b") as file:
        file.write(b".")
        return file.tell() <= MAX_TRIES


def _located(worker: Worker, shard: Shard, error: Exception) -> str:
    """What failed, with the item if it fails alone, too."""
    for place, item in enumerate(shard.items):
        try:
            worker([item])
        except Exception as again:  # noqa: BLE001 - the same error, with its item
            return f"item {shard.start + place + 1} ({_short(item)}): {_reason(again)}"
    return _reason(error)


def _short(item: Any) -> str:
    text = str(getattr(item, "sample_id", item))
    return text if len(text) <= 80 else f"{text[:77]}..."


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())
    plain = isinstance(error, ValueError | OSError | ImportError) and text
    return text if plain else f"{type(error).__name__}: {text}"
