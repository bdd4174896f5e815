"""Memory that is freed stays with the process."""

from __future__ import annotations

import subprocess
import sys

import pytest

from captioning.runtime import cores

# Memory as tensors have it, which are of the same allocator: torch takes two seconds to import.
HEAD = """
import ctypes, random, resource
from captioning.runtime.cores import keep_freed_memory, step_ended
library = ctypes.CDLL(None)
library.malloc.restype = ctypes.c_void_p
library.malloc.argtypes, library.free.argtypes = [ctypes.c_size_t], [ctypes.c_void_p]
def filled(size):
    place = library.malloc(size)
    ctypes.memset(place, 1, size)
    return place
"""

# Takes and frees 100 MB twenty times, and prints how often the system had to hand out a page in the
# last ten; before them the heap may be moved.
PROGRAM = (
    HEAD
    + """
{call}
pages = []
for _ in range(20):
    library.free(filled(100_000_000))
    pages.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
print(pages[-1] - pages[-10])
"""
)


TUNABLE = "glibc.malloc.tcache_count=7"


def pages_taken(call: str, **environment: str) -> int:
    command = [sys.executable, "-c", PROGRAM.format(call=call)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return int(done.stdout)


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_freed_memory_is_taken_again_unless_the_user_has_said_otherwise() -> None:
    whole = 9 * 100_000_000 // 4096
    assert pages_taken("") > whole / 2
    assert pages_taken("keep_freed_memory()") < whole / 4
    assert pages_taken("keep_freed_memory()", MALLOC_TOP_PAD_="131072") > whole / 2
    assert pages_taken("keep_freed_memory()", GLIBC_TUNABLES=TUNABLE) > whole / 2


# Takes and frees blocks of differing sizes beside some that stay, and prints its memory in MB.
GROWING = (
    HEAD
    + """
keep_freed_memory()
random.seed(0)
for _ in range(20):
    taken = [filled(random.randint(1, 40) * 1_000_000) for _ in range(8)]
    filled(10_000)
    for place in taken:
        library.free(place)
    {call}
with open("/proc/self/status") as status:
    print(next(int(line.split()[1]) // 1000 for line in status if line.startswith("VmRSS")))
"""
)


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_what_no_step_needs_is_given_back() -> None:
    sizes = []
    for call in ("pass", "step_ended()"):
        command = [sys.executable, "-c", GROWING.format(call=call)]
        sizes.append(int(subprocess.check_output(command, text=True, env={})))
    assert sizes[1] < sizes[0] - 100


def test_other_c_libraries_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def library(name: object) -> object:
        asked.append(name)
        return object()  # has no mallopt

    monkeypatch.setattr(cores.ctypes, "CDLL", library)
    monkeypatch.setattr(cores.os, "environ", {})
    cores.keep_freed_memory()
    monkeypatch.setattr(cores.sys, "platform", "darwin")
    cores.keep_freed_memory()
    assert asked == [None]


@pytest.mark.parametrize(
    ("most", "settings"),
    [
        (2**31, [(-3, 2**30), (-1, -1)]),
        (2**25, [(-3, 2**30), (-3, 2**25), (-1, -1)]),
        (0, [(-3, 2**30), (-3, 2**25)]),
    ],
)
def test_older_libraries_take_smaller_tensors(
    monkeypatch: pytest.MonkeyPatch, most: int, settings: list[tuple[int, int]]
) -> None:
    asked: list[tuple[int, int]] = []

    class Library:
        @staticmethod
        def mallopt(option: int, value: int) -> int:
            asked.append((option, value))
            return int(value <= most)

    monkeypatch.setattr(cores.ctypes, "CDLL", lambda name: Library)
    monkeypatch.setattr(cores.os, "environ", {})
    monkeypatch.setattr(cores.sys, "platform", "linux")
    cores.keep_freed_memory()
    assert asked == settings
