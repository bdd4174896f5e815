"""Feeds damaged files to a reader, in a process of its own, and judges how it ends.

Accepted is success, or an error of a class that commands print without a traceback, in one line
that names a file of the input. All else is a failure: other errors, several lines, no name, more
than `SECONDS` for an input, more than `ROOM` of memory, or a process that dies.
"""

from __future__ import annotations

import faulthandler
import functools
import json
import os
import resource
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import hypothesis
from hypothesis import strategies as st

from tests.fuzz.mutations import Draw, damaged

SECONDS = 60  # for an input, on a machine that has more to do
ROOM = 3 << 30  # bytes beyond what the process has when it begins
ROOT = Path(__file__).resolve().parents[2]


@dataclass(kw_only=True)
class Subject:
    """What is fed with damaged files.

    Attributes:
        call: reads them; with good files it must not fail.
        files: that are damaged, one at a time.
        names: further words, one of which an error may name in place of the damaged file.
        restore: puts back what calls leave behind.
    """

    call: Callable[[], object]
    files: list[Path]
    names: tuple[str, ...] = ()
    restore: Callable[[], object] = lambda: None


@dataclass(frozen=True, kw_only=True)
class Target:
    """A reader under test.

    Attributes:
        name: for the record.
        make: writes good files into a folder.
        share: of the inputs of a run, beside those of other targets.
        pick: another way to make an input: draws one, gives it to the reader.
    """

    name: str
    make: Callable[[Path], Subject]
    share: float = 1.0
    pick: Callable[[Subject, Draw], Callable[[], object]] | None = None


@dataclass(kw_only=True)
class Outcome:
    """What a target came to."""

    target: str
    seed: int
    inputs: int = 0
    read: int = 0
    refused: int = 0
    failed: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0


class HungError(BaseException):
    """An input took too long."""


def fuzz(target: Target, folder: Path, *, inputs: int, seed: int) -> Outcome:
    """Feed a target in a child process; what it wrote last counts, however it ended."""
    folder.mkdir(parents=True)
    folder = folder.resolve()
    report = folder / "outcome.json"
    _prepare_hypothesis()
    child = os.fork()
    if child == 0:
        _in_child(target, folder, inputs, seed)
    limit, status = time.monotonic() + 600 + inputs * 5, 0
    while time.monotonic() < limit:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        time.sleep(0.05)
    else:
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    outcome = Outcome(target=target.name, seed=seed)
    if report.is_file():
        outcome = Outcome(**json.loads(report.read_text()))
    if status:
        words = (folder / "words.txt").read_text(errors="replace").strip().splitlines()
        outcome.failed += 1
        outcome.failures[f"the process ended with {status}: {' | '.join(words[-4:])[-300:]}"] = 1
    return outcome


@functools.cache
def _prepare_hypothesis() -> None:
    """At its first draw it looks at all modules, which each child would do for three inputs."""

    @hypothesis.settings(max_examples=1, database=None)
    @hypothesis.given(st.integers(), st.binary())
    def draw(number: int, data: bytes) -> None:
        """That it is drawn is all."""

    draw()


def _in_child(target: Target, folder: Path, inputs: int, seed: int) -> None:
    """Run, and never return into the parent's program."""
    status = 1
    try:
        words = os.open(folder / "words.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for stream in (1, 2):
            os.dup2(words, stream)
        os.chdir(folder)  # damaged settings may name files where the process is
        faulthandler.enable(file=2)
        warnings.simplefilter("ignore")
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, used + ROOM))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGALRM, _hung)
        _run(target, folder, inputs, seed)
        status = 0
    except BaseException:  # noqa: BLE001 - whatever it is, the parent tells of it
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def _hung(*unused: Any) -> None:
    raise HungError


def _run(target: Target, folder: Path, inputs: int, seed: int) -> None:
    data = folder / "data"
    data.mkdir()
    subject = target.make(data)
    subject.call()
    subject.restore()
    originals = {path: path.read_bytes() for path in subject.files}
    outcome, started = Outcome(target=target.name, seed=seed), time.monotonic()
    found: Counter[str] = Counter()

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=inputs,
        database=None,
        deadline=None,
        derandomize=False,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(st.data())
    def feed(drawn: st.DataObject) -> None:
        names = subject.names
        if target.pick is not None:
            call = target.pick(subject, drawn.draw)
        else:
            path = drawn.draw(st.sampled_from(subject.files))
            content = damaged(drawn.draw, originals[path], path.suffix)
            rewrite(path, content)
            call, names = subject.call, (*names, path.name, data.name)
        verdict = judge(call, names)
        outcome.inputs += 1
        outcome.read += verdict == "read"
        outcome.refused += verdict == "refused"
        if verdict not in ("read", "refused"):
            outcome.failed += 1
            found[verdict] += 1
            if found[verdict] == 1 and target.pick is None:
                (folder / f"failure{len(found)}{path.suffix}").write_bytes(content)
        for changed, content in originals.items():
            if target.pick is None and changed.name == path.name:
                rewrite(changed, content)
        subject.restore()
        outcome.failures = dict(found)
        outcome.seconds = round(time.monotonic() - started, 1)
        if outcome.inputs % 20 == 0:
            (folder / "outcome.json").write_text(json.dumps(asdict(outcome)))

    feed()
    (folder / "outcome.json").write_text(json.dumps(asdict(outcome)))


def judge(call: Callable[[], object], names: tuple[str, ...]) -> str:
    """``"read"``, ``"refused"``, or what is wrong with how the call ended."""
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        call()
        return "read"
    except HungError as error:
        return f"no end after {SECONDS} s in {_place(error)}"
    except (ValueError, OSError) as error:
        told = str(error)
        if "\n" in told.strip():
            return f"several lines: {type(error).__name__} {_place(error)}: {told[:80]!r}"
        if not any(name in told for name in names):
            return f"names no file: {type(error).__name__} {_place(error)}: {told[:80]!r}"
        return "refused"
    except BaseException as error:  # noqa: BLE001 - any other is what is looked for
        return f"{type(error).__name__} {_place(error)}: {str(error)[:80]!r}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _place(error: BaseException) -> str:
    """The last line of the project's that the error came through."""
    frames = traceback.extract_tb(error.__traceback__)
    tests = str(ROOT / "tests")
    ours = [f for f in frames if str(ROOT) in f.filename and not f.filename.startswith(tests)]
    ours = [f for f in ours if ".venv" not in f.filename] or frames[-1:]
    return f"{Path(ours[-1].filename).name}:{ours[-1].lineno}"


def rewrite(path: Path, data: bytes) -> None:
    """A new file in place of the old one: one that is mapped must not change."""
    path.unlink(missing_ok=True)
    path.write_bytes(data)
