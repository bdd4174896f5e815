"""Fit the grammar score of `captioning.metrics.well_formedness` to a language model, and test it.

    python benchmarks/bench_well_formedness.py DATA --fit 200 [--model smollm2]
    python benchmarks/bench_well_formedness.py DATA --test 500 [--config FILE]

DATA is a folder of Flickr8k: ``Flickr8k.token.txt`` and the official lists. Captions of training
photos and broken copies of them give the calibration, which is printed as the config wants it.
Captions of test photos and their broken copies test the calibration in the config: AUC of real
against broken captions of each kind, how often a caption scores higher than its own broken copy,
and shares on either side of thresholds. Neighbouring sentences are two captions of one photo, or of
two photos. Captions a second are of processor time, so that a machine in use by others is fair.
``--gruen FILE`` compares with published scores: lines that end in ``CAPTION GRUEN 0.89``, such as
those of the figures of the CIC-BART-SSA paper's appendix D.7 as text.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import chain, pairwise
from pathlib import Path

import numpy as np
import torch
import yaml

from captioning.interfaces import AbstractLanguageModel
from captioning.metrics.detection import area_under_roc
from captioning.metrics.well_formedness import (
    BALANCE,
    FUNCTION_WORDS,
    GrammarCalibration,
    WellFormedness,
    calibrate,
    sentence_similarities,
)
from captioning.text.language_models import build_language_model
from captioning.text.word_tables import build_token_table

CONFIG = Path(__file__).resolve().parent.parent / "configs/well_formedness/smollm2.yaml"
PUBLISHED = re.compile(r"SSA\)\W*(.+?)\s*GRUEN:?\s*(0\.\d+)")
DETERMINERS = frozenset({"a", "an", "the", "his", "her", "their", "its", "some", "this", "that"})
Words = list[str]


def shuffled(words: Words, rng: np.random.Generator) -> Words:
    """Corrupt a caption: shuffle all words."""
    return [words[place] for place in rng.permutation(len(words))]


def swapped(words: Words, rng: np.random.Generator) -> Words:
    """Corrupt a caption: swap two neighbouring words."""
    place = int(rng.integers(max(1, len(words) - 1)))
    return [*words[:place], *words[place : place + 2][::-1], *words[place + 2 :]]


def repeated(words: Words, rng: np.random.Generator) -> Words:
    """Corrupt a caption: repeat a phrase of 2 to 4 words."""
    size = int(rng.integers(2, 5))
    place = int(rng.integers(max(1, len(words) - size + 1)))
    return [*words[: place + size], *words[place:]]


def without_determiners(words: Words, rng: np.random.Generator) -> Words:
    """Corrupt a caption: remove all determiners."""
    return [word for word in words if word not in DETERMINERS]


def truncated(words: Words, rng: np.random.Generator) -> Words:
    """Corrupt a caption: truncate it in the second half, after a function word if possible."""
    ends = range(max(2, len(words) // 2), len(words))
    ends = [end for end in ends if words[end - 1] in FUNCTION_WORDS] or [max(1, len(words) - 2)]
    return words[: int(rng.choice(ends))]


FAULTS: dict[str, Callable[[Words, np.random.Generator], Words]] = {
    "shuffled": shuffled,
    "two words swapped": swapped,
    "phrase repeated": repeated,
    "no determiners": without_determiners,
    "truncated": truncated,
}


def read_captions(folder: Path, split: str) -> dict[str, list[str]]:
    """Captions by photo of an official split."""
    photos = set((folder / f"Flickr_8k.{split}Images.txt").read_text().split())
    captions: dict[str, list[str]] = {}
    for line in (folder / "Flickr8k.token.txt").read_text(encoding="utf-8").splitlines():
        key, caption = line.split("\t")
        if key.partition("#")[0] in photos:
            captions.setdefault(key.partition("#")[0], []).append(caption)
    return captions


def draw(captions: dict[str, list[str]], number: int, seed: int) -> dict[str, list[str]]:
    """Real captions under ``"real"``, and a corrupted copy under the name of each fault.

    Fewer captions are the first ones of more.
    """
    flat = list(chain.from_iterable(captions.values()))
    order = np.random.default_rng(seed).permutation(len(flat))[:number]
    kinds = {"real": [flat[place] for place in order]}
    for kind, (name, fault) in enumerate(FAULTS.items()):
        draws = [np.random.default_rng([seed, kind, place]) for place in order]
        split = [caption.rstrip(" .").lower().split() for caption in kinds["real"]]
        broken = [fault(words, rng) for words, rng in zip(split, draws, strict=True)]
        kinds[name] = [" ".join(words) + " ." for words in broken]
    return kinds


def neighbours(captions: dict[str, list[str]], number: int) -> tuple[list[float], list[float]]:
    """Similarities of two captions of one photo, and of captions of different photos."""
    table, groups = build_token_table(), list(captions.values())[: number + 1]
    same = [sentence_similarities(group[:2], table) for group in groups]
    other = [sentence_similarities([a[0], b[1]], table) for a, b in pairwise(groups)]
    return list(chain.from_iterable(same)), list(chain.from_iterable(other))


def auc(high: Sequence[float], low: Sequence[float]) -> float:
    """Area under the curve: how often a value of ``high`` exceeds one of ``low``."""
    return area_under_roc([*high, *low], [True] * len(high) + [False] * len(low))


def fit(model: AbstractLanguageModel, folder: Path, number: int) -> None:
    """Print a calibration and the least similarity for the config."""
    train = read_captions(folder, "train")
    kinds = draw(train, number, seed=0)
    broken = list(chain.from_iterable(kinds[name] for name in FAULTS))
    calibration = calibrate(model, well_formed=kinds["real"], broken=broken)
    print(f"fitted to {number} captions of training photos")
    print(yaml.safe_dump({"calibration": asdict(calibration)}, sort_keys=False), end="")
    same, _ = neighbours(train, 2000)
    print(f"min_similarity: {np.quantile(same, 0.05):.3f} # 5% of a photo's neighbours lie below")


def test(scorer: WellFormedness, folder: Path, number: int) -> None:
    """Print how well scores separate real from corrupted captions."""
    captions = read_captions(folder, "test")
    kinds = draw(captions, number, seed=1)
    start = time.process_time()
    scores = {name: scorer.score(column) for name, column in kinds.items()}
    seconds = time.process_time() - start
    rate = number * len(kinds) / seconds
    print(f"{number} captions of test photos; {rate:.1f} captions/s of one core")
    totals = {name: np.array([score.total for score in column]) for name, column in scores.items()}
    grammar = {name: [score.grammar for score in column] for name, column in scores.items()}
    real = totals["real"]
    redundant = np.mean([score.redundancy > 0 for score in scores["real"]])
    print(f"real captions: mean {real.mean():.3f}, with repeated words {redundant:.3f}")
    for threshold in (0.5, 0.6, BALANCE, 0.8):
        rows = [f"{name} {np.mean(totals[name] >= threshold):.3f}" for name in kinds]
        print(f"share from {threshold}: {', '.join(rows)}")
    print("fault | mean | AUC | AUC of grammar alone | original scores higher")
    for name in FAULTS:
        print(
            f"{name} | {totals[name].mean():.3f} | {auc(real, totals[name]):.3f} | "
            f"{auc(grammar['real'], grammar[name]):.3f} | {np.mean(real > totals[name]):.3f}"
        )
    print(f"all | {auc(real, np.concatenate([totals[name] for name in FAULTS])):.3f}")


def test_focus(folder: Path, min_similarity: float) -> None:
    """Print how well similarities separate captions of one photo from unrelated captions."""
    same, other = map(np.array, neighbours(read_captions(folder, "test"), 500))
    print(f"sentences of one photo against those of two photos: AUC {auc(same, other):.3f}")
    print(
        f"below {min_similarity}: {np.mean(same < min_similarity):.3f} and "
        f"{np.mean(other < min_similarity):.3f}"
    )


def compare_with_gruen(scorer: WellFormedness, file: Path) -> None:
    """Print rank and linear correlation with published GRUEN scores."""
    matches = PUBLISHED.findall(file.read_text(encoding="utf-8"))
    published = {caption.strip(): float(score) for caption, score in matches}
    scores = [score.total for score in scorer.score(list(published))]
    columns = np.array([list(published.values()), scores])
    ranks = columns.argsort(axis=1).argsort(axis=1)
    print(f"{len(published)} captions with published GRUEN scores, ", end="")
    print(f"mean {columns[0].mean():.3f}, ours {columns[1].mean():.3f}: ", end="")
    print(f"correlation {np.corrcoef(columns)[0, 1]:.3f}, of ranks {np.corrcoef(ranks)[0, 1]:.3f}")
    good = columns[0] > BALANCE
    print(
        f"AUC of those above {BALANCE} there: {auc(columns[1][good], columns[1][~good]):.3f}; ",
        end="",
    )
    print(f"on the same side here: {np.mean(good == (columns[1] > BALANCE)):.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--fit", type=int, default=0)
    parser.add_argument("--test", type=int, default=0)
    parser.add_argument("--gruen", type=Path)
    parser.add_argument("--config", type=Path, default=CONFIG)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"{platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}, ", end="")
    print(f"{options.threads} threads, {options.model}")
    model = build_language_model(name=options.model, device="cpu")
    if options.fit:
        fit(model, options.data, options.fit)
    if not (options.test or options.gruen):
        return
    settings = yaml.safe_load(options.config.read_text())
    settings["calibration"].pop("_target_", None)
    calibration = GrammarCalibration(**settings["calibration"])
    scorer = WellFormedness(language_model=model, calibration=calibration)
    if options.gruen:
        compare_with_gruen(scorer, options.gruen)
    if options.test:
        test(scorer, options.data, options.test)
        test_focus(options.data, settings["min_similarity"])


if __name__ == "__main__":
    main()
