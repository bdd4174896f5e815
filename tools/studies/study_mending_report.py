"""Build tables of docs/results/wrong_words*.md on training with corrected captions."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from page_tables import fill
from report_parts import METRIC, ROOT, spread

from captioning.results.significance import paired_bootstrap, pool_runs
from captioning.results.table_formats import markdown_lines

PAGES = tuple(ROOT / "docs" / "results" / f"wrong_words{part}.md" for part in ("", "_tables"))
ORACLE = "curation/score=truth"
# The rows: overrides of captioning train. Those of the oracle know the planted words.
ARMS: dict[str, list[str]] = {
    "no curation": ["curation=none"],
    "oracle: mend": ["curation=replace_word", ORACLE],
    "oracle: remove": [
        *("curation=remove", ORACLE, "curation/select=above"),
        "curation/schedule=before_training",
    ],
    "oracle: mask": ["curation=mask_words", ORACLE],
    "replace_word": ["curation=replace_word"],
    "replace_word, from 0.5": ["curation=replace_word", "curation.amend.threshold=0.5"],
    "replace_word, from 0.7": ["curation=replace_word", "curation.amend.threshold=0.7"],
    "mask_words": ["curation=mask_words"],
    "remove by words": [
        *("curation=remove", "curation/score=words", "curation/select=above"),
        "curation/schedule=before_training",
    ],
    "condition": ["curation=condition"],
}
PLAIN, BEST = "no curation", "oracle: mend"
# No share is shown where the oracle gains less with one of the seeds: seeds alone can cause it.
MIN_ORACLE_GAIN = 0.01
TOPICS = ("color", "object", "number")
Runs = Mapping[int, Mapping[str, Any]]  # by seed


def report(lines: Sequence[Mapping[str, Any]], pages: Sequence[Path] = PAGES) -> None:
    """Write the tables between their marks, and leave the rest of the pages unchanged."""
    built = tables(lines)
    for page in pages:
        fill(page, built)


def tables(lines: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """All tables by the names of their marks."""
    found = {}
    for data in sorted({line["data"] for line in lines}):
        own = [line for line in lines if line["data"] == data]
        clean = by_arm(own, "none")
        for noise in sorted({line["noise"] for line in own}):
            arms = by_arm(own, noise)
            found[f"training {data} {noise}"] = score_table(arms, clean, noise)
            found[f"wrong words {data} {noise}"] = wrong_table(arms, clean, noise)
            found[f"losses {data} {noise}"] = loss_table(arms, clean, noise)
            found[f"mends {data} {noise}"] = mend_table(arms)
        found[f"origin {data}"] = origin(own)
    return found


def by_arm(lines: Sequence[Mapping[str, Any]], noise: str) -> dict[str, Runs]:
    """Runs of a noise by arm, in the order of the arms, and by seed."""
    own = [line for line in lines if line["noise"] == noise]
    arms = {arm: {x["seed"]: x for x in own if x["arm"] == arm} for arm in ARMS}
    return {arm: runs for arm, runs in arms.items() if runs}


def shown(arms: Mapping[str, Runs], clean: Mapping[str, Runs], noise: str) -> dict[str, Runs]:
    """Rows of a table; if faults were planted, the clean data come first."""
    first = {"clean data": clean[PLAIN]} if noise != "none" and PLAIN in clean else {}
    return {**first, **arms}


def scores(runs: Runs) -> dict[int, float]:
    """Test score by seed."""
    return {seed: run["scores"][METRIC] for seed, run in runs.items()}


def score_table(arms: Mapping[str, Runs], clean: Mapping[str, Runs], noise: str) -> list[str]:
    """Test score of each arm, with the share of the oracle's gain."""
    last = "95% interval" if noise == "none" else "won back"
    rows = []
    for name, runs in shown(arms, clean, noise).items():
        plain = {s: v for s, v in scores(arms.get(PLAIN, {})).items() if s in runs}
        gains = [scores(runs)[seed] - value for seed, value in plain.items()]
        worth = "-"
        if name != PLAIN and noise == "none":
            worth = interval(arms.get(PLAIN, {}), runs)
        elif name != PLAIN:
            worth = share(runs, arms)
        gain = "-" if name == PLAIN else spread(gains, "+.4f")
        score = spread(list(scores(runs).values()), ".4f")
        rows.append((name, str(len(runs)), score, gain, worth))
    return markdown_lines(("arm", "seeds", METRIC, "against no curation", last), rows)


def share(
    runs: Runs, arms: Mapping[str, Runs], values: Callable[[Runs], dict[int, float]] = scores
) -> str:
    """Share of the gain of the correcting oracle, over the seeds that all arms have."""
    row, plain, best = (values(x) for x in (runs, arms.get(PLAIN, {}), arms.get(BEST, {})))
    known = {seed: best[seed] - plain[seed] for seed in best.keys() & plain.keys()}
    seeds = sorted(row.keys() & known.keys())
    if not seeds or min(known.values()) < MIN_ORACLE_GAIN:
        return "-"
    gain = statistics.fmean(row[seed] - plain[seed] for seed in seeds)
    return f"{100 * gain / statistics.fmean(known[seed] for seed in seeds):.0f}%"


def likelihoods(runs: Runs, topic: str = "all") -> dict[int, float]:
    """Negative loss of the test photos' captions, or of a topic's words in them, by seed."""
    return {seed: -run["losses"][topic] for seed, run in runs.items() if "losses" in run}


def loss_table(arms: Mapping[str, Runs], clean: Mapping[str, Runs], noise: str) -> list[str]:
    """Likelihood of human captions of the test photos for each arm, with the share of the gain."""
    rows = []
    for name, runs in shown(arms, clean, noise).items():
        if seeds := len(likelihoods(runs)):
            cells = [_loss(name, runs, arms, topic) for topic in ("all", *TOPICS)]
            plain, row = likelihoods(arms.get(PLAIN, {})), likelihoods(runs)
            losses = [plain[seed] - row[seed] for seed in sorted(row.keys() & plain.keys())]
            rows.append(
                (name, str(seeds), *cells, "-" if name == PLAIN else spread(losses, "+.4f"))
            )
    heads = ("all tokens", "colours", "objects", "numbers", "all tokens, against no curation")
    return markdown_lines(("arm", "seeds", *heads), rows)


def _loss(name: str, runs: Runs, arms: Mapping[str, Runs], topic: str) -> str:
    """Mean loss, with the share of the oracle's gain in brackets."""
    values = partial(likelihoods, topic=topic)
    cell = spread([-value for value in values(runs).values()], ".3f")
    won = "-" if name in (PLAIN, BEST) else share(runs, arms, values)
    return cell if won == "-" else f"{cell} ({won})"


def interval(before: Runs, after: Runs) -> str:
    """Paired bootstrap over test images of two rows' difference."""
    seeds = sorted(before.keys() & after.keys())
    if not seeds:
        return "-"
    pools = [
        pool_runs(
            [{i: {METRIC: v} for i, v in runs[seed]["per_image"].items()} for seed in seeds],
            METRIC,
        )
        for runs in (before, after)
    ]
    result = paired_bootstrap(*pools, METRIC, generator=np.random.default_rng(0))
    return f"{result.low:+.4f} to {result.high:+.4f}, p {result.p_value:.3f}"


def wrong_table(arms: Mapping[str, Runs], clean: Mapping[str, Runs], noise: str) -> list[str]:
    """Share of wrong words in captions of the test photos, by source of the facts."""
    rows = []
    for name, runs in shown(arms, clean, noise).items():
        for source in next(iter(runs.values()))["wrong"]:
            cells = [rate(runs, source, topic) for topic in (*TOPICS, "captions")]
            rows.append((name, source, *cells))
    heads = ("arm", "compared with", "colours", "objects", "numbers", "captions with a wrong word")
    return markdown_lines(heads, rows)


def rate(runs: Runs, source: str, topic: str) -> str:
    """Mean and spread over seeds in per cent; for words also the number per hundred captions."""
    counts = [run["wrong"][source][topic] for run in runs.values()]
    values = [100 * wrong / total for wrong, total in counts if total]
    if not values:
        return "-"
    deviation = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    if topic == "captions":
        return f"{statistics.fmean(values):.1f}{deviation}%"
    captions = [run["wrong"][source]["captions"][1] for run in runs.values()]
    words = statistics.fmean(100 * c[1] / n for c, n in zip(counts, captions, strict=True))
    return f"{statistics.fmean(values):.1f}{deviation}% of {words:.0f}"


def mend_table(arms: Mapping[str, Runs]) -> list[str]:
    """Fate of captions: corrected rightly, wrongly or needlessly, masked, removed."""
    columns: dict[str, Callable[[Mapping[str, Any]], Any]] = {
        "faulty": lambda run: run["detection"].get("num_faulty"),
        "right word inserted": lambda run: run["detection"].get("num_mended_right"),
        "still wrong": lambda run: run["detection"].get("num_mended_wrong"),
        "correct, changed": lambda run: run["detection"].get("num_mended_needless"),
        "masked": lambda run: run["edits"].get("num_masked"),
        "removed": lambda run: run["edits"].get("num_removed"),
    }
    rows = []
    for name, runs in arms.items():
        values = [[get(run) for run in runs.values()] for get in columns.values()]
        if name != PLAIN:
            means = [statistics.fmean(v) if None not in v else None for v in values]
            rows.append((name, *("-" if mean is None else f"{mean:,.0f}" for mean in means)))
    return markdown_lines(("arm", *columns), rows)


def origin(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Scale, commits, machines and dates of the runs."""
    settings = lines[0]["settings"]
    parts = [
        f"{settings['model.name']}, {settings['first_images']} training photos, "
        f"{settings['num_epochs']} epochs"
    ]
    for key in ("commit", "machine", "date"):
        values = sorted({str(line["versions"][key]) for line in lines})
        parts.append(f"{key} {', '.join(values)}")
    return [f"{'; '.join(parts)}."]
