"""METEOR 1.5 with pycocoevalcap's jar, in Java processes that stay alive between calls.

Starting Java and reading the paraphrase table takes seconds, and the first captions are slow. So
processes are kept for the next call, and large sets are split over several. A caption's statistics
do not depend on other captions, so several processes give the same scores as one.
"""

from __future__ import annotations

import atexit
import contextlib
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pycocoevalcap.meteor.meteor as package
from numpy.typing import NDArray

from captioning.metrics.java import (
    JavaError,
    find_java,
    kill_java,
    start_java,
    try_twice,
    was_stopped,
)
from captioning.runtime.cores import num_cores

T = TypeVar("T")

_FOLDER = Path(package.__file__).parent
# Several processes in parallel: each collects garbage on one thread instead of all cores.
_ARGUMENTS = ("-XX:+UseSerialGC", "-Xmx2G", "-Dfile.encoding=UTF-8", "-jar", package.METEOR_JAR)
_OPTIONS = ("-", "-", "-stdio", "-l", "en", "-norm")
# A process needs half a gigabyte; its start takes as long as scoring some 5,000 captions.
MAX_PROCESSES = 4
CAPTIONS_PER_PROCESS = 10_000
# METEOR 1.5's parameters for English, task "rank" (Denkowski and Lavie, 2014, table 1): of the
# harmonic mean, of the penalty (2), of content words; weights of exact, stem, synonym, paraphrase.
_ALPHA, _BETA, _GAMMA, _DELTA = 0.85, 0.2, 0.6, 0.75
_MODULES = np.array([1.0, 0.6, 0.8, 0.6])

Floats = NDArray[np.float64]

_lock = threading.Lock()
_alive: list[_Process] = []


def score_meteor(
    candidates: Sequence[str], references: Sequence[Sequence[str]], *, timeout: float | None = None
) -> tuple[float, list[float]]:
    """Compute METEOR (English; exact, stem, synonym and paraphrase matching) of tokenized captions.

    Protocol and scores equal pycocoevalcap's ``Meteor``. If a process crashes or
    hangs, it is killed and the call is retried once with a new process.

    Args:
        candidates: one tokenized caption per image.
        references: tokenized references of the same images, in the same order.
        timeout: seconds before Java is killed; default: 300 s plus 0.1 s per image.

    Returns:
        The corpus score, from summed statistics (not the mean), and one score per image, in [0, 1].

    Raises:
        JavaError: Java is missing, or crashed or hung twice.
    """
    corpus, scores, _ = measure_meteor(candidates, references, timeout=timeout)
    return corpus, scores


def measure_meteor(
    candidates: Sequence[str], references: Sequence[Sequence[str]], *, timeout: float | None = None
) -> tuple[float, list[float], list[str]]:
    """Return the result of `score_meteor`, and METEOR's line of statistics of each image.

    Raises:
        JavaError: Java is missing, or crashed or hung twice.
    """
    lines = [_line(*pair) for pair in zip(candidates, references, strict=True)]
    seconds = timeout or 300 + 0.1 * len(lines)
    with _lock:
        return try_twice(lambda again: _score(lines, seconds))


def count_meteor(lines: Sequence[str]) -> Floats:
    """Parse METEOR's lines of statistics to each image's terms of corpus METEOR, ``(I, 23)``.

    Terms: lengths and function words of caption and reference; matched content words and
    function words of both, per module; chunks; matched words of both. A perfect match adds no
    chunk, otherwise the whole corpus would be penalised for it.
    """
    statistics = np.array([line.split() for line in lines], dtype=np.float64)
    perfect = (_matches(statistics) == statistics[:, :2]).all(1) & (statistics[:, 20] == 1)
    statistics[perfect, 20] = 0
    return statistics


def pooled_meteor(sums: Floats) -> Floats:
    """Return METEOR ``(R, 1)`` of R sets of captions from their summed statistics ``(R, 23)``.

    METEOR's formula (Denkowski and Lavie, 2014, section 2) lets a bootstrap run without Java.
    """
    weights = np.array([_DELTA, 1 - _DELTA])
    counts = sums[:, 4:20].reshape(-1, 4, 2, 2)  # module, content or function, caption or reference
    matched = np.einsum("rmwt,m,w->rt", counts, _MODULES, weights)
    function = sums[:, 2:4]
    length = weights[0] * (sums[:, :2] - function) + weights[1] * function
    precision, recall = _ratio(matched, length).T
    mean = _ratio(precision * recall, (1 - _ALPHA) * recall + _ALPHA * precision)
    fragments = _ratio(sums[:, 20], sums[:, 21:23].mean(1))
    return (mean * (1 - _GAMMA * fragments**_BETA))[:, None]


def _matches(statistics: Floats) -> Floats:
    """Return matched words of caption and reference, ``(I, 2)``."""
    return statistics[:, 4:20].reshape(-1, 8, 2).sum(1)


def _ratio(above: Floats, below: Floats) -> Floats:
    """Divide; 0 where the denominator is 0 or nothing matches."""
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)


def start_meteor(num_captions: int) -> None:
    """Start the processes that a number of captions needs, without waiting for them.

    Raises:
        JavaError: Java is missing.
    """
    with _lock:
        _processes(num_captions)


def meteor_loaded() -> bool:
    """Whether all processes have loaded their tables; until then each uses a core or two."""
    return all(process.loaded for process in list(_alive))


def close_meteor() -> None:
    """End the processes kept for the next call."""
    with _lock:
        _close_all()


atexit.register(close_meteor)


class _Process:
    """A METEOR process that reads requests and writes answers as lines.

    Attributes:
        command: path of Java.
        loaded: whether it has answered once, so its tables are in memory.
    """

    def __init__(self, command: str) -> None:
        self.command = command
        self.loaded = False
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        self._killed = threading.Event()
        self._process = start_java([*_ARGUMENTS, *_OPTIONS], cwd=_FOLDER, stderr=self._errors)

    def ask(
        self, lines: Sequence[str], num_answers: int, seconds: float, read: Callable[[str], T]
    ) -> list[T]:
        """Write all lines while reading the answers, each with ``read``.

        Raises:
            JavaError: the process ended, was killed after ``seconds``, or gave an invalid answer;
                it is closed, so no unread answers remain.
        """
        watchdog = threading.Timer(seconds, self._kill)
        writer = threading.Thread(target=self._write, args=(lines,), daemon=True)
        watchdog.start()
        writer.start()
        try:
            answers = [read(self._read()) for _ in range(num_answers)]
            writer.join()
            return answers
        except (OSError, EOFError, ValueError) as error:
            raise self._named(error, seconds) from error
        finally:
            watchdog.cancel()

    def works(self) -> bool:
        """Whether the process is still running."""
        return self._process.poll() is None

    def close(self) -> None:
        """Kill the process and wait for its end."""
        kill_java(self._process)
        self._process.communicate()
        self._errors.close()

    def _write(self, lines: Sequence[str]) -> None:
        # the reader, at the end of the output, notices and reports a dead process
        with contextlib.suppress(OSError, ValueError):
            stdin: Any = self._process.stdin
            stdin.write("".join(line + "\n" for line in lines).encode(errors="replace"))
            stdin.flush()

    def _read(self) -> str:
        stdout: Any = self._process.stdout
        line = stdout.readline()
        if not line:
            raise EOFError("METEOR ended early")
        self.loaded = True
        return line.decode().strip()

    def _kill(self) -> None:
        self._killed.set()
        kill_java(self._process)

    def _named(self, error: Exception, seconds: float) -> JavaError:
        kill_java(self._process)  # and wait: a dying process must not be taken for a living one
        if was_stopped(self._process):
            return JavaError("METEOR: stopped", stopped=True)
        if self._killed.is_set():
            return JavaError(f"METEOR: Java was killed after {seconds:.0f} s without a result")
        self._errors.seek(0)
        tail = self._errors.read().decode(errors="replace").strip()[-800:]
        return JavaError(f"METEOR: Java failed ({error}): {tail or 'no message'}")


def _processes(num_captions: int) -> list[_Process]:
    """Return running processes; start missing ones."""
    command, _ = find_java()
    for process in [p for p in _alive if p.command != command or not p.works()]:
        process.close()
        _alive.remove(process)
    number = min(1 + num_captions // CAPTIONS_PER_PROCESS, MAX_PROCESSES, num_cores())
    while len(_alive) < number:
        _alive.append(_Process(command))
    return _alive[:number]


def _close_all() -> None:
    while _alive:
        _alive.pop().close()


def _score(lines: Sequence[str], seconds: float) -> tuple[float, list[float], list[str]]:
    processes = _processes(len(lines))
    share = -(-len(lines) // len(processes))
    parts = [lines[start : start + share] for start in range(0, len(lines), share)]
    with ThreadPoolExecutor(len(processes)) as threads:
        pending = [
            threads.submit(process.ask, part, len(part), seconds, str)
            for process, part in zip(processes, parts, strict=False)
        ]
        statistics = [line for answer in pending for line in answer.result()]
    request = "EVAL ||| " + " ||| ".join(statistics)
    *scores, corpus = processes[0].ask([request], len(lines) + 1, seconds, float)
    return corpus, scores, statistics


def _line(candidate: str, references: Sequence[str]) -> str:
    # "|||" separates fields and a line break ends the request: captions must not contain them
    fields = [" ".join(text.replace("|||", "").split()) for text in (*references, candidate)]
    return " ||| ".join(("SCORE", *fields))
