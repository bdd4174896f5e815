"""Train with curation on MiniWorld for hours, and record memory, open files and disk use.

``python benchmarks/soak.py --hours 6`` starts the training as a program of its own, again with
another seed where one ends, and samples it: memory, open files, threads, processes, the size of
the run folder and of its logs, epochs and steps. The record is a JSON Lines file that grows by a
line a sample; the plot beside it is drawn at the end. It fails if memory grows (see `growth`).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from captioning.results.versions import versions
from captioning.runtime.files import write_atomically

PAGE = os.sysconf("SC_PAGE_SIZE")
MIB = 2**20
TRAIN = (
    *("data=miniworld", "model=updown_small", "curation=remove", "curation.select.ratio=0.002"),
    *("steps=[plant_swap20]", "monitor=last", "metrics.test=[BLEU]", "metrics.tokenizer=python"),
    *("num_epochs=300", "trainer.enable_progress_bar=false"),
)
KEYS = ("rss", "files", "threads", "processes", "folder", "logs")


def processes_of(pid: int) -> list[int]:
    """A process and all its descendants."""
    found = [pid]
    for number in found:
        for task in Path(f"/proc/{number}/task").glob("*/children"):
            found += map(int, task.read_text().split())
    return found


def measured(pid: int, folder: Path) -> dict[str, int]:
    """Resident bytes, open files, threads, processes, and bytes of the folder's files."""
    sample = dict.fromkeys(KEYS, 0)
    for number in processes_of(pid):
        place = Path(f"/proc/{number}")
        try:
            sample["rss"] += int((place / "statm").read_text().split()[1]) * PAGE
            sample["files"] += len(list((place / "fd").iterdir()))
            sample["threads"] += len(list((place / "task").iterdir()))
        except OSError:  # it has ended
            continue
        sample["processes"] += 1
    for path in folder.rglob("*"):
        if path.is_file():
            size = path.stat().st_size
            sample["folder"] += size
            sample["logs"] += size * ("logs" in path.parts)
    return sample


def progress(folder: Path) -> dict[str, int]:
    """Finished epochs and steps of all runs in a folder."""
    paths = sorted(folder.glob("*/timing.json"))
    epochs = [epoch for path in paths for epoch in json.loads(path.read_text())["epochs"]]
    return {"epochs": len(epochs), "steps": sum(epoch["updates"] for epoch in epochs)}


def growth(samples: Sequence[Mapping[str, Any]], key: str) -> float:
    """Mean of the last quarter divided by that of the second; the first quarter warms up."""
    values = [sample[key] for sample in samples]
    quarter = max(1, len(values) // 4)
    early, late = values[quarter : 2 * quarter] or values, values[-quarter:]
    return (sum(late) / len(late)) / max(1e-9, sum(early) / len(early))


def soak(folder: Path, *, hours: float, every: float, options: Sequence[str]) -> Iterator[dict]:
    """Measurements of consecutive trainings, until the time is over."""
    begun, seed = time.monotonic(), 0
    while (time.monotonic() - begun) / 3600 < hours:
        run = folder / f"seed{seed}"
        command = [sys.executable, "-m", "captioning", "train", *TRAIN, *options]
        command += [f"seed={seed}", f"run_dir={run}", f"paths.cache={folder / 'cache'}"]
        with (folder / "output.txt").open("a") as output:
            program = subprocess.Popen(command, stdout=output, stderr=output)
            while program.poll() is None and (time.monotonic() - begun) / 3600 < hours:
                time.sleep(every)
                seconds = round(time.monotonic() - begun)
                sample = {"seconds": seconds, "seed": seed, **progress(folder)}
                yield sample | measured(program.pid, run)
            if program.poll() is None:
                program.terminate()  # it saves what it has
                program.wait(1800)  # on a busy machine
            elif program.returncode:
                raise RuntimeError(f"training ended with {program.returncode}: {output.name}")
        seed += 1


def plot(samples: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Plot the measurements over time, one panel for each quantity."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(len(KEYS), 1, sharex=True, figsize=(7, 9), layout="constrained")
    hours = [sample["seconds"] / 3600 for sample in samples]
    for key, panel in zip(KEYS, panels, strict=True):
        is_bytes = key in ("rss", "folder", "logs")
        panel.plot(hours, [sample[key] / (MIB if is_bytes else 1) for sample in samples])
        panel.set_ylabel(f"{key} (MiB)" if is_bytes else key)
        panel.set_ylim(bottom=0)
    panels[-1].set_xlabel("hours")
    write_atomically(path, lambda part: figure.savefig(part, dpi=100))
    plt.close(figure)


def main() -> int:
    """Return 1 if memory, files or threads grew by more than 5 per cent."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=6.0)
    parser.add_argument("--every", type=float, default=30.0, help="seconds between two samples")
    parser.add_argument("--record", type=Path, default=Path("docs/results/records/soak.jsonl"))
    parser.add_argument("--plot", type=Path, default=Path("docs/images/soak.png"))
    parser.add_argument("options", nargs="*", help="further settings of the training")
    arguments = parser.parse_intermixed_args()
    facts = versions()
    about = {key: facts[key] for key in ("commit", "machine", "date", "python", "torch")}
    command = ["python benchmarks/soak.py --hours", str(arguments.hours), *arguments.options]
    about["command"] = " ".join(command)
    folder, samples = Path(tempfile.mkdtemp(prefix="soak")), []
    arguments.record.parent.mkdir(parents=True, exist_ok=True)
    try:
        timing = {"hours": arguments.hours, "every": arguments.every}
        with arguments.record.open("w", encoding="utf-8") as record:
            for sample in soak(folder, **timing, options=arguments.options):
                samples.append(sample)
                record.write(json.dumps({"suite": "soak", **sample, **about}) + "\n")
                record.flush()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    plot(samples, arguments.plot)
    grown = {key: growth(samples, key) for key in ("rss", "files", "threads")}
    print(", ".join(f"{key} x {value:.3f}" for key, value in grown.items()))
    return int(max(grown.values()) > 1.05)


if __name__ == "__main__":
    sys.exit(main())
