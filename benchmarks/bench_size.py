"""Measure start, resuming, end of epoch and memory of runs on 10,000 to 3.3 million captions.

python benchmarks/bench_size.py [measure] [--captions 10000 100000] [--kind features text]
    [--record FILE] [--folder FOLDER]
    Draws annotations (and narrow features) of each size, starts ``captioning train`` on them three
    times, and appends a line a run to a file of JSON Lines: "cold" with an empty cache, killed in
    the first step of the second epoch; "resumed"; "warm" in a new run folder, killed in its first
    step. An epoch has 20 steps; the losses of all other captions are drawn before its end.
    "features" is UpDown on a file in Karpathy's format, "text" ViECap on captions alone, whose
    entities are parsed and whose embeddings are drawn when it starts.

python benchmarks/bench_size.py plot --record FILE [--figure docs/images/size.png]
    Draws the record's curves.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from size_data import write_features, write_karpathy, write_lines

ROOT = Path(__file__).resolve().parent.parent
COMMON = [
    "num_epochs=2",
    "curation=replace_caption",
    "curation.select.ratio=0.05",
    "plugins=[size_marks,size_sentences]",
    "+callbacks.marks._target_=size_marks.Marks",
    "+trainer.limit_train_batches=20",
    "trainer.enable_progress_bar=false",
    "logger=[csv]",
]
KINDS = {
    "features": ["data=coco_karpathy", "features=bottom_up", "model=updown_micro"],
    "text": [
        "data=miniworld_tiny",
        "corpus=lines",
        "model=viecap_small",
        "tokenizer=prompt_words",
        "features=joint_space",
        "features.encoder.sentences._target_=size_sentences.build_drawn_sentences",
    ],
}


def main() -> None:
    """Measure the sizes, or plot earlier measurements."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("command", nargs="?", choices=["measure", "plot"], default="measure")
    parser.add_argument("--captions", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--kind", nargs="+", choices=[*KINDS], default=["features"])
    parser.add_argument("--record", type=Path)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--figure", type=Path, default=ROOT / "docs/images/size.png")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.command == "plot":
        from size_plot import plot

        if options.record is None:
            parser.error("plot needs --record FILE")

        plot(options.record, options.figure)
        return
    for kind in options.kind:
        for number in options.captions:
            with tempfile.TemporaryDirectory(dir=options.folder) as folder:
                measure(kind, number, Path(folder), options.record)


def measure(kind: str, number: int, folder: Path, record: Path | None) -> None:
    """Start three times at one size."""
    overrides = [*COMMON, *KINDS[kind], *_data(kind, number, folder)]
    for name, run, stop in (("cold", "a", 1), ("resumed", "a", -1), ("warm", "b", 0)):
        values = start([*overrides, f"run_dir={folder}/{run}"], folder, stop)
        line = {"kind": kind, "captions": number, "start": name, **values, **_circumstances()}
        if record is not None:
            with record.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        first, peak = values["marks"][0], values["peak"]
        print(
            f"{kind}, {number} captions, {name}: first step {first['time']:.1f} s "
            f"({first['cpu']:.1f} s of processor), peak {peak:.0f} MB, all {values['time']:.1f} s",
            flush=True,
        )
        for mark in values["marks"][1:]:
            print(f"    {mark['mark']}: {mark['time']:.2f} s, processor {mark['cpu']:.2f} s")


def _data(kind: str, number: int, folder: Path) -> list[str]:
    """Generate the data, and return the overrides that select it."""
    if kind == "text":
        write_lines(folder / "captions.txt", number)
        return [f"corpus.train.path={folder}/captions.txt"]
    write_karpathy(folder / "dataset_coco.json", number)
    write_features(folder / "features", number)
    return [f"data.root={folder}", f"features.imported={folder}/features"]


def start(overrides: list[str], folder: Path, stop: int) -> dict[str, Any]:
    """Run ``captioning train`` once: seconds, CPU seconds, peak memory in MB, and marks.

    Times of marks count from the start of the process, those after the first also from the mark
    before, as ``"step"``.
    """
    marks, log = folder / "marks.jsonl", folder / "log.txt"
    marks.unlink(missing_ok=True)
    paths = f"{ROOT}{os.pathsep}{ROOT / 'benchmarks'}"
    environment = {
        **os.environ,
        "PYTHONPATH": paths,
        "SIZE_MARKS": str(marks),
        "SIZE_STOP": str(stop),
        "CAPTIONING_CACHE": str(folder / "cache"),
        "CAPTIONING_DATA": str(folder / "data"),
    }
    begin = time.time()
    with log.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "captioning", "train", *overrides],
            env=environment,
            stdout=file,
            stderr=file,
        )
        _, status, used = os.wait4(process.pid, 0)
    if not marks.is_file() or (status and stop < 0):
        raise SystemExit(f"captioning train failed:\n{log.read_text(encoding='utf-8')[-3000:]}")
    lines = [json.loads(line) for line in marks.read_text(encoding="utf-8").splitlines()]
    return {
        "time": time.time() - begin,
        "cpu": used.ru_utime + used.ru_stime,
        "peak": used.ru_maxrss / 1024,
        "marks": [{**line, "time": line["time"] - begin} for line in lines],
    }


def _circumstances() -> dict[str, Any]:
    git = shutil.which("git") or "git"
    commit = subprocess.run(
        [git, "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return {
        "commit": commit.stdout.strip(),
        "date": datetime.date.today().isoformat(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }


if __name__ == "__main__":
    main()
