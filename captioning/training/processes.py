"""End all processes of a run together: each notices at once when another one ends.

Without this module they wait: with gloo until an error that names no process, with NCCL for up to
half an hour. Each process has a connection to process 0, which the operating system closes when
either of them ends, however that happens.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import select
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import pytorch_lightning as pl
from torch.distributed import DistError

from captioning.results.run_folder import RunFolder

log = logging.getLogger(__name__)

CONNECTING = 60.0  # seconds until all are connected
# Seconds for an orderly end, after which a process is ended.
GRACE = {"lost": 3.0, "failed": 3.0, "stopped": 60.0}
ORDERLY = 5.0  # more, where it has begun
# Seconds in which a failed process hears whether another one failed before it.
HEARING = 2.0
# A machine that lost its power does not close connections: after about so many seconds it is asked.
IDLE, INTERVAL, PROBES = 5, 2, 3
LOCAL, MOST = ("127.0.0.1", "localhost"), 1000
FOREIGN_SIGNS = ("gloo", "nccl", "connection", "socket", "timed out", "timeout")


@dataclass(frozen=True, kw_only=True)
class Ending:
    """Report on how a process ended.

    Attributes:
        rank: rank of the process.
        host: its machine.
        how: ``"done"``; ``"lost"``: without a report; ``"failed"``: with an error; ``"stopped"``:
            by a signal.
        error: first line of the error.
    """

    rank: int
    host: str
    how: Literal["done", "lost", "failed", "stopped"]
    error: str = ""


class Lifeline:
    """Connections to the run's other processes, watched by a thread.

    Args:
        rank: rank of this process.
        world_size: number of processes.
        links: links to all others in process 0, to process 0 in all others; by rank and machine.
        folder: folder of the run, for the remedy.
    """

    def __init__(
        self,
        *,
        rank: int,
        world_size: int,
        links: dict[socket.socket, tuple[int, str]],
        folder: RunFolder,
    ) -> None:
        self.rank, self.world_size, self.folder = rank, world_size, folder
        self.ending: Ending | None = None
        self._links, self._rest = links, dict.fromkeys(links, b"")
        self._lock, self._told = threading.Lock(), False
        self._noticed, self._ends, self._over = (threading.Event() for _ in range(3))
        for link in links:
            _keep_alive(link)
        # Loader processes must not keep the connections of a process that is gone.
        os.register_at_fork(after_in_child=self._forget)
        threading.Thread(target=self._watch, name="lifeline", daemon=True).start()

    def tell(self, error: BaseException | None) -> None:
        """Report to the other processes how this process ends; only the first report counts."""
        if self._told:
            return
        self._told, how = True, "done"
        if error is not None:
            how = "stopped" if isinstance(error, KeyboardInterrupt | SystemExit) else "failed"
        text = "" if error is None else str(error).partition("\n")[0]
        self._send(Ending(rank=self.rank, host=socket.gethostname(), how=how, error=text))

    def leave(self) -> None:
        """Stop watching the connections."""
        self._over.set()

    def cause(self, error: BaseException) -> Ending | None:
        """The other process's end that caused ``error``; also if both have the same error."""
        self._ends.set()
        self._noticed.wait(HEARING if self.rank or is_of_connections(error) else 0)
        return self.ending

    def line(self, ending: Ending) -> str:
        """Message for the user about the end of another process."""
        last = self.folder.last_checkpoint or "the start, as no epoch had ended"
        what = {"failed": " with an error, which it told", "stopped": " by a signal"}
        return (
            f"process {ending.rank} of {self.world_size} (on {ending.host}) ended"
            f"{what.get(ending.how, '')}, and so does this one; resume=auto resumes from {last}"
        )

    def _watch(self) -> None:
        while not self._over.is_set():
            links = list(self._links)
            if not links:
                return
            for link in select.select(links, (), (), 0.2)[0]:
                for ending in self._read(link):
                    self._notice(ending)

    def _read(self, link: socket.socket) -> Iterator[Ending]:
        """Read the reports that a connection sends, or report the loss of the connection."""
        try:
            content = link.recv(4096)
        except OSError:
            content = b""
        if not content:
            rank, host = self._links.pop(link)
            link.close()
            yield Ending(rank=rank, host=host, how="lost")
            return
        *lines, self._rest[link] = (self._rest[link] + content).split(b"\n")
        for line in lines:
            ending = Ending(**json.loads(line))
            if ending.how == "done":  # and no longer watched
                self._links.pop(link)
            yield ending

    def _notice(self, ending: Ending) -> None:
        if ending.how == "done" or ending.rank == self.rank or self.ending is not None:
            return
        self.ending = ending
        if self.rank == 0:
            self._send(ending)
        self._noticed.set()
        threading.Thread(target=self._end, args=(ending,), daemon=True).start()

    def _end(self, ending: Ending) -> None:
        """End this process if it does not end by itself."""
        if self._over.wait(GRACE[ending.how]):
            return
        if self._ends.is_set() and self._over.wait(ORDERLY):
            return
        print(f"train: {self.line(ending)}", file=sys.stderr, flush=True)
        os._exit(1)

    def _send(self, ending: Ending) -> None:
        content = json.dumps(asdict(ending)).encode() + b"\n"
        with self._lock:
            for link in list(self._links):
                try:
                    link.sendall(content)
                except OSError:
                    continue  # the other end is gone, which its own connection tells

    def _forget(self) -> None:
        for link in list(self._links):
            link.close()
        self._links, self._lock = {}, threading.Lock()


def _keep_alive(link: socket.socket) -> None:
    link.settimeout(None)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    settings = {"TCP_KEEPIDLE": IDLE, "TCP_KEEPINTVL": INTERVAL, "TCP_KEEPCNT": PROBES}
    for name, value in settings.items():
        if hasattr(socket, name):
            link.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def is_of_connections(error: BaseException) -> bool:
    """Whether an error is torch's error about a lost connection between processes."""
    text = str(error).lower()
    return isinstance(error, DistError) or (
        isinstance(error, RuntimeError) and any(sign in text for sign in FOREIGN_SIGNS)
    )


def connected(trainer: pl.Trainer, folder: RunFolder) -> Lifeline | None:
    """Connect the processes of a run; called in all at once. None if they cannot connect."""
    rank, world_size = trainer.global_rank, trainer.world_size
    strategy: Any = trainer.strategy
    main = str(strategy.cluster_environment.main_address)
    listening = (main if main in LOCAL else "", 0)
    with socket.create_server(listening) if rank == 0 else socket.socket() as server:
        address: Any = None
        if rank == 0:
            address = (server.getsockname()[1], secrets.token_hex(), socket.gethostname())
        port, secret, host = strategy.broadcast(address)
        try:
            if rank == 0:
                links = _accepted(server, secret, world_size - 1)
            else:
                links = {_joined(main, port, secret, rank): (0, host)}
        except OSError as error:
            log.warning(f"process {rank} will not notice when other processes end: {error}")
            return None
    return Lifeline(rank=rank, world_size=world_size, links=links, folder=folder)


def _accepted(
    server: socket.socket, secret: str, number: int
) -> dict[socket.socket, tuple[int, str]]:
    links: dict[socket.socket, tuple[int, str]] = {}
    server.settimeout(CONNECTING)
    while len(links) < number:
        link, _ = server.accept()
        link.settimeout(CONNECTING)
        with link.makefile("rb", buffering=0) as file:
            told, _, name = file.readline(MOST).decode(errors="replace").rstrip().partition(" ")
        if secrets.compare_digest(told.encode(), secret.encode()):
            rank, _, host = name.partition(" ")
            links[link] = (int(rank), host)
        else:  # somebody else's
            link.close()
    return links


def _joined(main: str, port: int, secret: str, rank: int) -> socket.socket:
    link = socket.create_connection((main, port), timeout=CONNECTING)
    link.sendall(f"{secret} {rank} {socket.gethostname()}\n".encode())
    return link


class EndTogether(pl.Callback):
    """Connect the processes of a run, and report an error to the others.

    Args:
        folder: the run's folder.
    """

    def __init__(self, *, folder: Path) -> None:
        self.folder = RunFolder(Path(folder))
        self.lifeline: Lifeline | None = None

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Connect to process 0."""
        if self.lifeline is None and trainer.world_size > 1:
            self.lifeline = connected(trainer, self.folder)
            _spare_children()

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        """Report an error, unless another process's end caused it."""
        if self.lifeline is not None and not is_of_connections(exception):
            self.lifeline.tell(exception)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Within the block, end this process if another one ends, with a message that says why.

        Raises:
            ConnectionError: another process ended.
        """
        try:
            yield
        except BaseException as error:
            if self.lifeline is not None:
                self._explain(self.lifeline, error)
            raise
        finally:
            if self.lifeline is not None:
                self.lifeline.tell(None)
                self.lifeline.leave()

    def _explain(self, lifeline: Lifeline, error: BaseException) -> None:
        if not is_of_connections(error):
            lifeline.tell(error)
        ending = lifeline.cause(error)
        if ending is None:
            lifeline.tell(error)
        if ending is None or isinstance(error, KeyboardInterrupt | SystemExit):
            return
        if is_of_connections(error):
            raise ConnectionError(lifeline.line(ending)) from error
        if lifeline.rank and ending.error == str(error).partition("\n")[0]:
            sys.exit(1)  # told by another process already


def _spare_children() -> None:
    """Disable Lightning's own watch, which ends all processes without a message when one ends."""
    for thread in threading.enumerate():
        if thread.name == "child-process-observer":
            vars(thread)["_child_processes"] = []


def ends_together(trainer: pl.Trainer) -> AbstractContextManager[None]:
    """See `EndTogether.watching`."""
    callbacks: list[Any] = getattr(trainer, "callbacks", [])
    together = [callback for callback in callbacks if isinstance(callback, EndTogether)]
    return together[0].watching() if together else nullcontext()
