"""Build tables of docs/results/wrong_words_tables.md from the records of `study_words`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from page_tables import fill, read_records

ROOT = Path(__file__).resolve().parents[2]
RECORDS = ROOT / "docs" / "results" / "records" / "words.jsonl"
PAGE = ROOT / "docs" / "results" / "wrong_words_tables.md"
NOISE: dict[str, dict[str, float]] = {
    "uniform": {"color": 0.05, "number": 0.05, "object": 0.05},
    "actions": {"action": 0.05},
    # of numbers fewer: there are too few captions whose number language would not expect
    "plausible": {"plausible_number": 0.015}
    | {f"plausible_{topic}": 0.05 for topic in ("color", "object", "action")},
    "further": {"plausible_people": 0.05, "plausible_relation": 0.05, "phrase": 0.05},
    "negation": {"negation": 0.005},  # twice as many as there are negations to leave out
    "open": {"open_noun": 0.05, "open_verb": 0.02, "open_adjective": 0.02},
    "none": {},
}
EVIDENCE = {
    "text": {"siblings": False, "photos": False},
    "siblings": {"siblings": True, "photos": False},
    "photos": {"siblings": False, "photos": True},
    "all": {"siblings": True, "photos": True},
}
EVIDENCE |= {f"{name}, open": {**own, "vocabulary": "open"} for name, own in EVIDENCE.items()}
_LOOKS = (("joint_space",), ("captioner",), ("joint_space", "captioner"))
EVIDENCE |= {
    f"{first}, then {' and '.join(names)}": {**EVIDENCE[first], "look": names}
    for first, looks in (("photos", _LOOKS[2:]), ("all", _LOOKS))
    for names in looks
}
BOTH_AGAIN = "all, then joint_space and captioner"
UNSEEN = "flickr8k/unseen"  # validation and test: the package never learnt from them
SMALL = "flickr8k/2000"  # photos with which the open vocabulary was measured
TABLES = {
    "uniform": ("uniform", "actions"),
    "plausible": ("plausible",),
    "further": ("further", "negation"),
}
EDGES = (0, 0.01, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 1.0001)


def report() -> None:
    """Write the tables of the page from the records."""
    lines = read_records(RECORDS)
    flickr = [line for line in lines if line["data"] == "flickr8k"]
    small = [line for line in lines if line["data"] == SMALL]
    scenes = [line for line in lines if line["data"] == "miniworld" and is_shown(line)]
    unseen = [line for line in lines if line["data"] == UNSEEN]
    tables = {
        **{
            f"found {name}": found_table(
                [x for x in flickr if x["noise"] in noises and is_shown(x)],
            )
            for name, noises in TABLES.items()
        },
        "found in scenes": found_table(scenes),
        "found again": found_table(unseen),
        "probability again": reliability_table(unseen, ("all", BOTH_AGAIN)),
        "vocabularies": found_table(both_vocabularies(small)),
        "found open": found_table([x for x in small if x["noise"] == "open"]),
        "thirds": thirds_table(flickr),
        "probability": reliability_table(flickr),
        "cost": cost_table(lines),
    }
    fill(PAGE, tables)


def is_shown(line: Mapping[str, Any]) -> bool:
    """Whether a line belongs to the table of its faults; other lines compare vocabularies."""
    return line["noise"] == "open" or not line["evidence"].endswith("open")


def both_vocabularies(lines: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Lines of faults in closed rows scored with both vocabularies, for the same seeds."""
    key = ("noise", "seed")
    own = [x for x in lines if x["noise"] != "open" and x["evidence"].endswith("open")]
    pairs = {(*(x[k] for k in key), x["evidence"].removesuffix(", open")) for x in own}
    return [x for x in lines if (*(x[k] for k in key), x["evidence"]) in pairs] + own


def found_table(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Means over seeds, one row per kind of fault and of evidence."""
    head = "| fault | evidence | seeds | AUC | AUC within | word found | right word given |"
    rows = [head, "|---|---|---|---|---|---|---|"]
    own = [line for line in lines if line["kind"]]
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


def thirds_table(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """AUC of words by position in their captions, with all evidence; means over seeds."""
    rows = ["| fault | seeds | first third | second | last |", "|---|---|---|---|---|"]
    own = [line for line in lines if line["evidence"] == "all" and line.get("auc_by_third")]
    for kind in sorted({line["kind"] for line in own}):
        runs = [line["auc_by_third"] for line in own if line["kind"] == kind]
        thirds = [mean_of([{"auc": run[k]} for run in runs], "auc") for k in range(3)]
        rows.append(f"| `{kind}` | {len(runs)} | {' | '.join(thirds)} |")
    return rows


def mean_of(runs: Sequence[Mapping[str, Any]], key: str) -> str:
    """Mean, with the smallest and largest value if there are several."""
    values = [run[key] for run in runs if run[key] is not None]
    if not values:
        return "–"
    spread = f" ({min(values):.3f} to {max(values):.3f})" if len(values) > 1 else ""
    return f"{np.mean(values):.3f}{spread}"


def reliability_table(
    lines: Sequence[Mapping[str, Any]], evidence: Sequence[str] = ("all",)
) -> list[str]:
    """Predicted probabilities against planted shares, for all evidence or several kinds."""
    named = len(evidence) > 1
    first = "faults | evidence" if named else "faults"
    head = f"| {first} | probability, from | words | mean probability | planted |"
    rows = [head, f"|{'---|' * (5 + named)}"]
    for noise, name in product(NOISE, evidence):
        label = f"{noise} | {name}" if named else noise
        runs = [
            line["reliability"]
            for line in lines
            if (line["noise"], line["evidence"], line["kind"]) == (noise, name, None)
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
            rows.append(f"| {label} | {low} | {words:,} | {means[0]:.3f} | {means[1]:.3f} |")
    return rows


def cost_table(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Time of each kind of evidence."""
    rows = ["| evidence | captions | CPU seconds |", "|---|---|---|"]
    for evidence in EVIDENCE:
        for run in lines:
            if (run["noise"], run["evidence"]) == ("cost", evidence):
                rows.append(f"| {evidence} | {run['captions']:,} | {run['cpu_s']:.0f} |")
    return rows
