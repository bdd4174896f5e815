"""Benchmark ``captioning check`` against an earlier version, cleanvision, and on large sets.

    python benchmarks/bench_check.py FLICKR8K [--photos 1500] [--before CHECKOUT]
        [--cleanvision PYTHON] [--copies 20000] [--full-copies 3000] [--rounds 1]

FLICKR8K holds ``Flickr8k.token.txt`` and ``images``; the first photos by name are copied. Every run
is a process of its own on one thread, builds in turns, and its processor time is what the kernel
counts for it, so other work on the machine changes it little. ``--before`` is a clone of this
repository at another commit; ``--cleanvision`` the Python of an environment that has it. Files of
copied photos differ behind the picture, and their captions in a number. A line of JSON a
measurement.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CLEANVISION = """
import sys
from cleanvision import Imagelab
if __name__ == "__main__":
    Imagelab(data_path=sys.argv[1]).find_issues(n_jobs=1)
"""
COMPARED = ("fit", "wrong_photo", "shifted", "duplicate_photo", "blank_photo", "too_long")
WITHOUT_SPACE = ("--space", "none", "--skip", "wrong_word")


def main() -> None:
    """Run the measurement that the command line requests."""
    parser = argparse.ArgumentParser(description="Benchmark of captioning check.")
    parser.add_argument("flickr8k", type=Path)
    parser.add_argument("--photos", type=int, default=1500)
    parser.add_argument("--before", type=Path, help="clone of an earlier commit")
    parser.add_argument("--cleanvision", help="Python of an environment with cleanvision")
    parser.add_argument("--copies", type=int, help="photos to check without embeddings")
    parser.add_argument("--full-copies", type=int, help="photos to check with all checks")
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    from captioning.results.versions import versions

    names = {k: str(v) for k, v in vars(options).items() if v is not None and k != "flickr8k"}
    say({"options": names, **versions(), "threads": 1, "seed": 0})
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        data = small_set(options.flickr8k, place / "set", options.photos)
        for number in range(options.rounds):
            beside(data, place / f"round{number}", options.before, options.cleanvision)
        for number, extra in ((options.copies, WITHOUT_SPACE), (options.full_copies, ())):
            if number:
                large(data, place, number, extra)


def beside(data: Path, place: Path, before: Path | None, cleanvision: str | None) -> None:
    """Time several checkouts on one dataset in turn."""
    builds = {"before": before, "now": ROOT} if before else {"now": ROOT}
    seconds: dict[tuple[str, str], dict[str, float]] = {}
    for name, cache, extra in (
        ("cold", "a", ()),
        ("warm", "a", ()),
        ("photos", "b", WITHOUT_SPACE),
    ):
        for build, root in builds.items():
            out = place / f"{name}-{build}"
            cost = checked(data, out, place / f"{cache}-{build}", root, extra)
            seconds[name, build] = cost
            say({"run": name, "build": build, "commit": commit(root), **cost})
    if cleanvision:
        script = place / "clean.py"
        script.write_text(CLEANVISION)
        cost = measured([cleanvision, str(script), str(data / "images")], {})
        say({"run": "cleanvision", **cost})
        spent = seconds["photos", "now"]["processor_s"] / cost["processor_s"]
        say({"ratio": "photo checks to cleanvision", "processor_s": round(spent, 2)})
    if before:
        for name, to in (("cold", "cold"), ("warm", "cold"), ("photos", "photos")):
            now, then = seconds[name, "now"], seconds[to, "before"]
            shares = {key: round(now[key] / then[key], 2) for key in ("processor_s", "wall_s")}
            say({"ratio": f"{name} to {to} of before", **shares})
        say(difference(place / "cold-before", place / "cold-now"))


def large(data: Path, place: Path, number: int, extra: tuple[str, ...]) -> None:
    """Time a dataset of copies and one of a tenth the size, for the cost per photo."""
    each = []
    for part in (number // 10, number):
        copies = place / f"copies{part}"
        copied(data, copies, part)
        cost = checked(copies, place / f"out{part}", place / f"cache{part}", ROOT, extra)
        each.append(cost["processor_s"] / part)
        say({"run": "copies", "photos": part, "options": " ".join(extra), **cost})
        shutil.rmtree(copies)
    say({"ratio": "a photo of all to one of a tenth", "processor_s": round(each[1] / each[0], 2)})


def checked(
    data: Path, out: Path, cache: Path, root: Path, extra: tuple[str, ...]
) -> dict[str, float]:
    """Measure the cost of a check with the checkout in ``root``."""
    command = [sys.executable, "-m", "captioning", "check", str(data), "--out", str(out)]
    known = subprocess.run(
        [*command[:4], "--help"], env=environment(root), capture_output=True, text=True, check=True
    )
    skipped = [word for word in extra if word.startswith("--") and word not in known.stdout]
    if skipped:
        raise SystemExit(f"{root}: this build has no option {skipped[0]}")
    return measured([*command, "--cache", str(cache), *extra], environment(root))


def environment(root: Path) -> dict[str, str]:
    """Environment variables to run the checkout in ``root`` on one thread."""
    return {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": ""}


def measured(command: list[str], variables: Mapping[str, str]) -> dict[str, float]:
    """CPU and wall seconds, and peak memory, of a command that must succeed."""
    start = time.monotonic()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command,
            env={**os.environ, **variables},
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=tempfile.gettempdir(),
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            output.seek(0)
            raise SystemExit(f"{command}: {output.read().decode(errors='replace')[-2000:]}")
    return {
        "processor_s": round(usage.ru_utime + usage.ru_stime, 1),
        "wall_s": round(time.monotonic() - start, 1),
        "memory_mib": round(usage.ru_maxrss / 1024),
    }


def difference(before: Path, now: Path) -> dict[str, Any]:
    """Compare two tables: agreement of flags by check, and the largest difference of values."""
    first, second = (list(rows(folder / "issues.csv")) for folder in (before, now))
    pairs = list(zip(first, second, strict=True))
    if any(one["caption"] != other["caption"] for one, other in pairs):
        raise SystemExit("the tables hold captions in different orders")
    largest = {
        name: max(
            (abs(float(a[name]) - float(b[name])) for a, b in pairs if a[name] and b[name]),
            default=0.0,
        )
        for name in COMPARED
        if name in first[0] and name in second[0]
    }
    names = sorted({name for row in (*first, *second) for name in row["issues"].split()})
    flags = {
        name: [
            sum(name in one["issues"] for one, _ in pairs),
            sum(name in other["issues"] for _, other in pairs),
            sum(name in one["issues"] and name in other["issues"] for one, other in pairs),
        ]
        for name in names
    }
    return {"largest_difference": largest, "flags_before_now_both": flags}


def rows(file: Path) -> Iterator[dict[str, str]]:
    """Read the rows of a result table."""
    with file.open(encoding="utf-8", newline="") as lines:
        yield from csv.DictReader(lines)


def small_set(flickr8k: Path, place: Path, number: int) -> Path:
    """The first photos of a dataset with their captions."""
    captions: dict[str, list[str]] = {}
    for line in (flickr8k / "Flickr8k.token.txt").read_text(encoding="utf-8").splitlines():
        captions.setdefault(line.partition("#")[0], []).append(line)
    present = (name for name in sorted(captions) if (flickr8k / "images" / name).is_file())
    names = list(islice(present, number))
    (place / "images").mkdir(parents=True)
    for name in names:
        shutil.copy(flickr8k / "images" / name, place / "images" / name)
    lines = [line for name in names for line in captions[name]]
    (place / "captions.token.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return place


def copied(data: Path, place: Path, number: int) -> None:
    """Repeat photos and captions with unique files and texts."""
    (place / "images").mkdir(parents=True)
    captions: dict[str, list[str]] = {}
    for line in (data / "captions.token.txt").read_text(encoding="utf-8").splitlines():
        name, _, text = line.partition("#")
        captions.setdefault(name, []).append(text)
    lines = []
    for place_of, name in islice(enumerate(endless(list(captions))), number):
        again = place_of // len(captions)
        content = (data / "images" / name).read_bytes() + b"%d" % again  # behind the picture
        (place / "images" / f"{again}_{name}").write_bytes(content)
        ending = f" {again}" if again else ""
        lines += [f"{again}_{name}#{text}{ending}" for text in captions[name]]
    (place / "captions.token.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def endless(names: list[str]) -> Iterator[str]:
    """Yield the names in an endless loop."""
    while True:
        yield from names


def commit(root: Path) -> str:
    """Commit of a checkout."""
    command = ["git", "-C", str(root), "rev-parse", "--short=8", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def say(line: Mapping[str, Any]) -> None:
    """Print a line of the log."""
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
