"""Measure how well ``curation/score=words`` detects wrong words and proposes right words.

    python tools/studies/study_words.py uniform plausible further --seeds 0 1 2
    python tools/studies/study_words.py uniform --data miniworld
    python tools/studies/study_words.py open --photos 2000
    python tools/studies/study_words.py uniform actions plausible --unseen --seeds 0 1 2
    python tools/studies/study_words.py --cost
    python tools/studies/study_words.py --report

Faults are planted in training captions: words drawn uniformly from their row, or words that
language alone would expect there. Each line of docs/results/records/words.jsonl is the result of
one kind of evidence for one kind of fault. ``--report`` builds the tables of
docs/results/wrong_words_tables.md.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig
from page_tables import read_records
from study_words_report import EDGES, EVIDENCE, NOISE, RECORDS, report

from captioning.config.build import build_part
from captioning.config.compose import compose_config
from captioning.data.roster import CurationView, Roster, build_roster
from captioning.data.steps.plant_faults import COLORS, NUMBERS, OBJECTS, Planting, plant
from captioning.data.steps.plausible_faults import open_table
from captioning.metrics.detection import area_under_roc
from captioning.runtime.files import write_lines
from captioning.text.row_tables import RowTable
from captioning.text.word_rows import NEGATION, TOPICS, closed_rows, negation_rows
from curation.base import AbstractWordScore, Context, WordDoubt
from curation.score.words import SecondLook

UNIFORM = {"color": COLORS, "number": NUMBERS, "object": OBJECTS}  # actions: whole rows


def main() -> None:
    """Measure the score, or build the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("noise", nargs="*", choices=[*NOISE, []], metavar="FAULTS")
    parser.add_argument("--data", default="flickr8k")
    parser.add_argument("--photos", type=int, metavar="NUMBER", help="the first; all by default")
    parser.add_argument("--unseen", action="store_true", help="validation and test photos instead")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--evidence", nargs="+", choices=list(EVIDENCE))
    parser.add_argument("--cache", default="cache")
    parser.add_argument("--cost", action="store_true")
    parser.add_argument("--report", action="store_true")
    options = parser.parse_args()
    cache = Path(options.cache)
    for seed in options.seeds:
        for noise in options.noise:
            usual = [name for name in EVIDENCE if is_usual(name, noise, options.unseen)]
            chosen = options.evidence or usual
            measure(options.data, noise, seed, chosen, cache, options.photos, options.unseen)
    if options.cost:
        measure_cost(options.data, options.evidence or ["all"], cache)
    if options.report:
        report()


def is_usual(evidence: str, noise: str, unseen: bool = False) -> bool:
    """Whether faults are judged with the default settings."""
    if unseen:
        return evidence in ("photos", "all") or "look" in EVIDENCE[evidence]
    return evidence.endswith("open") == (noise == "open") and "look" not in EVIDENCE[evidence]


def measure(
    data: str,
    noise: str,
    seed: int,
    evidence: Sequence[str],
    cache: Path,
    photos: int | None = None,
    unseen: bool = False,
) -> None:
    """Plant the faults of a seed in the first photos, and score them with each kind of evidence."""
    config = composed(data, cache)
    roster = unseen_photos(config) if unseen else build_part(config.data.train)
    roster = first_photos(roster, photos)
    planting = with_directions(plant(roster, kinds=NOISE[noise], seed=seed, cache_folder=cache))
    # as the faults were drawn: rows of the words that are judged are made of the faulty captions
    table = open_table(roster, seed=seed) if noise == "open" else closed_rows()
    topics = [*TOPICS, NEGATION] if noise == "negation" else None
    for name in evidence:
        score = score_of(config, name, seed, topics=topics)
        doubts = score.doubts(context_of(planting.roster))
        parts = ["unseen"] * unseen + ([] if photos is None else [str(photos)])
        part = "/".join([data, *parts])
        head = {"data": part, "noise": noise, "seed": seed, "evidence": name}
        lines = [head | line for line in found(planting, doubts, table)]
        lines.append(head | {"kind": None, "reliability": reliability(planting, doubts)})
        keep(lines)
        for line in lines:
            print(json.dumps(line), flush=True)


def measure_cost(data: str, evidence: Sequence[str], cache: Path) -> None:
    """Measure the time of each kind of evidence, with cached photo features but nothing else."""
    config = composed(data, cache)
    roster = build_part(config.data.train)
    for name in evidence:
        with TemporaryDirectory() as folder:
            score = score_of(config, name, 0, judged=folder)
            begin = time.perf_counter(), processor_seconds()
            score.doubts(context_of(roster))
        wall, processor = time.perf_counter() - begin[0], processor_seconds() - begin[1]
        head = {"data": data, "noise": "cost", "seed": 0, "evidence": name, "kind": None}
        cost = {"wall_s": round(wall, 1), "cpu_s": round(processor, 1)}
        keep([head | cost | {"threads": torch.get_num_threads(), "captions": len(roster)}])


def composed(data: str, cache: Path) -> DictConfig:
    """Config of a run with the score."""
    overrides = [f"data={data}", "curation=remove", "curation/score=words", f"paths.cache={cache}"]
    return compose_config("train", overrides)


def unseen_photos(config: DictConfig) -> Roster:
    """Validation and test photos, which the shipped networks never saw."""
    return captions_of(config.data.name, [config.data.val, config.data.test])


def captions_of(name: str, parts: Sequence[DictConfig]) -> Roster:
    """All captions of splits of a dataset."""
    return build_roster(name, [sample for part in parts for sample in build_part(part).samples])


def first_photos(roster: Roster, number: int | None) -> Roster:
    """Captions of the first photos; all if no number is given."""
    if number is None:
        return roster
    rows = [row for own in list(roster.rows_by_image.values())[:number] for row in own]
    return build_roster(roster.name, [roster.samples[row] for row in rows])


def with_directions(planting: Planting) -> Planting:
    """Split negations into two kinds: removed and inserted."""
    truth = {
        sample_id: (f"{kind}, {direction(planting, sample_id)}" if kind == NEGATION else kind)
        for sample_id, kind in planting.truth.items()
    }
    return replace(planting, truth=truth)


def direction(planting: Planting, sample_id: str) -> str:
    """Direction of a planted negation: removed or inserted."""
    right = planting.words[sample_id].right.lower()
    return "left out" if right.startswith(("no", "without")) else "put in"


def score_of(
    config: DictConfig,
    evidence: str,
    seed: int,
    judged: str | None = None,
    topics: Sequence[str] | None = None,
) -> AbstractWordScore:
    """Score by a kind of evidence, with its judgements cached in a folder if requested."""
    chosen = dict(EVIDENCE[evidence])
    # other folds and parameters than those that faults were drawn by
    own: dict[str, Any] = {"seed": seed + 100, "topics": topics}
    own |= {} if judged is None else {"cache_folder": judged}
    own |= {} if chosen.pop("photos") else {"photos": None}
    names = chosen.pop("look", ())
    own |= chosen
    words = build_part(config.curation.score, **own)
    if not names:
        return words
    pairs = {name: build_part(matching(name, config.paths.cache)) for name in names}
    return SecondLook(words=words, pairs=pairs, seed=seed)


def matching(name: str, cache: str) -> DictConfig:
    """Settings of photo-caption scorers."""
    own = ["curation=remove", "curation/score=siglip", f"matching@curation.score.pairs={name}"]
    return compose_config("train", [*own, f"paths.cache={cache}"]).curation.score.pairs


def processor_seconds() -> float:
    """CPU seconds of this process so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def context_of(roster: Roster) -> Context:
    """Context before training, in which nothing is measured."""
    return Context.before_training(CurationView(roster=roster))


def kind_words(kind: str, table: RowTable) -> frozenset[str]:
    """Words that a fault of a kind could be."""
    if kind in UNIFORM:
        return frozenset(word for row in UNIFORM[kind] for word in row)
    topic = kind.removeprefix("plausible_").removeprefix("open_").partition(",")[0]
    rows = negation_rows().rows if topic == NEGATION else table.rows
    rows = [row for row in rows if topic in (row.topic, "phrase")]
    return frozenset(word for row in rows for words in row.meanings for word in words)


def found(planting: Planting, doubts: Sequence[WordDoubt], table: RowTable) -> list[dict[str, Any]]:
    """For each kind of fault, how well the score finds caption, word and right word."""
    size = len(planting.roster)
    kinds = np.full(size, "", dtype=object)
    for sample_id, kind in planting.truth.items():
        kinds[planting.roster.by_id[sample_id].row] = kind
    overall = highest(doubts, size)
    results = []
    for kind in sorted(set(planting.truth.values())):
        words = kind_words(kind, table)
        own = [doubt for doubt in doubts if doubt.word.lower() in words]
        within = highest(own, size)
        known = np.isfinite(within)
        fault, compared = kinds == kind, (kinds == kind) | (kinds == "")
        results.append(
            {
                "kind": kind,
                "faults": int(fault.sum()),
                "auc_all": auc(overall, fault, compared),
                "auc_within": auc(within, fault, compared & known),
                "auc_by_third": by_third(planting, kind, own),
                **named(planting, kind, own, doubts, table.same),
            }
        )
    return results


def by_third(planting: Planting, kind: str, own: Sequence[WordDoubt]) -> list[float | None] | None:
    """AUC for words in the first, second and last third of their captions."""
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
    """Probability of each caption's likeliest wrong word, ``(N,)``; minus infinity if none."""
    values = np.full(size, -np.inf)
    rows = np.array([doubt.row for doubt in doubts], dtype=np.int64)
    np.maximum.at(values, rows, [doubt.probability for doubt in doubts])
    return values


def auc(scores: np.ndarray, fault: np.ndarray, compared: np.ndarray) -> float:
    """AUC of scores; captions without a score rank as the least suspect."""
    values = np.where(np.isfinite(scores), scores, -1e9)
    return round(area_under_roc(values[compared], fault[compared].astype(bool)), 4)


def named(
    planting: Planting,
    kind: str,
    own: Sequence[WordDoubt],
    doubts: Sequence[WordDoubt],
    same: Mapping[str, frozenset[str]],
) -> dict[str, float | None]:
    """Share of faults whose word is the most doubted, and whose right word is proposed."""
    if kind == "phrase":
        return {"found": None, "found_in_kind": None, "right": None}
    best_of_kind, best = most_doubted(own), most_doubted(doubts)
    hits = []
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
    """Word most likely to be wrong, by row."""
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
    """Write lines to the records, replacing older lines of the same runs."""
    keys = ("data", "noise", "seed", "evidence")
    new = {tuple(line[key] for key in keys) for line in lines}
    old = read_records(RECORDS)
    kept = [line for line in old if tuple(line[key] for key in keys) not in new]
    write_lines(RECORDS, [json.dumps(line) for line in [*kept, *lines]])


if __name__ == "__main__":
    main()
