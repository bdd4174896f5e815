"""Long tests of the rooms that the last commits changed.

    .venv/bin/python -m tests.changed [FOLDER ...]

prints those below the folders. ``make test`` leaves long tests out, ``make test-all`` has all of
them, and CI runs those of papers and tools that this names. A shallow clone knows fewer commits and
so names fewer.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
COMMITS = 10

# All tests of these are long; elsewhere a mark says so.
LONG_ROOMS = ("tests/papers", "tests/chaos", "tests/tools")
MARK = re.compile(r"\b(mark\.long|with_long)\b|def test_\w+\([^)]*\bbrowser\b")

# Tests of a room lie in the folder of its name below `tests`; these are tested elsewhere, too.
ALSO = {
    "papers": ("tests/papers",),
    "captioning/papers": ("tests/papers",),
    "captioning/published": ("tests/papers",),
    "configs": ("tests/contracts", "tests/papers", "tests/test_wheel.py"),
    "captioning": ("tests/test_wheel.py",),
    "pyproject.toml": ("tests/test_wheel.py",),
    "setup.py": ("tests/test_wheel.py",),
}


def changed_files(repository: Path, commits: int = COMMITS) -> list[str]:
    """Files that differ between the last commit and the one ``commits`` before it.

    Of a history that is shorter, or cut off by a shallow clone, the first commit that is there
    counts. Merges count as one commit.
    """
    names = ("rev-list", "--first-parent", f"--max-count={commits + 1}", "HEAD")
    first = _git(repository, *names).split()[-1]
    return _git(repository, "diff", "--name-only", first, "HEAD").splitlines()


def _git(repository: Path, *arguments: str) -> str:
    command = ["git", "-C", str(repository), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def rooms_of(file: str) -> Iterator[str]:
    """Folders and files of tests that hold what a file does: the folder named as the file's."""
    path = Path(file)
    if path.parts[0] == "tests":
        yield file
        return
    for room, tests in ALSO.items():
        if path.is_relative_to(room):
            yield from tests
    if len(path.parts) > 2:
        yield str(Path("tests", *path.parts[:2]))
    elif len(path.parts) == 2:
        yield str(Path("tests", path.parts[0]))


def long_files(repository: Path) -> list[Path]:
    """Files with long tests, relative to the repository."""
    found = []
    for path in sorted((repository / "tests").rglob("test_*.py")):
        relative = path.relative_to(repository)
        is_of_room = any(relative.is_relative_to(room) for room in LONG_ROOMS)
        if is_of_room or MARK.search(path.read_text(encoding="utf-8")):
            found.append(relative)
    return found


def long_tests_of(changed: Iterable[str], repository: Path) -> list[str]:
    """Files with long tests that lie in a room of these files."""
    rooms = {room for file in changed for room in rooms_of(file)}
    tests = long_files(repository)
    return [str(test) for test in tests if any(test.is_relative_to(room) for room in rooms)]


if __name__ == "__main__":
    found = long_tests_of(changed_files(REPOSITORY), REPOSITORY)
    print(*(test for test in found if test.startswith(tuple(sys.argv[1:] or [""]))))
