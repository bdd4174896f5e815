"""Which long tests run beside `make test`, by what the last commits changed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.changed import LONG_ROOMS, changed_files, long_files, long_tests_of


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """A repository with a commit for each of four files."""
    git(tmp_path, "init")
    for name in ("a", "b", "c", "d"):
        (tmp_path / name).write_text(name)
        git(tmp_path, "add", name)
        git(tmp_path, "commit", "-m", f"Add {name}")
    return tmp_path


def git(folder: Path, *command: str) -> None:
    author = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", str(folder), *author, *command], check=True, capture_output=True)


def test_files_of_the_last_commits(history: Path) -> None:
    assert changed_files(history, commits=2) == ["c", "d"]
    assert changed_files(history, commits=20) == ["b", "c", "d"]


def test_a_shallow_clone_has_its_commits(history: Path, tmp_path: Path) -> None:
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "--depth", "2", history.as_uri(), str(shallow))
    assert changed_files(shallow) == ["d"]


def test_long_tests_lie_in_the_room_of_a_change(tmp_path: Path) -> None:
    texts = {
        "tests/papers/test_tables.py": "",
        "tests/tools/studies/test_words.py": "",
        "tests/captioning/training/test_runs.py": "@pytest.mark.long\ndef test_one(): ...",
        "tests/captioning/training/test_steps.py": "def test_long(): ...",
        "tests/curation/test_page.py": "def test_page(\n    tmp_path, browser\n): ...",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    tables, words, runs, _, page = texts
    for change, tests in {
        "papers/toca/paper.yaml": [tables],
        "captioning/published/viecap.yaml": [tables],
        "tools/studies/study_words.py": [words],
        "captioning/training/run.py": [runs],
        "captioning/types.py": [runs],
        "captioning/vision/photos.py": [],
        "curation/review/page.py": [],
        "curation/base.py": [page],
        runs: [runs],
        "README.md": [],
    }.items():
        assert long_tests_of([change], tmp_path) == tests, change


def test_rooms_of_long_tests_are_there(repository: Path) -> None:
    found = long_files(repository)
    for room in LONG_ROOMS:
        assert any(test.is_relative_to(room) for test in found), room
    assert Path("tests/contracts/test_curation.py") in found
