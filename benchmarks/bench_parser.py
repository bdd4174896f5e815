"""Benchmark the packaged caption parser: captions per second, newly parsed and from the cache.

    python benchmarks/bench_parser.py [--captions 100000] [--peer PYTHON]

Captions are COCO's, from inside the installed pycocoevalcap. ``--peer`` names the Python of an
environment with the spaCy 2 model that taught the parser (tools/assets/annotate_spacy2.py says
how it is made): it parses a twentieth as many on one core, and the ratio is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

from captioning.data.readers.coco import load_annotations  # noqa: E402
from captioning.results.versions import versions  # noqa: E402
from captioning.text.parser import PACKAGED, build_caption_parser  # noqa: E402

SPACY2 = REPOSITORY / "captioning" / "text" / "annotate_spacy2.py"


def timed(work: Callable[[], object]) -> float:
    """Seconds that ``work`` takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def peer_seconds(python: str, captions: list[str], folder: Path) -> float:
    """Seconds of spaCy 2 on one core, without its start-up."""
    seconds = []
    for part in (captions[:1], captions):
        lines = [json.dumps({"id": "", "split": "", "caption": caption}) for caption in part]
        (folder / "captions.jsonl").write_text("\n".join(lines), encoding="utf-8")
        files = [str(folder / "captions.jsonl"), str(folder / "parses.jsonl")]
        start = time.perf_counter()
        subprocess.run([python, "-W", "ignore", str(SPACY2), *files], check=True)
        seconds.append(time.perf_counter() - start)
    return seconds[1] - seconds[0]


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--captions", type=int, default=100_000)
    options.add_argument("--peer", help="Python of an environment with the spaCy 2 model")
    chosen = options.parse_args()
    annotations = load_annotations("pycocoevalcap:captions_val2014").records("annotations")
    texts = list(dict.fromkeys(record.text("caption") for record in annotations))
    captions = texts[: chosen.captions]
    size = sum(file.stat().st_size for file in PACKAGED.rglob("*") if file.is_file())
    print(f"{len(captions)} different captions; {os.cpu_count()} cores; {versions()}")
    print(f"pipeline: {size / 2**20:.2f} MiB")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rates = {}
        for processes in (1, 2):
            part = captions[: len(captions) // 4] if processes == 1 else captions
            parser = build_caption_parser(
                cache_folder=folder / str(processes), num_processes=processes
            )
            seconds = timed(lambda p=parser, part=part: p.parse(part))
            rates[processes] = len(part) / seconds
            print(
                f"new, {processes} process(es): {len(part)} in {seconds:.1f} s, "
                f"{rates[processes]:.0f}/s",
                flush=True,
            )
        seconds = timed(lambda: parser.parse(captions))
        print(f"from the cache: {len(captions)} in {seconds:.1f} s")
        num_bytes = sum(file.stat().st_size for file in (folder / "2").iterdir())
        print(f"cache: {num_bytes / len(captions):.0f} bytes a caption")
        if chosen.peer:
            part = captions[: len(captions) // 20]
            rate = len(part) / peer_seconds(chosen.peer, part, folder)
            print(f"spaCy 2 model, 1 process: {rate:.0f}/s; ratio {rates[1] / rate:.2f}")


if __name__ == "__main__":
    main()
