"""Faults of the machine: each ends in a line that names a file, and the work goes on after it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image

from tests.captioning.conftest import SMALL
from tests.chaos import inside
from tests.chaos.compare import damaged, difference
from tests.chaos.nursery import Nursery
from tests.chaos.scenarios import BY_NAME, OWN, QUIET, SHARED
from tests.chaos.trial import PATIENCE

TRAIN = (
    *("train", *SMALL, QUIET, "num_epochs=2", "steps=[plant_swap20]", "run_dir={out}/run"),
    *("curation=remove", "curation.select.ratio=0.1"),
)
# Kinds of files that a training writes by itself; checkpoints and features are torch's and numpy's.
KINDS = (
    *("*/config.yaml", "*/versions.json", "*/curation.jsonl", "*/losses.npz", "*/epochs.json"),
    *("*/history.json", "*/metrics.json", "*/predictions.json", "*/report.html", "*.ckpt"),
    *("*/noise_truth.json", "*/timing.json", "*/index.json", "*/records.log", "*/features.bin"),
)
ROOM_LEFT = (0, 20_000, 100_000, 300_000, 600_000)  # bytes
LIMITS = {
    (*TRAIN, OWN): (4_000, 30_000, 200_000),
    tuple(BY_NAME["features"].command): (2_000, 8_000, 20_000),
}
MOMENTS = (10, 30, 60)  # events of a training that is stopped
DELAYS = (0, 1, 3)  # seconds


@dataclass(kw_only=True)
class Fault:
    """What a fault came to."""

    fault: str
    tries: int = 0
    told: int = 0
    seconds: float = 0.0
    words: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


class Faults:
    """Brings faults about; what is left must be whole, and the restart end as undisturbed.

    Args:
        nursery: starts the commands.
        base: folder with the shared cache.
    """

    def __init__(self, nursery: Nursery, base: Path) -> None:
        self.nursery, self.base = nursery, base
        self.work, self.log = base / "work", base / "fault.txt"
        self.out, self.reference = self.work / "out", base / "fault-reference"

    def all(self, only: str = "") -> Iterator[Fault]:
        """Each fault in turn."""
        acts: Mapping[str, Callable[[Fault], None]] = {
            "full disk, by kind of file": self.full_by_kind,
            "full disk, a small one": self.full_disk,
            "limit of file sizes": self.limited,
            "read-only folder": self.read_only,
            "clock set back": self.clock,
            "two processes in one folder": self.two_in_a_folder,
            "two processes building one cache": self.two_build_a_cache,
            "loader process killed": self.loader_killed,
            "memory runs out": self.memory,
            "photo that vanishes or is cut": self.photo,
        }
        for name, act in acts.items():
            if only in name:
                fault, begun = Fault(fault=name), time.monotonic()
                act(fault)
                fault.seconds = round(time.monotonic() - begun, 1)
                yield fault

    def full_by_kind(self, fault: Fault) -> None:
        self._undisturbed(fault, *TRAIN, OWN)
        for pattern in KINDS:
            self._empty()
            plugin, own = "tests.chaos.inside:disk_full_for_a_kind", {inside.PATTERN: pattern}
            status = self._run(*TRAIN, OWN, plugin=plugin, environment=own)
            self._told(
                fault, status, names=(pattern.rpartition("/")[2].lstrip("*"),), where=pattern
            )
            self._goes_on(fault, pattern, *TRAIN, OWN)

    def full_disk(self, fault: Fault) -> None:
        self._undisturbed(fault, *TRAIN, SHARED)
        for kept in ROOM_LEFT:
            self._empty()
            with mounted(self.out, "size=600m") as is_mounted:
                if not is_mounted:
                    fault.words.append("not tried: file systems cannot be mounted here")
                    return
                filler = self.out / "filler"
                own = {inside.FILLER: str(filler), inside.KEPT: str(kept), inside.AT: "3"}
                plugin = "tests.chaos.inside:disk_fills"
                status = self._run(*TRAIN, SHARED, plugin=plugin, environment=own)
                filler.unlink(missing_ok=True)
                self._told(fault, status, names=(str(self.out),), where=f"{kept} bytes left")
                self._goes_on(fault, f"{kept} bytes left", *TRAIN, SHARED)

    def limited(self, fault: Fault) -> None:
        """Writes fail in the midst of a file, as on a full disk or where a quota is spent."""
        for command, limits in LIMITS.items():
            self._undisturbed(fault, *command)
            for size in limits:
                self._empty()
                status, where = self._run(*command, file_size=size), f"{size} bytes a file"
                self._told(fault, status, names=(str(self.out),), where=where)
                self._goes_on(fault, where, *command)

    def read_only(self, fault: Fault) -> None:
        elsewhere = self.base / "read-only-run"
        for where, own in (
            ("the run folder", (SHARED,)),
            ("the cache", (OWN, f"run_dir={elsewhere}")),
        ):
            self._empty()
            with mounted(self.out, "ro,size=1m") as is_mounted:
                if not is_mounted:
                    fault.words.append("not tried: file systems cannot be mounted here")
                    return
                status = self._run(*TRAIN, *own)
                self._told(fault, status, names=(str(self.out),), where=where)

    def clock(self, fault: Fault) -> None:
        """A run is stopped, and goes on before it began."""
        self._undisturbed(fault, *TRAIN, SHARED)
        for at in MOMENTS:
            self._empty()
            fault.tries += 1
            pid = self._start(*TRAIN, SHARED, at=at, count=str(self.base / "count.txt"))
            self._ended(pid)
            status = self._run(*TRAIN, SHARED, plugin="tests.chaos.inside:clock_set_back")
            fault.told += status == 0
            self._goes_on(fault, f"clock set back after event {at}", *TRAIN, SHARED)

    def two_in_a_folder(self, fault: Fault) -> None:
        """The second is refused while the first trains, and has nothing to do after it."""
        self._undisturbed(fault, *TRAIN, SHARED)
        for seconds in DELAYS:
            self._empty()
            fault.tries += 1
            pids = [self._start(*TRAIN, SHARED)]
            time.sleep(seconds)
            pids.append(self._start(*TRAIN, SHARED))
            statuses = sorted(self._ended(pid) for pid in pids)
            fault.told += statuses in ([0, 1], [0, 0])
            if statuses not in ([0, 1], [0, 0]):
                fault.failures.append(f"they ended with {statuses}: {self._words()}")
            self._goes_on(fault, f"two at once, {seconds} s apart", *TRAIN, SHARED)

    def two_build_a_cache(self, fault: Fault) -> None:
        """Two runs of other folders with an empty cache."""
        runs = [(*TRAIN, OWN), (*TRAIN, OWN, "run_dir={out}/other")]
        self._undisturbed(fault, *runs[0])
        self._empty()
        fault.tries += 1
        pids = [self._start(*arguments) for arguments in runs]
        statuses = [self._ended(pid) for pid in pids]
        fault.told += statuses == [0, 0]
        if statuses != [0, 0]:
            fault.failures.append(f"they ended with {statuses}: {self._words()}")
        # How records were committed together is another matter; what was trained on them is not.
        for name in ("cache", "other"):
            shutil.rmtree(self.out / name, ignore_errors=True)
            shutil.rmtree(self.reference / name, ignore_errors=True)
        self._compare(fault, "two at once")

    def loader_killed(self, fault: Fault) -> None:
        workers = (*TRAIN, SHARED, "loader.num_workers=2")
        self._undisturbed(fault, *workers)
        self._empty()
        plugin = "tests.chaos.inside:loader_process_killed"
        status = self._run(*workers, plugin=plugin, environment={inside.AT: "7"})
        self._told(fault, status, names=("worker",), where="a loader process")
        self._goes_on(fault, "loader process killed", *workers)

    def memory(self, fault: Fault) -> None:
        """The system kills a training whose group of processes may take no more memory."""
        workers = (*TRAIN, SHARED, "loader.num_workers=2")
        self._undisturbed(fault, *workers)
        for at in (2, 5, 9):
            self._empty()
            with memory_group(2**26) as group:
                if group is None:
                    fault.words.append("not tried: groups of memory cannot be made here")
                    return
                own = {inside.AT: str(at), inside.GROUP: str(group)}
                plugin = "tests.chaos.inside:memory_runs_out"
                status = self._run(*workers, plugin=plugin, environment=own)
            fault.tries += 1
            fault.told += status == -signal.SIGKILL
            if status != -signal.SIGKILL:
                fault.failures.append(f"it ended with {status}: {self._words()}")
            fault.failures += [f"update {at}: half-written: {text}" for text in damaged(self.out)]
            self._goes_on(fault, f"memory ran out in update {at}", *workers)

    def photo(self, fault: Fault) -> None:
        """Photos are read in every epoch, as the backbone is trained."""
        data = self.base / "photos"
        photos = own_photos(data)
        command = (
            *("train", *SMALL, QUIET, "data=jsonl", f"data.root={data}", "features=none"),
            *("features.backbone.name=test_resnet.r160_in1k", "features.backbone.weights=random"),
            *("features.backbone.image_size=64", "num_epochs=2", "loader.batch_size=4"),
            *(SHARED, "run_dir={out}/run"),
        )
        self._undisturbed(fault, *command)
        for name in ("photo_vanishes", "photo_is_cut"):
            self._empty()
            kept = photos[0].read_bytes()
            own = {inside.PHOTO: str(photos[0]), inside.AT: "2"}
            status = self._run(*command, plugin=f"tests.chaos.inside:{name}", environment=own)
            self._told(fault, status, names=(photos[0].name,), where=name)
            photos[0].unlink(missing_ok=True)
            photos[0].write_bytes(kept)
            self._goes_on(fault, name, *command)

    def _undisturbed(self, fault: Fault, *arguments: str) -> None:
        self._empty()
        if (status := self._run(*arguments)) != 0:
            fault.failures.append(f"undisturbed it ended with {status}: {self._words()}")
        shutil.rmtree(self.reference, ignore_errors=True)
        shutil.copytree(self.out, self.reference)

    def _told(self, fault: Fault, status: int, *, names: Sequence[str], where: str) -> None:
        """The command ended with status 1 and a line that names something."""
        fault.tries += 1
        words = self._words()
        if "Traceback" in self.log.read_text(errors="replace"):
            fault.failures.append(f"{where}: a traceback: {words[-160:]}")
        elif status != 1 or not any(name in words for name in names):
            fault.failures.append(f"{where}: status {status}, no name of {names}: {words[-160:]}")
        else:
            fault.told += 1
        fault.failures += [f"{where}: half-written: {text}" for text in damaged(self.out)]

    def _goes_on(self, fault: Fault, where: str, *arguments: str) -> None:
        if (status := self._run(*arguments)) != 0:
            fault.failures.append(f"{where}: restarted, it ended with {status}: {self._words()}")
            return
        self._compare(fault, where)

    def _compare(self, fault: Fault, where: str) -> None:
        if differs := difference(self.reference, self.out):
            fault.failures.append(f"{where}: other bits than undisturbed: {differs}")

    def _run(self, *arguments: str, **options: Any) -> int:
        return self._ended(self._start(*arguments, **options))

    def _ended(self, pid: int) -> int:
        """The status; -9 where it did not end by itself."""
        if (status := self.nursery.wait(pid, PATIENCE)) is None:
            os.kill(pid, signal.SIGKILL)
            return -signal.SIGKILL
        return status

    def _start(self, *arguments: str, **options: Any) -> int:
        plain = [
            a.replace("{out}", str(self.out)).replace("{base}", str(self.base)) for a in arguments
        ]
        return self.nursery.start(plain, log=self.log, folder=self.work, **options)

    def _words(self) -> str:
        return " | ".join(self.log.read_text(errors="replace").strip().splitlines()[-4:])

    def _empty(self) -> None:
        self.log.unlink(missing_ok=True)
        shutil.rmtree(self.work, ignore_errors=True)
        self.out.mkdir(parents=True)


@contextlib.contextmanager
def mounted(folder: Path, options: str) -> Iterator[bool]:
    """A file system in memory at a folder; yields whether it could be mounted."""
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, check=False)
    try:
        yield done.returncode == 0
    finally:
        if done.returncode == 0:
            subprocess.run(["umount", "-l", folder], check=True)


@contextlib.contextmanager
def memory_group(size: int) -> Iterator[Path | None]:
    """A group of processes with so many bytes of memory; yields None where none can be made."""
    root = Path("/sys/fs/cgroup")
    parent = root / "memory" if (root / "memory").is_dir() else root
    group = parent / f"chaos-{os.getpid()}"
    try:
        group.mkdir()
        limit = "memory.max" if parent == root else "memory.limit_in_bytes"
        (group / limit).write_text(str(size))
    except OSError:
        group = None
    try:
        yield group
    finally:
        if group is not None:
            with contextlib.suppress(OSError):  # a process is still ending
                group.rmdir()


def own_photos(folder: Path) -> list[Path]:
    """Data of one's own: a few photos with two captions each."""
    (folder / "images").mkdir(parents=True, exist_ok=True)
    photos = []
    for number in range(6):
        path = folder / "images" / f"{number}.png"
        Image.new("RGB", (40, 30), (40 * number, 90, 200 - 30 * number)).save(path)
        photos.append(path)
    lines = [
        json.dumps({"image": path.name, "captions": [f"a dog {n}", f"cats and a dog {n}"]}) + "\n"
        for n, path in enumerate(photos)
    ]
    for split in ("train", "val", "test"):
        (folder / f"{split}.jsonl").write_text("".join(lines))
    return photos
