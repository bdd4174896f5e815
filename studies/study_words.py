"""How well ``curation/score=words`` finds a wrong word, names it, and gives the right one.

    python studies/study_words.py uniform plausible further --seeds 0 1 2
    python studies/study_words.py uniform --data miniworld
    python studies/study_words.py --cost
    python studies/study_words.py --report

Faults are planted in training captions: words drawn uniformly from their row, or words that
language alone would expect there. Each line of docs/results/records/words.jsonl is what one
kind of evidence made of one kind of fault. ``--report`` builds the tables of docs/words.md.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig, OmegaConf

from captioning.configuration import compose_config
from captioning.data.roster import CurationView, Roster
from captioning.data.steps.fault_words import COLORS, NUMBERS, OBJECTS
from captioning.data.steps.plant_faults import Planting, plant
from captioning.files import write_lines, write_text
from captioning.metrics.detection import area_under_roc
from captioning.text.word_rows import same_thing, word_rows
from captioning.training.parts import build_part
from curation.base import Context, WordDoubt
from curation.score.words.score import Words

ROOT = Path(__file__).resolve().parents[1]
RECORDS = ROOT / "docs" / "results" / "records" / "words.jsonl"
PAGE = ROOT / "docs" / "words.md"
BEGIN, END = "<!-- table:{} -->", "<!-- /table:{} -->"
NOISE: dict[str, dict[str, float]] = {
    "uniform": {"color": 0.05, "number": 0.05, "object": 0.05},
    # of numbers fewer: there are too few captions whose number language would not expect
    "plausible": {"plausible_number": 0.015}
    | {f"plausible_{topic}": 0.05 for topic in ("color", "object", "action")},
    "further": {"plausible_people": 0.05, "plausible_relation": 0.05, "phrase": 0.05},
    "none": {},
}
EVIDENCE = {
    "text": {"siblings": False, "photos": False},
    "siblings": {"siblings": True, "photos": False},
    "photos": {"siblings": False, "photos": True},
    "all": {"siblings": True, "photos": True},
}
UNIFORM = {"color": COLORS, "number": NUMBERS, "object": OBJECTS}
EDGES = (0, 0.01, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 1.0001)


def main() -> None:
    """Measure, or build the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("noise", nargs="*", choices=[*NOISE, []], metavar="FAULTS")
    parser.add_argument("--data", default="flickr8k")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--evidence", nargs="+", choices=list(EVIDENCE), default=list(EVIDENCE))
    parser.add_argument("--cache", default="cache")
    parser.add_argument("--cost", action="store_true")
    parser.add_argument("--report", action="store_true")
    options = parser.parse_args()
    cache = Path(options.cache)
    for seed in options.seeds:
        for noise in options.noise:
            measure(options.data, noise, seed, options.evidence, cache)
    if options.cost:
        measure_cost(options.data, options.evidence, cache)
    if options.report:
        report()


def measure(data: str, noise: str, seed: int, evidence: Sequence[str], cache: Path) -> None:
    """Plant the faults of a seed, and judge them by each kind of evidence."""
    config = composed(data, cache)
    roster = build_part(config.data.train)
    planting = plant(roster, kinds=NOISE[noise], seed=seed, cache_folder=cache)
    for name in evidence:
        doubts = score_of(config, name, seed).doubts(_context(planting.roster))
        head = {"data": data, "noise": noise, "seed": seed, "evidence": name}
        lines = [head | line for line in found(planting, doubts)]
        lines.append(head | {"kind": None, "reliability": reliability(planting, doubts)})
        keep(lines)
        for line in lines:
            print(json.dumps(line), flush=True)


def measure_cost(data: str, evidence: Sequence[str], cache: Path) -> None:
    """The time of each kind of evidence, features of the photos at hand, nothing else kept."""
    config = composed(data, cache)
    roster = build_part(config.data.train)
    for name in evidence:
        with TemporaryDirectory() as folder:
            score = score_of(config, name, 0, judged=folder)
            begin = time.perf_counter(), processor_seconds()
            score.doubts(_context(roster))
        wall, processor = time.perf_counter() - begin[0], processor_seconds() - begin[1]
        head = {"data": data, "noise": "cost", "seed": 0, "evidence": name, "kind": None}
        cost = {"wall_s": round(wall, 1), "cpu_s": round(processor, 1)}
        keep([head | cost | {"threads": torch.get_num_threads(), "captions": len(roster)}])


def composed(data: str, cache: Path) -> DictConfig:
    """The configuration of a run with the score."""
    overrides = [f"data={data}", "curation=remove", "curation/score=words", f"paths.cache={cache}"]
    return compose_config("train", overrides)


def score_of(config: DictConfig, evidence: str, seed: int, judged: str | None = None) -> Words:
    """The score by a kind of evidence, its judgements kept in a folder of its own if wanted."""
    chosen = EVIDENCE[evidence]
    # other folds and parameters than those that faults were drawn by
    own: dict[str, Any] = {"siblings": chosen["siblings"], "seed": seed + 100}
    own |= {} if judged is None else {"cache_folder": judged}
    own |= {} if chosen["photos"] else {"photos": None}
    return build_part(OmegaConf.merge(config.curation.score, own))


def processor_seconds() -> float:
    """Of this process so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _context(roster: Roster) -> Context:
    nothing = torch.full((1, len(roster)), torch.nan)
    view = CurationView(roster=roster)
    return Context(view=view, losses=nothing[0], history=nothing, epoch=-1)


def kind_words(kind: str) -> frozenset[str]:
    """The words that a fault of a kind could be."""
    if kind in UNIFORM:
        return frozenset(word for row in UNIFORM[kind] for word in row)
    topic = kind.removeprefix("plausible_")
    rows = [row for row in word_rows() if topic in (row.topic, "phrase")]
    return frozenset(word for row in rows for words in row.meanings for word in words)


def found(planting: Planting, doubts: Sequence[WordDoubt]) -> list[dict[str, Any]]:
    """For each kind of fault, how well doubts find caption, word and right word."""
    size = len(planting.roster)
    kinds = np.full(size, "", dtype=object)
    for sample_id, kind in planting.truth.items():
        kinds[planting.roster.by_id[sample_id].row] = kind
    overall = highest(doubts, size)
    results = []
    for kind in sorted(set(planting.truth.values())):
        own = [doubt for doubt in doubts if doubt.word.lower() in kind_words(kind)]
        within = highest(own, size)
        known = np.isfinite(within)
        fault, compared = kinds == kind, (kinds == kind) | (kinds == "")
        results.append(
            {
                "kind": kind,
                "faults": int(fault.sum()),
                "auc_all": auc(overall, fault, compared),
                "auc_within": auc(within, fault, compared & known),
                "auc_within_by_caption": auc(overall, fault, compared & known),
                "auc_by_third": by_third(planting, kind, own),
                **named(planting, kind, own, doubts),
            }
        )
    return results


def by_third(planting: Planting, kind: str, own: Sequence[WordDoubt]) -> list[float | None] | None:
    """AUC of the words in the first, second and last third of their captions, planted or sound."""
    if kind == "phrase":
        return None
    samples, truth = planting.roster.samples, planting.truth
    sound = [d for d in own if truth.get(samples[d.row].sample_id, kind) == kind]
    places = np.array([(d.start / len(samples[d.row].caption)) for d in sound])
    scores = np.array([doubt.probability for doubt in sound])
    words = [planting.words.get(samples[doubt.row].sample_id) for doubt in sound]
    wrong = np.array(
        [w is not None and w.start == d.start for w, d in zip(words, sound, strict=True)]
    )
    thirds = np.minimum((3 * places).astype(np.int64), 2)
    return [
        auc(scores, wrong, thirds == third) if wrong[thirds == third].any() else None
        for third in range(3)
    ]


def highest(doubts: Sequence[WordDoubt], size: int) -> np.ndarray:
    """``(N,)`` probability of each caption's likeliest wrong word; minus infinity: none."""
    values = np.full(size, -np.inf)
    rows = np.array([doubt.row for doubt in doubts], dtype=np.int64)
    np.maximum.at(values, rows, [doubt.probability for doubt in doubts])
    return values


def auc(scores: np.ndarray, fault: np.ndarray, compared: np.ndarray) -> float:
    """Captions without a score are the least suspect."""
    values = np.where(np.isfinite(scores), scores, -1e9)
    return round(area_under_roc(values[compared], fault[compared].astype(bool)), 4)


def named(
    planting: Planting, kind: str, own: Sequence[WordDoubt], doubts: Sequence[WordDoubt]
) -> dict[str, float | None]:
    """Shares of a kind's faults whose word is the most doubted, and whose right word is given."""
    if kind == "phrase":
        return {"found": None, "found_in_kind": None, "right": None}
    best_of_kind, best = most_doubted(own), most_doubted(doubts)
    same, hits = same_thing(), []
    for sample_id, truth in planting.words.items():
        if planting.truth[sample_id] != kind:
            continue
        row = planting.roster.by_id[sample_id].row
        doubt, word = best.get(row), best_of_kind.get(row)
        right = same.get(truth.right.lower(), frozenset([truth.right.lower()]))
        hits.append(
            (
                doubt is not None and doubt.start == truth.start,
                word is not None and word.start == truth.start,
                word is not None and word.start == truth.start and word.alternative in right,
            )
        )
    shares = np.mean(hits, axis=0).round(4).tolist()
    return dict(zip(("found", "found_in_kind", "right"), shares, strict=True))


def most_doubted(doubts: Sequence[WordDoubt]) -> dict[int, WordDoubt]:
    """By row the word that is most surely wrong."""
    best: dict[int, WordDoubt] = {}
    for doubt in doubts:
        if doubt.row not in best or doubt.probability > best[doubt.row].probability:
            best[doubt.row] = doubt
    return best


def reliability(planting: Planting, doubts: Sequence[WordDoubt]) -> list[dict[str, float]]:
    """Mean probability and share of planted words, by probability."""
    wrong = {
        (planting.roster.by_id[sample_id].row, word.start)
        for sample_id, word in planting.words.items()
    }
    probabilities = np.array([doubt.probability for doubt in doubts])
    is_wrong = np.array([(doubt.row, doubt.start) in wrong for doubt in doubts])
    bins = np.digitize(probabilities, EDGES) - 1
    return [
        {
            "from": EDGES[number],
            "words": int((bins == number).sum()),
            "probability": round(float(probabilities[bins == number].mean()), 4),
            "planted": round(float(is_wrong[bins == number].mean()), 4),
        }
        for number in range(len(EDGES) - 1)
        if (bins == number).any()
    ]


def keep(lines: Sequence[Mapping[str, Any]]) -> None:
    """Write lines to the records, in place of older ones of the same runs."""
    keys = ("data", "noise", "seed", "evidence")
    new = {tuple(line[key] for key in keys) for line in lines}
    old = read_records()
    kept = [line for line in old if tuple(line[key] for key in keys) not in new]
    write_lines(RECORDS, [json.dumps(line) for line in [*kept, *lines]])


def read_records() -> list[dict[str, Any]]:
    """All lines."""
    if not RECORDS.is_file():
        return []
    return [json.loads(line) for line in RECORDS.read_text(encoding="utf-8").splitlines()]


def report() -> None:
    """The tables of the page, from the records."""
    page, lines = PAGE.read_text(encoding="utf-8"), read_records()
    tables = {
        **{f"found {noise}": found_table(lines, noise) for noise in NOISE if noise != "none"},
        "probability": reliability_table(lines),
        "cost": cost_table(lines),
    }
    for name, rows in tables.items():
        begin, end = BEGIN.format(name), END.format(name)
        before, _, rest = page.partition(begin)
        _, _, after = rest.partition(end)
        page = "\n".join([before + begin, *rows, end + after])
    write_text(PAGE, page)


def found_table(lines: Sequence[Mapping[str, Any]], noise: str) -> list[str]:
    """Means over seeds, a row for each kind of fault and of evidence."""
    head = "| fault | evidence | seeds | AUC | AUC within | word found | right word given |"
    rows = [head, "|---|---|---|---|---|---|---|"]
    own = [line for line in lines if line["noise"] == noise and line["kind"]]
    for kind in sorted({line["kind"] for line in own}):
        for evidence in EVIDENCE:
            runs = [x for x in own if (x["kind"], x["evidence"]) == (kind, evidence)]
            if runs:
                keys = ("auc_all", "auc_within", "found", "right")
                cells = [
                    f"`{kind}`",
                    evidence,
                    str(len(runs)),
                    *(mean_of(runs, key) for key in keys),
                ]
                rows.append(f"| {' | '.join(cells)} |")
    return rows


def mean_of(runs: Sequence[Mapping[str, Any]], key: str) -> str:
    """Mean, with the least and the largest where there are several."""
    values = [run[key] for run in runs if run[key] is not None]
    if not values:
        return "–"
    spread = f" ({min(values):.3f} to {max(values):.3f})" if len(values) > 1 else ""
    return f"{np.mean(values):.3f}{spread}"


def reliability_table(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Probabilities against what was planted, by all evidence together."""
    head = "| faults | probability, from | words | mean probability | planted |"
    rows = [head, "|---|---|---|---|---|"]
    for noise in NOISE:
        runs = [
            line["reliability"]
            for line in lines
            if (line["noise"], line["evidence"], line["kind"]) == (noise, "all", None)
        ]
        for low in EDGES[:-1]:
            bins = [one for run in runs for one in run if one["from"] == low]
            words = sum(one["words"] for one in bins)
            if not words:
                continue
            means = [
                sum(one[key] * one["words"] for one in bins) / words
                for key in ("probability", "planted")
            ]
            rows.append(f"| {noise} | {low} | {words:,} | {means[0]:.3f} | {means[1]:.3f} |")
    return rows


def cost_table(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Mean times of all runs."""
    rows = ["| evidence | captions | processor seconds |", "|---|---|---|"]
    for evidence in EVIDENCE:
        runs = [line for line in lines if line["kind"] is None and line["evidence"] == evidence]
        if runs:
            seconds = np.mean([run["cpu_s"] for run in runs])
            rows.append(f"| {evidence} | {runs[0]['captions']:,} | {seconds:.0f} |")
    return rows


if __name__ == "__main__":
    main()
