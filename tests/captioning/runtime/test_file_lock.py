"""Locks: who holds them, and file systems on which they are weak or missing."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from filelock import FileLock

from captioning.runtime.file_lock import held, lock_weakness, locked

MOUNTS = """\
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
30 27 0:25 / /users rw,relatime shared:3 - nfs4 server:/export rw,vers=4.2,local_lock=none
31 27 0:26 / /users/old\\040data rw - nfs server:/old rw,vers=3,nolock,local_lock=all
32 27 0:27 / /scratch rw - lustre server:/scratch rw,localflock
33 27 0:28 / /fast rw - lustre server:/fast rw,flock
"""


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/data/run", ""),
        ("/users/me/run", ""),
        ("/users/old data/run", "/users/old data is nfs with local_lock=all"),
        ("/scratch/me", "/scratch is lustre with localflock"),
        ("/fast/me", ""),
    ],
)
def test_file_systems_whose_locks_other_machines_do_not_see(
    tmp_path: Path, path: str, expected: str
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    weakness = lock_weakness(Path(path), mounts=mounts)
    assert weakness.startswith(expected)
    assert bool(weakness) == bool(expected)


def test_where_the_kernel_lists_no_mounts_nothing_is_known(tmp_path: Path) -> None:
    assert lock_weakness(tmp_path, mounts=tmp_path / "none") == ""


def test_a_second_program_is_refused_and_told_the_first(tmp_path: Path) -> None:
    lock, warnings = tmp_path / "lock", []
    settings = {"subject": "run_dir=x", "warn": warnings.append, "seconds": 0.05}
    refusal = rf"run_dir=x is in use by process {os.getpid()} on \S+: wait for it"
    with held(lock, **settings), pytest.raises(ValueError, match=refusal):  # noqa: SIM117
        with held(lock, **settings):
            pytest.fail("held twice")
    with held(lock, **settings):
        assert warnings == []


def test_a_missing_lock_is_warned_of_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: FileLock, *_: object, **__: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(FileLock, "acquire", fail)
    warnings: list[str] = []
    with held(tmp_path / "lock", subject="run_dir=x", warn=warnings.append, seconds=0):
        pass
    assert warnings == [f"{tmp_path}: this file system has no locks; do not start run_dir=x twice"]
    with pytest.raises(OSError, match="has no locks; put the cache on a local disk"):  # noqa: SIM117
        with locked(tmp_path / "lock", subject="features", notify=warnings.append):
            pytest.fail("locked without locks")
