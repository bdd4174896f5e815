"""Benchmark the export of datasets against ``cp -r`` of the same photos: time and memory.

python benchmarks/bench_export.py [PHOTOS] [--number 20000] [--rounds 3] [--before CHECKOUT]

PHOTOS is a folder of JPEG files, copied until there are ``--number``; without it 2,000 of noise,
224 pixels wide, are drawn. Rounds go in turn through ``cp -r``, each format of this checkout, and
each of ``--before``, the checkout of another commit. Each writes with its photos in the page cache
and ends with ``sync``, which is timed too. An export is a process of its own, timed without its
start. A line of JSON a measurement, then medians, and their ratio to that of ``cp -r``. ``cpu_s``
are seconds of processor, which other work on the machine changes less. ``peak_mb`` is of the whole
process, with torch and what else is imported; ``own_mb`` without pages of files, as libraries are.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from bench_packed_photos import draw_photos

ROOT = Path(__file__).parents[1]
CAPTION = "A dog, number {}, runs over the grass."


def main() -> None:
    """Print all measurements."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("photos", nargs="?")
    add("--number", type=int, default=20_000)
    add("--rounds", type=int, default=3)
    add("--formats", nargs="+", default=["webdataset", "parquet"])
    add("--before", metavar="CHECKOUT")
    add("--write", nargs=2, metavar=("FORMAT", "FOLDER"), help="export once, in this process")
    options = parser.parse_args()
    if options.write:
        print(json.dumps(written(Path(options.photos), *options.write)))
        return
    with tempfile.TemporaryDirectory() as name:
        photos = copied(options, Path(name))
        measure(options, photos, Path(name) / "out")


def copied(options: argparse.Namespace, root: Path) -> Path:
    """Create a folder with the requested number of photos."""
    folder, source = root / "photos", root / "drawn"
    folder.mkdir()
    source.mkdir()
    files = sorted(Path(options.photos).rglob("*.jpg")) if options.photos else draw_photos(source)
    for number in range(options.number):
        shutil.copyfile(files[number % len(files)], folder / f"{number:06d}.jpg")
    size = sum(path.stat().st_size for path in folder.iterdir())
    head = {"photos": options.number, "mib": round(size / 2**20), "commit": commit(ROOT)}
    print(json.dumps(head | {"cores": os.cpu_count(), "python": sys.version.split()[0]}))
    return folder


def measure(options: argparse.Namespace, photos: Path, out: Path) -> None:
    """Measure each export in turn."""
    builds = {"": ROOT} if options.before is None else {"": ROOT, " before": Path(options.before)}
    found: dict[str, list[dict[str, float]]] = {}
    for _ in range(options.rounds):
        ways = {"cp -r": lambda: copy(photos, out)}
        for end, root in builds.items():
            for format in options.formats:
                ways[format + end] = lambda f=format, r=root: child(photos, out, f, r)
        for name, way in ways.items():
            os.sync()
            result = way()
            shutil.rmtree(out)
            found.setdefault(name, []).append(result)
            print(json.dumps({"way": name, **result}), flush=True)
    base = statistics.median(one["seconds"] for one in found["cp -r"])
    for name, results in found.items():
        seconds = statistics.median(one["seconds"] for one in results)
        cpu = statistics.median(one["cpu_s"] for one in results)
        line = {"way": name, "median_s": round(seconds, 2), "of_cp": round(seconds / base, 2)}
        peaks = {k: round(max(one.get(k, 0) for one in results)) for k in ("peak_mb", "own_mb")}
        print(json.dumps(line | {"median_cpu_s": round(cpu, 2)} | peaks))


def copy(photos: Path, out: Path) -> dict[str, float]:
    """Seconds to copy the photos with ``cp -r``, as a lower bound."""
    start, used = time.perf_counter(), os.times()
    subprocess.run(["cp", "-r", str(photos), str(out)], check=True)
    now = os.times()
    cpu = now.children_user + now.children_system - used.children_user - used.children_system
    return synced(start, cpu)


def synced(start: float, cpu: float) -> dict[str, float]:
    """Seconds since a start time, before and after flushing writes to disk."""
    seconds = time.perf_counter() - start
    os.sync()
    whole = time.perf_counter() - start
    return {"seconds": round(seconds, 3), "with_sync": round(whole, 3), "cpu_s": round(cpu, 3)}


def child(photos: Path, out: Path, format: str, root: Path) -> dict[str, float]:
    """Seconds and memory of an export with the code of a checkout."""
    command = [sys.executable, __file__, str(photos), "--write", format, str(out)]
    places = os.pathsep.join([str(root), str(Path(__file__).parent)])
    result = subprocess.run(
        command, check=True, capture_output=True, text=True, cwd=root,
        env=os.environ | {"PYTHONPATH": places},
    )  # fmt: skip
    return json.loads(result.stdout.splitlines()[-1])


def written(photos: Path, format: str, out: str) -> dict[str, float]:
    """Export a dataset of photos with one caption each."""
    from captioning.data.roster import CurationView, build_roster
    from captioning.types import Sample
    from curation.export.export import export
    from curation.record import RunRecord

    samples = samples_of(sorted(photos.iterdir()), Sample)
    record = RunRecord(policy="none", seed=0, view=CurationView(roster=build_roster("x", samples)))
    if format in ("parquet", "datasets"):
        import pyarrow.parquet  # noqa: F401
    peaks = [own_mb()]
    done = threading.Event()
    watch = threading.Thread(target=lambda: watched(peaks, done))
    watch.start()
    start, used = time.perf_counter(), time.process_time()
    export(record, None, Path(out), format=format, photos="copy")
    results = synced(start, time.process_time() - used)
    done.set()
    watch.join()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    return {**results, "peak_mb": peak, "own_mb": max(peaks), "own_before_mb": peaks[0]}


def own_mb() -> float:
    """Memory of this process in MB without file pages."""
    resident, shared = Path("/proc/self/statm").read_text().split()[1:3]
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGESIZE") / 1e6


def watched(peaks: list[float], done: threading.Event) -> None:
    """Sample the memory fifty times per second."""
    while not done.wait(0.02):
        peaks.append(own_mb())


def samples_of(paths: Sequence[Path], make: type) -> list:
    """One sample for each photo."""
    return [
        make(
            row=row,
            sample_id=f"{path.name}#0",
            image_id=path.name,
            image_path=path,
            caption=CAPTION.format(row),
        )
        for row, path in enumerate(paths)
    ]


def commit(root: Path) -> str:
    """Commit of a checkout."""
    command = ["git", "-C", str(root), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    main()
