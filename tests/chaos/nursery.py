"""Starts commands as forks of a process that has imported what they need.

That process is a fork of the caller, too. It reads requests, a line of JSON each, and answers each
by a line. It is a subreaper: what a command leaves behind becomes its child, and is seen.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import multiprocessing.util
import os
import signal
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, TextIO

PR_SET_CHILD_SUBREAPER = 36
IMPORTS = (
    *("captioning.commands.main", "captioning.training.run", "captioning.training.prepare"),
    *("captioning.evaluation.run", "captioning.export.export", "augmentation.run"),
    *(
        "augmentation.image_replacement.made_ahead",
        "curation.review.edit_report",
        "curation.export.export",
    ),
    *("matplotlib.pyplot", "transformers", "torchvision", "timm", "nltk", "hydra.core.plugins"),
)


class Nursery:
    """The process that commands are forked from.

    Args:
        environment: beside the caller's.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        for module in IMPORTS:
            importlib.import_module(module)
        requests, answers = os.pipe(), os.pipe()
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(requests[1])
            os.close(answers[0])
            os.environ.update(environment or {})
            _live(os.fdopen(requests[0]), os.fdopen(answers[1], "w"))
        os.close(requests[0])
        os.close(answers[1])
        self._requests, self._answers = os.fdopen(requests[1], "w"), os.fdopen(answers[0])

    def start(self, arguments: Sequence[str], *, log: Path, **options: Any) -> int:
        """Start a command; returns its process id, which is its session's, too.

        Args:
            arguments: those after ``captioning``.
            log: file that gets its output.
            **options: ``folder``, ``cwd``, ``environment``, ``at``, ``signal``, ``file_size``,
                ``plugin``: see `_command`.
        """
        plain = {key: str(v) if isinstance(v, Path) else v for key, v in options.items()}
        return self._ask(start=list(arguments), log=str(log), **plain)

    def status(self, pid: int) -> int | None:
        """How a command ended: its status, or minus a signal; None while it runs."""
        return self._ask(poll=pid)

    def wait(self, pid: int, seconds: float) -> int | None:
        """The status; None after so many seconds."""
        limit = time.monotonic() + seconds
        while (status := self.status(pid)) is None and time.monotonic() < limit:
            time.sleep(0.03)
        return status

    def left(self, pid: int) -> dict[int, str]:
        """Processes of a command's session, and orphans; those that were started apart."""
        return {
            other: name
            for other, (parent, session, name) in _processes().items()
            if other != self.pid and (session == pid or (parent == self.pid and session != other))
        }

    def close(self) -> None:
        """End it."""
        self._requests.close()
        self._answers.close()
        os.waitpid(self.pid, 0)

    def _ask(self, **request: Any) -> Any:
        self._requests.write(json.dumps(request) + "\n")
        self._requests.flush()
        return json.loads(self._answers.readline())


def _processes() -> dict[int, tuple[int, int, str]]:
    """Parent, session and name of all living processes."""
    found = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            name, _, rest = (folder / "stat").read_text().partition(" (")[2].rpartition(") ")
        except OSError:
            continue
        fields = rest.split()
        if fields[0] not in "ZX":
            found[int(folder.name)] = (int(fields[1]), int(fields[3]), name)
    return found


def _command(request: Mapping[str, Any]) -> None:
    """What a forked child does."""
    os.setsid()
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    sys.stdin, sys.stdout, sys.stderr = (
        os.fdopen(number, mode, buffering=1) for number, mode in ((0, "r"), (1, "w"), (2, "w"))
    )
    os.environ.update(request.get("environment") or {})
    os.chdir(request.get("cwd") or request["folder"])
    if size := request.get("file_size"):
        import resource

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # writes fail as on a full disk
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    sys.argv = ["captioning", *request["start"]]
    if "count" in request:
        from tests.chaos.probe import Probe

        probe = Probe(
            folder=Path(request["folder"]),
            at=request.get("at", 0),
            number=request.get("signal", signal.SIGKILL),
            count=Path(request["count"]),
        )
        probe.install()
    if plugin := request.get("plugin"):  # a fault, to be brought about in the process
        module, _, function = plugin.partition(":")
        getattr(importlib.import_module(module), function)()
    from captioning.commands.main import main

    sys.exit(main(request["start"]))


def _end(error: BaseException) -> int:
    """As the interpreter ends: the status, after other ends of the program were called."""
    code = getattr(error, "code", 1)
    if not isinstance(error, SystemExit):
        traceback.print_exception(error)
    elif isinstance(code, str):
        print(code, file=sys.stderr)
    multiprocessing.util._exit_function()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    return code if isinstance(code, int) else int(code is not None)


def _live(requests: TextIO, answers: TextIO) -> NoReturn:
    """Answer until the caller ends."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ended: dict[int, int] = {}
    for line in requests:
        request = json.loads(line)
        if "start" in request:
            answer: Any = os.fork()
            if answer == 0:
                requests.close()
                answers.close()
                _run(request)
        else:
            _reap(ended)
            answer = ended.get(request["poll"])
        print(json.dumps(answer), file=answers, flush=True)
    os._exit(0)


def _run(request: Mapping[str, Any]) -> NoReturn:
    status = 1
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _command(request)
    except BaseException as error:  # noqa: BLE001 - as at the end of a program
        status = _end(error)
    finally:
        os._exit(status)


def _reap(ended: dict[int, int]) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        ended[pid] = os.waitstatus_to_exitcode(status)
