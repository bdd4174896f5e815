from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from captioning.metrics.java import JavaError, find_java, java_major, run_java
from captioning.metrics.meteor import score_meteor
from captioning.metrics.tokenizer import tokenize_ptb

Install = Callable[[str], None]


@pytest.mark.parametrize(
    ("version", "major"), [("1.8.0_402", 8), ("17.0.15", 17), ("21", 21), ("11.0.2+9", 11)]
)
def test_major_version(version: str, major: int) -> None:
    assert java_major(version) == major


def test_absent_java_is_named_with_the_install_line(no_java: None) -> None:
    with pytest.raises(JavaError, match="apt-get install default-jre-headless"):
        find_java()


def test_broken_java_is_not_taken_for_java(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fake_java: Install
) -> None:
    fake_java("exit 0")
    (tmp_path / "jdk" / "bin" / "java").write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(JavaError, match="not a working Java"):
        find_java()


def test_text_goes_in_and_comes_out(fake_java: Install) -> None:
    fake_java("cat")
    assert find_java()[1] == "17.0.1"
    assert run_java([], name="cat", timeout=20, text="café\n") == "café\n"


def test_hung_java_is_killed_and_named(fake_java: Install) -> None:
    fake_java("exec sleep 60")
    start = time.monotonic()
    with pytest.raises(JavaError, match="SPICE.*killed after 1 s"):
        run_java([], name="SPICE", timeout=1)
    assert time.monotonic() - start < 20


def test_crashed_java_is_named_with_its_message(fake_java: Install) -> None:
    fake_java("echo OutOfMemoryError >&2; exit 3")
    with pytest.raises(JavaError, match="status 3: OutOfMemoryError"):
        run_java([], name="SPICE", timeout=20)


def test_hung_meteor_is_killed_and_named(fake_java: Install) -> None:
    fake_java("exec sleep 60")
    start = time.monotonic()
    with pytest.raises(JavaError, match="METEOR.*killed after 1 s"):
        score_meteor(["a dog"], [["a dog"]], timeout=1)
    assert time.monotonic() - start < 20


@pytest.mark.parametrize("num_images", [1, 50_000])
def test_crashed_meteor_is_named_with_its_message(fake_java: Install, num_images: int) -> None:
    # with many images the writer is still busy when the process dies
    fake_java("read line; echo no memory >&2; exit 1")
    with pytest.raises(JavaError, match="METEOR.*ended early.*no memory"):
        score_meteor(["a dog"] * num_images, [["a dog"]] * num_images, timeout=60)


def test_meteor_that_answers_nonsense_is_named(fake_java: Install) -> None:
    fake_java("while read line; do echo nonsense; done")
    with pytest.raises(JavaError, match="METEOR.*nonsense"):
        score_meteor(["a dog"], [["a dog"]], timeout=60)


def test_ptb_tokenizer_that_loses_a_line_is_named(fake_java: Install) -> None:
    fake_java("echo only one line")
    with pytest.raises(JavaError, match="returned 1 lines for 2 captions"):
        tokenize_ptb(["a dog", "a cat"])
