"""Java that hangs, crashes or talks nonsense: named, killed, tried once more, never waited for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from captioning.metrics import coco, spice
from captioning.metrics.coco import evaluate_captions
from captioning.metrics.java import JavaError, kill_java, run_java, start_java, stop_java
from captioning.metrics.meteor import score_meteor
from captioning.metrics.spice import score_spice
from captioning.metrics.tokenizer import tokenize_ptb

Starts = Callable[[str], Callable[[], int]]

REPOSITORY = Path(__file__).resolve().parents[3]
# The sleeper holds the pipes: killing the shell alone would leave readers waiting for it.
HANG = 'sleep 1000 & echo $! >> "$LOG.sleepers"; wait'
FAILURES = {
    "hangs": (HANG, "killed after 1 s"),
    "hangs midway": (f"read -r line; echo '1.0 2.0'; {HANG}", "killed after 1 s"),
    "crashes at its start": ("echo no memory >&2; exit 3", "no memory"),
    "crashes midway": ("read -r line; echo '1.0 2.0'; echo no memory >&2; exit 3", "no memory"),
    "is killed by the system": ("echo no memory >&2; kill -9 $$", "no memory"),
    "talks nonsense": ("echo nonsense; cat > /dev/null", ""),
}
CALLS: dict[str, Callable[[Path], object]] = {
    "METEOR": lambda folder: score_meteor(["a dog", "a cat"], [["a"], ["a"]], timeout=1),
    "PTB tokenizer": lambda folder: tokenize_ptb(["a dog", "a cat"], timeout=1),
    "SPICE": lambda folder: score_spice(["1"], ["a dog"], [["a"]], folder=folder, timeout=1),
}


@pytest.fixture
def starts(
    fake_java: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Starts:
    """Install a fake Java for which no jar is missing; what comes back counts its starts."""
    log = tmp_path / "starts"
    log.touch()
    monkeypatch.setenv("LOG", str(log))
    monkeypatch.setattr(spice, "missing_jars", lambda folder, version: [])

    def install(script: str) -> Callable[[], int]:
        fake_java(f"echo x >> $LOG\nstarts=$(wc -l < $LOG)\n{script}")
        return lambda: len(log.read_text().split())

    return install


def runs(pid: str) -> bool:
    """Whether a process lives; one that is dead may still wait for its parent's notice."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def group_lives(number: int) -> bool:
    """Whether a process group has members."""
    try:
        os.killpg(number, 0)
    except ProcessLookupError:
        return False
    return True


def sleepers_left(folder: Path) -> list[str]:
    """Processes of `HANG` that still run after a while: a kill takes effect when they are next."""
    log = folder / "starts.sleepers"
    remaining = log.read_text().split() if log.exists() else []
    end = time.monotonic() + 20
    while (remaining := [pid for pid in remaining if runs(pid)]) and time.monotonic() < end:
        time.sleep(0.05)
    return remaining


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("name", CALLS)
def test_failing_java_is_named_and_tried_once_more(
    starts: Starts, tmp_path: Path, name: str, failure: str
) -> None:
    script, message = FAILURES[failure]
    count = starts(script)
    start = time.monotonic()
    with pytest.raises(JavaError, match=f"{name}: .*{message}"):
        CALLS[name](tmp_path)
    assert count() == 2
    assert time.monotonic() - start < 30
    assert not sleepers_left(tmp_path)


@pytest.mark.parametrize("failure", FAILURES)
def test_one_failure_is_survived(starts: Starts, failure: str) -> None:
    count = starts(f'[ "$starts" = 1 ] && {{ {FAILURES[failure][0]}; }}\nexec cat')
    assert tokenize_ptb(["a dog", "a cat"], timeout=1) == ["a dog", "a cat"]
    assert count() == 2


def test_failed_scores_are_missing_and_the_others_are_there(starts: Starts, tmp_path: Path) -> None:
    starts("echo no memory >&2; exit 3")
    result = evaluate_captions(
        {"1": "a dog", "2": "a cat"}, {"1": ["a dog"], "2": ["the cat"]}, spice_folder=tmp_path
    )
    assert set(result.missing) == {"METEOR", "SPICE"}
    assert all("no memory" in reason for reason in result.missing.values())
    assert "no memory" in result.settings["tokenizer_reason"]
    assert result.corpus["ROUGE-L"] > 0.5


def test_spice_that_writes_other_images_is_named(starts: Starts, tmp_path: Path) -> None:
    starts(
        'for last; do [ "$previous" = -out ] && target="$last"; previous="$last"; done\n'
        'echo \'[{"image_id": "2", "scores": {"All": {"f": 0.5}}}]\' > "$target"'
    )
    with pytest.raises(JavaError, match="SPICE returned scores of 1 images for 1"):
        score_spice(["1"], ["a dog"], [["a dog"]], folder=tmp_path, timeout=30)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_giving_up_does_not_wait_for_java(
    starts: Starts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    def give_up(*_: object) -> None:
        while count() < 2:  # METEOR and SPICE have begun
            time.sleep(0.01)
        raise error("enough")

    count = starts(HANG)
    monkeypatch.setattr(coco, "score_bleu", give_up)
    # this METEOR never says that it has loaded
    monkeypatch.setattr(coco, "MAX_LOADING_SECONDS", 0.1)
    begin = time.monotonic()
    with pytest.raises(error, match="enough"):
        evaluate_captions({"1": "a"}, {"1": ["a"]}, tokenizer="python", spice_folder=tmp_path)
    assert time.monotonic() - begin < 30
    assert count() == 2
    assert not sleepers_left(tmp_path)


def test_stopped_java_is_not_started_again(starts: Starts) -> None:
    starts("exec sleep 1000")
    process = start_java([])
    stop_java()
    process.communicate()
    assert process.returncode < 0
    stop_java()  # nothing is left to stop
    starts("exec cat")
    assert run_java([], name="cat", timeout=20, text="a\n") == "a\n"


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_java_ends_with_the_process_that_started_it(
    starts: Starts, tmp_path: Path, how: signal.Signals
) -> None:
    starts(HANG)
    call = "from captioning.metrics.java import run_java; run_java([], name='x', timeout=300)"
    parent = subprocess.Popen([sys.executable, "-c", call], cwd=REPOSITORY)
    try:
        log = tmp_path / "starts.sleepers"
        end = time.monotonic() + 60
        while not (log.exists() and log.read_text().strip()) and time.monotonic() < end:
            time.sleep(0.05)
        assert runs(log.read_text().strip())
        os.kill(parent.pid, how)
    finally:
        parent.kill()
        parent.wait()
    assert not sleepers_left(tmp_path)


def test_no_watcher_outlives_java(starts: Starts) -> None:
    starts("echo done")
    process = start_java([])
    kill_java(process)
    process.communicate()
    end = time.monotonic() + 20
    while group_lives(process.pid) and time.monotonic() < end:
        time.sleep(0.05)
    assert not group_lives(process.pid)
