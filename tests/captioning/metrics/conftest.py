"""Stand-ins for Java: a script that answers as it is told, or none at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from captioning.metrics import java, meteor

VERSION = 'case "$*" in -version) echo \'openjdk version "17.0.1"\' >&2; exit 0;; esac\n'


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine without Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nonexistent")
    java.find_java.cache_clear()
    yield
    java.find_java.cache_clear()


@pytest.fixture
def fake_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[str], None]]:
    """Install a shell script as Java 17; called with what it does after ``-version``.

    A real METEOR that runs is set aside for later tests: its start takes more than most tests do.
    """
    monkeypatch.setattr(meteor, "_alive", [])
    monkeypatch.setattr(java, "_running", set())

    def install(script: str) -> None:
        command = tmp_path / "jdk" / "bin" / "java"
        command.parent.mkdir(parents=True, exist_ok=True)
        command.write_text("#!/bin/sh\n" + VERSION + script)
        command.chmod(0o755)
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
        java.find_java.cache_clear()

    yield install
    meteor.close_meteor()
    java.find_java.cache_clear()


@pytest.fixture(scope="session")
def real_java() -> str:
    """Version of this machine's Java; the test is skipped where there is none."""
    java.find_java.cache_clear()
    try:
        return java.find_java()[1]
    except java.JavaError as error:
        pytest.skip(f"needs Java: {error}")
