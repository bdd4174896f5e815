"""Compute shards with Ray Data, on all CPUs of a machine or on many machines."""

from __future__ import annotations

import json
import logging
import os
import secrets
import socket
import time
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from captioning.config.plugins import import_plugins, name_targets, named_targets
from captioning.config.ranges import Name, NonNegativeFloat, PositiveFloat, PositiveInt
from captioning.runtime.extras import import_extra
from captioning.runtime.files import write_atomically, write_lines, written_lines
from captioning.spread.base import AbstractSpread, Job, Shard, Worker, cut, units

log = logging.getLogger(__name__)

# Seconds until other machines see a new file; network disks keep old lists of names for a while.
VISIBLE_AFTER = 30.0
HEAD = "head"


def write_shard(shard: Shard, head: Any, records: Sequence[Any]) -> None:
    """Write a shard's records with a header of plain values.

    Raises:
        ValueError: the number of records differs from that of items.
        OSError: the file cannot be written.
    """
    if len(records) != len(shard.items):
        raise ValueError(f"{len(records)} records for {len(shard.items)} items")
    if shard.path.suffix == ".jsonl":
        lines = (json.dumps(value, ensure_ascii=False) for value in (head, *records))
        write_lines(shard.path, lines)
        return
    arrays = {str(place): np.ascontiguousarray(record) for place, record in enumerate(records)}
    sums = [zlib.crc32(array.tobytes()) for array in arrays.values()]
    note = {HEAD: json.dumps({HEAD: head, "crc32": sums})}
    write_atomically(shard.path, lambda part: save_file(arrays, part, metadata=note))


def read_shard(shard: Shard) -> tuple[Any, list[Any]] | None:
    """Header and records of a shard; None if the file is missing or damaged."""
    try:
        if shard.path.suffix == ".jsonl":
            head, *records = map(json.loads, written_lines(shard.path))
        else:
            head, records = _read_arrays(shard)
    except (OSError, ValueError, KeyError, TypeError, SafetensorError):
        return None
    return (head, records) if len(records) == len(shard.items) else None


def _read_arrays(shard: Shard) -> tuple[Any, list[np.ndarray]]:
    with safe_open(shard.path, framework="numpy") as file:
        about = json.loads(file.metadata()[HEAD])
        arrays = [file.get_tensor(str(place)) for place in range(len(shard.items))]
    if [zlib.crc32(array.tobytes()) for array in arrays] != about["crc32"]:
        raise ValueError(f"{shard.path}: damaged")
    return about[HEAD], arrays


def appears(path: Path, seconds: float = VISIBLE_AFTER) -> bool:
    """Whether a file written by another machine is visible here, waiting some seconds for it."""
    until = time.monotonic() + seconds
    while not path.exists():
        if time.monotonic() > until:
            return False
        time.sleep(0.2)
    return True


# A shard that ended so many processes, as by taking their memory, is given up.
MAX_TRIES = 4


@dataclass(frozen=True, kw_only=True)
class Order:
    """Settings that every worker process receives.

    Attributes:
        build, unit, plugins, uses_gpu: see `captioning.spread.base.Job`.
        folder: working folder of the command, which relative paths start from.
        token: file that all machines must see.
        targets: names in the user's config, see `captioning.config.plugins`.
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
    """Result of a shard's computation.

    Attributes:
        problem: why the shard could not be computed; empty on success.
        fatal: whether all other shards must fail, too.
    """

    problem: str = ""
    fatal: bool = False


class ShardWorker:
    """Worker that computes shards and writes their files.

    Failures are returned, not raised, so that one bad item does not end the work on all others.

    Args:
        order: see `Order`.
    """

    def __init__(self, order: Order) -> None:
        self._order = order
        self._worker: Worker | None = None
        self._identity: Any = None

    def compute(self, shard: Shard) -> Outcome:
        """Compute a shard and write its file, unless the file exists."""
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
                    f"{self._order.token.parent} is another folder on the worker than on the "
                    f"machine of the command: results, data and cache must lie on a disk that "
                    f"all machines share"
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
    """File that counts attempts at a shard; it is deleted when the shard is finished."""
    return shard.path.with_suffix(".tries")


def _may_try(shard: Shard) -> bool:
    with tries_of(shard).open("a+b") as file:
        file.write(b".")
        return file.tell() <= MAX_TRIES


def _located(worker: Worker, shard: Shard, error: Exception) -> str:
    """Describe a failure, naming the item if it also fails alone."""
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


AUTO = "auto"
MAX_PROBLEMS = 5  # shards that may fail before the others are no longer tried
# Ray's servers and workers tell in its own logs what they do; here it would bury what we tell.
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_BACKEND_LOG_LEVEL": "fatal"}


class RayData(AbstractSpread):
    """Distribute shards over the processes of a Ray cluster.

    A process that dies is replaced and its shard computed again; so are the shards of a lost
    machine. Each finished shard leaves a file, so a killed command resumes with the remaining
    shards. All machines must share the disk of results, data and cache.

    Args:
        address: address of the cluster's head, ``HOST:PORT``; ``"auto"``: the cluster that this
            machine belongs to (``RAY_ADDRESS`` or the last one started); None: this machine alone.
        num_workers: number of processes; None: as many as CPUs and GPUs allow.
        num_cpus: CPUs per process, and torch's threads in it.
        num_gpus: GPUs per process (0.5: two share one); None: one if the cluster has GPUs and the
            job uses them (`Job.uses_gpu`).
        shard_size: items per file, rounded up to whole batches; None: the job's default.
        patience: seconds to wait for the cluster's answer.
    """

    def __init__(
        self,
        *,
        address: Name | None = None,
        num_workers: PositiveInt | None = None,
        num_cpus: PositiveInt = 1,
        num_gpus: NonNegativeFloat | None = None,
        shard_size: PositiveInt | None = None,
        patience: PositiveFloat = 30.0,
    ) -> None:
        self._address, self._num_workers, self._num_cpus = address, num_workers, num_cpus
        self._num_gpus, self._shard_size, self._patience = num_gpus, shard_size, patience

    def shard_size(self, *, unit: int, save_every: int) -> int:
        """Number of items in a shard: the setting or ``save_every``, rounded up to whole units."""
        return -(-(self._shard_size or save_every) // unit) * unit

    def results(self, job: Job) -> Iterator[list[Any]]:
        """See `AbstractSpread`. A bad item raises an error once all other shards are done.

        Raises:
            ModuleNotFoundError: Ray is not installed.
        """
        shards = cut(job, self.shard_size(unit=job.unit, save_every=job.save_every))
        missing = [shard for shard in shards if read_shard(shard) is None]
        done = {shard.number for shard in shards} - {shard.number for shard in missing}
        hosts: dict[str, str] = {}
        with self._cluster(bool(missing)) as ray, closing(self._done(ray, job, missing)) as news:
            for shard in shards:
                while shard.number not in done:
                    done.add(next(news))
                head, records = _taken(shard)
                _check_same(head, hosts, job)
                yield records
                shard.path.unlink()
        _tidy(job.folder)

    def _done(self, ray: Any, job: Job, shards: Sequence[Shard]) -> Generator[int]:
        """Yield numbers of shards as they finish; raise at the end if some failed."""
        problems: dict[int, str] = {}
        with _token(job.folder) as token:
            order = Order(
                build=job.build,
                unit=job.unit,
                plugins=job.plugins,
                folder=Path.cwd(),
                token=token,
                targets=named_targets(),
                uses_gpu=job.uses_gpu,
            )
            for shard in shards:
                tries_of(shard).unlink(missing_ok=True)
            with closing(self._outcomes(ray, order, shards)) as outcomes:
                for number, outcome in outcomes:
                    if not outcome.problem:
                        yield number
                        continue
                    problems[number] = outcome.problem
                    if outcome.fatal or len(problems) >= MAX_PROBLEMS:
                        break
        raise ValueError(_summary(problems, job))

    def _outcomes(
        self, ray: Any, order: Order, shards: Sequence[Shard]
    ) -> Generator[tuple[int, Outcome]]:
        data = import_extra("ray.data", extra="ray", purpose="spread=ray")
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        gpus, size = self._share(ray.cluster_resources(), len(shards), order.uses_gpu)
        hosts = len({node["NodeManagerHostname"] for node in ray.nodes() if node["Alive"]})
        log.info(f"Ray: {len(shards)} shards, {size} processes, machines in the cluster: {hosts}")
        rows = [{"number": shard.number, "shard": shard} for shard in shards]
        data.DataContext.get_current().enable_progress_bars = False
        computed = data.from_items(rows, override_num_blocks=len(rows)).map_batches(
            RayWorker,
            batch_size=1,
            compute=data.ActorPoolStrategy(size=size),
            num_cpus=self._num_cpus,
            num_gpus=gpus,
            fn_constructor_args=(order,),
        )
        for row in computed.iter_rows():
            yield row["number"], Outcome(problem=row["problem"], fatal=row["fatal"])

    def _share(
        self, resources: dict[str, float], num_shards: int, uses_gpu: bool = True
    ) -> tuple[float, int]:
        """GPUs per worker, and the number of workers."""
        gpus = self._num_gpus
        if gpus is None:
            gpus = 1.0 if uses_gpu and resources.get("GPU", 0) >= 1 else 0.0
        limits = [int(resources.get("CPU", 0) // self._num_cpus)]
        if gpus:
            limits.append(int(resources.get("GPU", 0) // gpus))
        if min(limits) < 1:
            raise ValueError(
                f"a worker of spread.num_cpus={self._num_cpus} and spread.num_gpus={gpus:g} does "
                f"not fit into the cluster, which has {resources.get('CPU', 0):g} CPUs and "
                f"{resources.get('GPU', 0):g} GPUs"
            )
        return gpus, max(1, min(self._num_workers or min(limits), min(limits), num_shards))

    @contextmanager
    def _cluster(self, needed: bool) -> Iterator[Any]:
        """Connect to Ray; an existing connection is used and left open."""
        os.environ.update({key: os.environ.get(key, value) for key, value in QUIET.items()})
        ray = import_extra("ray", extra="ray", purpose="spread=ray")
        begun = needed and not ray.is_initialized()
        if begun:
            self._connect(ray)
        try:
            yield ray
        finally:
            if begun:
                ray.shutdown()

    def _connect(self, ray: Any) -> None:
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if "PYTHONPATH" in os.environ:
            options["runtime_env"] = {"env_vars": {"PYTHONPATH": os.environ["PYTHONPATH"]}}
        address = self._address
        if address is None:
            ray.init(address="local", include_dashboard=False, **options)
            return
        if address == AUTO:
            address = os.environ.get("RAY_ADDRESS", AUTO)
        if address != AUTO:
            _check_answer(address, self._patience)
        try:
            ray.init(address=address, **options)
        except (ConnectionError, RuntimeError) as error:
            raise ConnectionError(
                f"spread.address={self._address}: no Ray cluster answers ({error}); start one with "
                "ray start --head, and give the address that it prints (not 127.0.0.1)"
            ) from error


class RayWorker:
    """Wrapper of `ShardWorker` for Ray Data, with batches of one row."""

    def __init__(self, order: Order) -> None:
        self._worker = ShardWorker(order)

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        """Compute a shard; return its number and outcome."""
        outcome = self._worker.compute(batch["shard"][0])
        return {
            "number": [int(batch["number"][0])],
            "problem": [outcome.problem],
            "fatal": [outcome.fatal],
        }


def _check_answer(address: str, patience: float) -> None:
    """Raise an error for an unreachable address, for which Ray would wait two minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise ValueError(f"spread.address must be HOST:PORT, auto or null: got {address!r}")
    try:
        socket.create_connection((host, int(port)), timeout=patience).close()
    except OSError as error:
        raise ConnectionError(
            f"spread.address={address}: nothing answers there ({error}); start the cluster with "
            "ray start --head on that machine, or correct the address"
        ) from error


@contextmanager
def _token(folder: Path) -> Iterator[Path]:
    """File by which machines check that they see the same folder."""
    folder.mkdir(parents=True, exist_ok=True)
    token = folder / f".{secrets.token_hex(6)}.token"
    token.touch()
    try:
        yield token
    finally:
        token.unlink(missing_ok=True)


def _taken(shard: Shard) -> tuple[Any, list[Any]]:
    """Header and records of a finished shard."""
    content = read_shard(shard) if appears(shard.path) else None
    if content is None:
        raise OSError(
            f"{shard.path}: a computed shard is missing: all machines must share the "
            "disk of the results"
        )
    return content


def _check_same(head: dict[str, Any], hosts: dict[str, str], job: Job) -> None:
    """Raise an error if workers differ in weights or settings."""
    if job.check is not None:
        job.check(head["identity"])
    host = hosts.setdefault(repr(head["identity"]), head["host"])
    if len(hosts) > 1:
        first = next(iter(hosts.values()))
        raise ValueError(
            f"{job.name}: {host} has other weights or settings than {first}; give all "
            f"machines the same files, and delete {job.folder}"
        )


def _summary(problems: dict[int, str], job: Job) -> str:
    number, problem = min(problems.items())
    others = f" (and {len(problems) - 1} others)" if len(problems) > 1 else ""
    return (
        f"{job.name}: shard {number}{others}: {problem}; what the other shards gave is kept: "
        "repair this and give the same command again"
    )


def _tidy(folder: Path) -> None:
    """Delete the shards' folder, unless it holds files of other work."""
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
