"""Benchmark the standard metrics without SPICE against pycocoevalcap, on first and second calls.

    python benchmarks/bench_metrics.py [--images 5000] [--references 5] [--all] [--rounds 2]

References are captions of COCO 2014's validation images (pycocoevalcap holds them); candidates
begin as one of the image's captions and end as one of another image's, so that scores are
plausible. pycocoevalcap tokenizes with its PTBTokenizer and calls its four scorers one after the
other, as its ``COCOEvalCap`` does; ours is `evaluate_captions`. Each runs in a process of its own,
in turns, and evaluates twice: other candidates, same references. Seconds are wall time, the least
of the rounds, and in brackets those of the processors, Java's included; memory is the largest sum
of resident sizes of the process and its Java processes. Then come the scores of a validation epoch,
BLEU, ROUGE-L and CIDEr-D, with Python's tokenizer.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing as mp
import os
import platform
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pycocoevalcap.spice.spice as spice_package
from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.meteor.meteor import Meteor
from pycocoevalcap.rouge.rouge import Rouge
from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

from captioning.metrics.coco import FAST_METRICS, evaluate_captions

METRICS = ("BLEU", "METEOR", "ROUGE-L", "CIDEr-D")
NAMES = ("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "METEOR", "ROUGE-L", "CIDEr-D")
TARGETS = (0.75, 0.35)
EPOCH_TARGET = 1.5

Captions = dict[str, str]
References = dict[str, list[str]]
Scores = dict[str, tuple[float, list[float]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Wall and CPU seconds of one evaluation, seconds of its parts, and the scores."""

    seconds: float
    busy: float
    parts: dict[str, float]
    scores: Scores


def read_references(num_images: int, num_references: int) -> References:
    """First images in id order, with a given number of captions each."""
    jar = Path(spice_package.__file__).parent / "spice-1.0.jar"
    with ZipFile(jar) as archive:
        content = json.loads(archive.read("coco/annotations/captions_val2014.json"))
    references: References = {}
    for entry in sorted(content["annotations"], key=lambda e: (e["image_id"], e["id"])):
        references.setdefault(str(entry["image_id"]), []).append(entry["caption"])
    return {i: texts[:num_references] for i, texts in list(references.items())[:num_images]}


def mixed_candidates(references: References, seed: int) -> Captions:
    """First 60% of a caption's words, followed by the last 40% of another image's caption."""
    draw = np.random.default_rng(seed)
    ids, candidates = list(references), {}
    for image_id in ids:
        other = references[ids[draw.integers(len(ids))]]
        words = references[image_id][draw.integers(len(references[image_id]))].split()
        foreign = other[draw.integers(len(other))].split()
        candidates[image_id] = " ".join(
            words[: len(words) * 3 // 5] + foreign[len(foreign) * 3 // 5 :]
        )
    return candidates


def score_plainly(candidates: Captions, references: References) -> tuple[Scores, dict[str, float]]:
    """Score with pycocoevalcap, and time each step."""
    seconds: dict[str, float] = {}

    def timed(name: str, function: Callable[[], object]) -> object:
        start = time.perf_counter()
        result = function()
        seconds[name] = time.perf_counter() - start
        return result

    def tokenized() -> tuple[dict, dict]:
        gts = {i: [{"caption": text} for text in texts] for i, texts in references.items()}
        res = {i: [{"caption": text}] for i, text in candidates.items()}
        return PTBTokenizer().tokenize(gts), PTBTokenizer().tokenize(res)

    gts, res = timed("tokenize", tokenized)
    bleu, each = timed("BLEU", lambda: Bleu(4).compute_score(gts, res, verbose=0))
    scores = dict(zip(NAMES[:4], zip(bleu, each, strict=True), strict=True))
    scores["METEOR"] = timed("METEOR", lambda: Meteor().compute_score(gts, res))
    scores["ROUGE-L"] = timed("ROUGE-L", lambda: Rouge().compute_score(gts, res))
    scores["CIDEr-D"] = timed("CIDEr", lambda: Cider().compute_score(gts, res))
    return {name: (float(all_), list(map(float, ones))) for name, (all_, ones) in scores.items()}, (
        seconds
    )


def score_ours(candidates: Captions, references: References) -> tuple[Scores, dict[str, float]]:
    """Score with `evaluate_captions`, and time each step."""
    result = evaluate_captions(candidates, references, metrics=METRICS)
    if result.missing or result.settings["tokenizer"] != "ptb":
        raise RuntimeError(f"the benchmark needs Java: {result.missing or result.settings}")
    columns = {name: [scores[name] for scores in result.per_image.values()] for name in NAMES}
    return {name: (result.corpus[name], columns[name]) for name in NAMES}, {}


def evaluate_twice(
    implementation: str, references: References, pipe: mp.connection.Connection
) -> None:
    """Evaluate in a measured process; send scores and seconds of each evaluation."""
    score = {"pycocoevalcap": score_plainly, "ours": score_ours}[implementation]
    for seed in (1, 2):
        candidates = mixed_candidates(references, seed)
        start, busy = time.perf_counter(), processor_seconds()
        scores, parts = score(candidates, references)
        pipe.send(
            Evaluation(
                seconds=time.perf_counter() - start,
                busy=processor_seconds() - busy,
                parts=parts,
                scores=scores,
            )
        )
    pipe.close()


def time_epochs(references: References, pipe: mp.connection.Connection) -> None:
    """Seconds of validation epochs, the first with uncached references."""
    seconds = []
    for seed in range(4):
        candidates = mixed_candidates(references, seed)
        start = time.perf_counter()
        evaluate_captions(candidates, references, metrics=FAST_METRICS, tokenizer="python")
        seconds.append(time.perf_counter() - start)
    pipe.send(seconds)
    pipe.close()


def measured(target: Callable[..., None], *arguments: object) -> tuple[list, float]:
    """Run a function in a new process; return its result and its peak memory in GB."""
    context = mp.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=target, args=(*arguments, sender))
    process.start()
    sender.close()
    peak, over = [0.0], threading.Event()
    watcher = threading.Thread(target=_watch, args=(process.pid, peak, over))
    watcher.start()
    results = []
    with contextlib.suppress(EOFError):
        while True:
            results.append(receiver.recv())
    process.join()
    over.set()
    watcher.join()
    if process.exitcode != 0:
        raise RuntimeError(f"{target.__name__} ended with status {process.exitcode}")
    return results, peak[0]


def _watch(pid: int, peak: list[float], over: threading.Event) -> None:
    while not over.wait(0.2):
        peak[0] = max(peak[0], sum(map(_resident, _tree(pid))) / 1e9)


def _tree(pid: int) -> Iterator[int]:
    """A process and all its descendants."""
    yield pid
    with contextlib.suppress(OSError):
        for path in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in path.read_text().split():
                yield from _tree(int(child))


def _resident(pid: int) -> int:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def processor_seconds() -> float:
    """CPU seconds of this process, of ended children and of live children."""
    ticks = 0
    for pid in _tree(os.getpid()):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def difference(ours: Scores, theirs: Scores, names: tuple[str, ...]) -> float:
    """Largest difference of scores over corpus and images."""

    def flat(scores: Scores) -> np.ndarray:
        return np.concatenate([[scores[name][0], *scores[name][1]] for name in names])

    return float(np.abs(flat(ours) - flat(theirs)).max())


def compare(references: References, num_rounds: int) -> None:
    """Print both implementations, with cold and warm caches."""
    implementations: dict[str, list[list[Evaluation]]] = {"pycocoevalcap": [], "ours": []}
    memory = dict.fromkeys(implementations, 0.0)
    for _ in range(num_rounds):
        for implementation, rounds in implementations.items():
            evaluations, peak = measured(evaluate_twice, implementation, references)
            rounds.append(evaluations)
            memory[implementation] = max(memory[implementation], peak)
    for number, (name, target) in enumerate(zip(("cold", "second"), TARGETS, strict=True)):
        theirs, ours = (
            min((evaluations[number] for evaluations in rounds), key=lambda e: e.seconds)
            for rounds in implementations.values()
        )
        split = ", ".join(f"{part} {seconds:.1f}" for part, seconds in theirs.parts.items())
        print(f"{name}: pycocoevalcap {theirs.seconds:.2f} s ({theirs.busy:.1f}; {split}), ours "
              f"{ours.seconds:.2f} s ({ours.busy:.1f}), ratio {ours.seconds / theirs.seconds:.3f} "
              f"(target {target}; of the processors {ours.busy / theirs.busy:.3f})")  # fmt: skip
        rest = tuple(n for n in NAMES if n != "METEOR")
        print(f"  largest difference {difference(ours.scores, theirs.scores, rest):.0e}, METEOR "
              f"{difference(ours.scores, theirs.scores, ('METEOR',)):.0e}; "
              + ", ".join(f"{n} {ours.scores[n][0]:.4f}" for n in NAMES))  # fmt: skip
    print(
        "memory with Java: "
        + ", ".join(f"{implementation} {peak:.2f} GB" for implementation, peak in memory.items())
    )


def main() -> None:
    """Print seconds, ratios and differences."""
    parser = argparse.ArgumentParser(description="Benchmark of the standard scores without SPICE.")
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--references", type=int, default=5)
    parser.add_argument("--all", action="store_true", help="use all 40,504 images")
    parser.add_argument("--rounds", type=int, default=2, help="rounds; the fastest counts")
    chosen = parser.parse_args()
    references = read_references(10**9 if chosen.all else chosen.images, chosen.references)
    print(f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; "
          f"{len(references)} images x {chosen.references} references")  # fmt: skip
    compare(references, chosen.rounds)
    (seconds,), memory = measured(time_epochs, references)
    fastest = min(seconds[1:])
    print(f"validation epoch, {', '.join(FAST_METRICS)}, references prepared: {fastest:.2f} s "
          f"(target {EPOCH_TARGET} s for 5000 images; the first time {seconds[0]:.2f} s), "
          f"{memory:.2f} GB")  # fmt: skip


if __name__ == "__main__":
    main()
