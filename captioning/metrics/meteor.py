"""METEOR 1.5 by pycocoevalcap's jar: one process, pipelined, killed when it hangs."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import pycocoevalcap.meteor.meteor as package

from captioning.metrics.java import JavaError, find_java

_FOLDER = Path(package.__file__).parent
_ARGUMENTS = ("-Xmx2G", "-Dfile.encoding=UTF-8", "-jar", package.METEOR_JAR)
_OPTIONS = ("-", "-", "-stdio", "-l", "en", "-norm")


def score_meteor(
    candidates: Sequence[str], references: Sequence[Sequence[str]], *, timeout: float | None = None
) -> tuple[float, list[float]]:
    """METEOR (English, exact, stem, synonym and paraphrase matching) of tokenized captions.

    The same protocol as pycocoevalcap's ``Meteor`` and the same digits; lines are written ahead
    instead of one at a time, and standard error cannot fill up and block the process.

    Args:
        candidates: one tokenized caption an image.
        references: tokenized references of the same images, in the same order.
        timeout: seconds before Java is killed; 300 s and 0.1 s an image by default.

    Returns:
        The corpus score, from summed statistics (not the mean), and one score an image, in [0, 1].

    Raises:
        JavaError: Java is absent, crashed, or hung.
    """
    lines = [_line(*pair) for pair in zip(candidates, references, strict=True)]
    seconds = timeout or 300 + 0.1 * len(lines)
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [find_java()[0], *_ARGUMENTS, *_OPTIONS],
            cwd=_FOLDER,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
        killed = threading.Event()
        watchdog = threading.Timer(seconds, _kill, (process, killed))
        watchdog.start()
        try:
            return _converse(process, lines)
        except (OSError, EOFError, ValueError) as error:
            raise JavaError(_reason(error, killed, seconds, errors)) from error
        finally:
            watchdog.cancel()
            process.kill()
            process.communicate()


def _converse(process: subprocess.Popen[bytes], lines: Sequence[str]) -> tuple[float, list[float]]:
    writer = threading.Thread(target=_write_ahead, args=(process.stdin, lines), daemon=True)
    writer.start()
    statistics = [_read(process.stdout) for _ in lines]
    writer.join()
    _write(process.stdin, ["EVAL ||| " + " ||| ".join(statistics)])
    scores = [float(_read(process.stdout)) for _ in lines]
    return float(_read(process.stdout)), scores


def _line(candidate: str, references: Sequence[str]) -> str:
    # "|||" separates fields and a line break ends the request: neither may come from a caption
    fields = [" ".join(text.replace("|||", "").split()) for text in (*references, candidate)]
    return " ||| ".join(("SCORE", *fields))


def _write_ahead(stream: IO[bytes] | None, lines: Sequence[str]) -> None:
    # a dead process is noticed and named by the reader, at the end of its output
    with contextlib.suppress(OSError, ValueError):
        _write(stream, lines)


def _write(stream: IO[bytes] | None, lines: Sequence[str]) -> None:
    if stream is None:
        raise EOFError("METEOR's standard input is closed")
    stream.write("".join(line + "\n" for line in lines).encode(errors="replace"))
    stream.flush()


def _read(stream: IO[bytes] | None) -> str:
    line = stream.readline() if stream is not None else b""
    if not line:
        raise EOFError("METEOR ended early")
    return line.decode().strip()


def _kill(process: subprocess.Popen[bytes], killed: threading.Event) -> None:
    killed.set()
    process.kill()


def _reason(error: Exception, killed: threading.Event, seconds: float, errors: IO[bytes]) -> str:
    if killed.is_set():
        return f"METEOR: Java was killed after {seconds:.0f} s without a result"
    errors.seek(0)
    tail = errors.read().decode(errors="replace").strip()[-800:]
    return f"METEOR: Java failed ({error}): {tail or 'no message'}"
