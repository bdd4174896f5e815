"""Build a table of scores from run folders or records: ``captioning table RUNS... --group KEYS``.

Each row is a group of runs with the same values of the config keys of ``--group``, each cell the
mean and the sample standard deviation over the group's seeds. ``--against`` names a row and adds
the differences of the other rows from it. A missing value is shown as missing and counted, never as
0. Runs that must not share a column raise an error. Examples: ``docs/guides/review.md``.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from captioning.results.runs import Run, read_published, read_runs
from captioning.results.significance import (
    PairedDifference,
    has_means,
    paired_bootstrap,
    pool_runs,
)
from captioning.results.table_formats import (
    FORMATS,
    MISSING,
    Cell,
    Difference,
    Row,
    Table,
)

DEFAULT_METRICS = ("BLEU-4", "METEOR", "ROUGE-L", "CIDEr-D", "SPICE")
# Metrics whose lowest value is the best, and metrics that are no fractions; matched at the start.
LOWER_IS_BETTER = re.compile(r"mBLEU|FID|paired L2|timing\.seconds|(Hal|missing|L)$")
NO_FRACTIONS = re.compile(r"detection\.(.*\.)?num_|timing\.|FID|paired L2|novel-sentences$|L$")
_NO_CAPTION_SCORES = ("detection.", "timing.")
_RESAMPLES = 10_000

Groups = dict[tuple[str | None, ...], list[Run]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of a table.

    Attributes:
        group: dotted config keys, with a row for each combination of values.
        metrics: corpus scores of ``split``, or ``detection.KEY``, ``timing.KEY``.
        split: part of ``metrics.json``.
        percent: scores times 100, except for scores that are not fractions (`NO_FRACTIONS`).
        digits: number of decimals; by default 2 with ``percent``, else 4.
        best: mark each column's best mean.
        lower: further names of metrics whose lowest value is the best.
        against: values of ``group`` in the row that other rows are compared with.
        published: further rows, of published scores by metric.
        command: command that built the table, for its header.
    """

    group: Sequence[str] = ("run_name",)
    metrics: Sequence[str] = DEFAULT_METRICS
    split: str = "test"
    percent: bool = False
    digits: int | None = None
    best: bool = False
    lower: Sequence[str] = ()
    against: Sequence[str] | None = None
    published: Mapping[str, Mapping[str, float]] | None = None
    command: str = ""

    def factor(self, metric: str) -> float:
        """Factor for a metric's scores."""
        return 100.0 if self.percent and not NO_FRACTIONS.match(metric) else 1.0

    def is_lower_better(self, metric: str) -> bool:
        """Whether the lowest value of a metric is the best."""
        return metric in self.lower or LOWER_IS_BETTER.match(metric) is not None


def build_table(runs: Sequence[Run], options: Options) -> Table:
    """Group runs, average over seeds, and compare rows.

    Raises:
        ValueError: runs of different data are not grouped by ``data.name``, references or
            tokenizers differ, a row has a seed twice, no run has a config key or split, or rows
            cannot be compared.
    """
    _check_comparable(runs, options)
    groups: Groups = {}
    for run in runs:
        groups.setdefault(tuple(run.setting(key) for key in options.group), []).append(run)
    for label, members in groups.items():
        _check_seeds(label, members, options.group)
    rows = [_row(label, members, options) for label, members in groups.items()]
    compared: list[str] = []
    if options.against is not None:
        rows, compared = _compare(rows, groups, options)
    if options.best:
        rows = _mark_best(rows, options)
    rows += [_published_row(*item, options) for item in (options.published or {}).items()]
    return Table(
        group=tuple(options.group),
        metrics=tuple(options.metrics),
        compared=tuple(compared),
        against=", ".join(options.against or ()),
        rows=tuple(rows),
        head=_head(runs, options),
        digits=_digits(options),
    )


def _digits(options: Options) -> int:
    return options.digits if options.digits is not None else 2 if options.percent else 4


def _row(label: tuple[str | None, ...], runs: Sequence[Run], options: Options) -> Row:
    cells = []
    for name in options.metrics:
        values = [value for run in runs if (value := run.value(name, options.split)) is not None]
        scaled = [value * options.factor(name) for value in values]
        cells.append(
            Cell(
                mean=statistics.fmean(scaled) if scaled else None,
                spread=statistics.stdev(scaled) if len(scaled) > 1 else None,
                num_runs=len(scaled),
                num_missing=len(runs) - len(scaled),
            )
        )
    return Row(labels=label, num_runs=len(runs), cells=tuple(cells))


def _published_row(name: str, scores: Mapping[str, float], options: Options) -> Row:
    cells = [
        Cell(mean=scores[metric] * options.factor(metric)) if metric in scores else Cell()
        for metric in options.metrics
    ]
    labels = (name, *(None for _ in options.group[1:]))
    return Row(labels=labels, num_runs=None, cells=tuple(cells))


def _mark_best(rows: Sequence[Row], options: Options) -> list[Row]:
    """Mark each column's best mean, with ties at the printed precision, if there are several."""
    digits, columns = _digits(options), []
    for number, name in enumerate(options.metrics):
        cells = [row.cells[number] for row in rows]
        printed = [None if c.mean is None else round(c.mean, digits) for c in cells]
        values = [value for value in printed if value is not None]
        choose = min if options.is_lower_better(name) else max
        best = choose(values) if len(values) > 1 else None
        marks = [value is not None and value == best for value in printed]
        columns.append([replace(c, is_best=m) for c, m in zip(cells, marks, strict=True)])
    marked = zip(*columns, strict=True)
    return [replace(row, cells=cells) for row, cells in zip(rows, marked, strict=True)]


def _compare(rows: Sequence[Row], groups: Groups, options: Options) -> tuple[list[Row], list[str]]:
    """Rows with their differences from one row, and the metrics that have differences."""
    label = tuple(options.against or ())
    if label not in groups:
        known = "; ".join(" ".join(map(str, key)) for key in groups)
        raise ValueError(f"--against must give a row's values of {options.group}: one of {known}")
    baseline, compared = groups[label], []
    for row in rows:
        group = groups[row.labels]
        pairs = [
            replace(cell, difference=_difference(baseline, group, name, options))
            if row.labels != label
            else cell
            for cell, name in zip(row.cells, options.metrics, strict=True)
        ]
        compared.append(replace(row, cells=tuple(pairs), is_baseline=row.labels == label))
    with_some = [
        name
        for number, name in enumerate(options.metrics)
        if any(row.cells[number].difference is not None for row in compared)
    ]
    if not with_some:
        raise ValueError(
            f"nothing to compare with {' '.join(label)}: no other row has per-image scores of "
            f"{', '.join(options.metrics)} (BLEU has none; records leave them out by default, so "
            "give the run folders)"
        )
    return compared, with_some


def _difference(
    before: Sequence[Run], after: Sequence[Run], metric: str, options: Options
) -> Difference | None:
    """Mean difference over the images, with common seeds pooled; None without per-image scores."""
    if not has_means(metric) or metric.startswith(_NO_CAPTION_SCORES):
        return None
    first, second = (_by_seed(runs, metric, options.split) for runs in (before, after))
    if not first or not second:
        return None
    seeds = [seed for seed in first if seed in second]
    if not seeds:
        raise ValueError(
            f"runs to be compared must share a seed: {before[0].folder} and its row have "
            f"{', '.join(map(str, first))}, {after[0].folder} and its row "
            f"{', '.join(map(str, second))}"
        )
    try:
        result = paired_bootstrap(
            pool_runs([first[seed] for seed in seeds], metric),
            pool_runs([second[seed] for seed in seeds], metric),
            metric,
            generator=np.random.default_rng(0),
            num_resamples=_RESAMPLES,
        )
    except ValueError as error:
        pair = f"{before[0].folder} against {after[0].folder}"
        raise ValueError(f"{pair} (and further seeds): {error}") from error
    num_missing = max(len(before), len(after)) - len(seeds)
    return _scaled(result, options.factor(metric), len(seeds), num_missing)


def _by_seed(
    runs: Sequence[Run], metric: str, split: str
) -> dict[str | None, Mapping[str, Mapping[str, float]]]:
    """Per-image scores by seed, for runs that have the metric."""
    images_by_seed = {run.setting("seed"): run.scores(split, "per_image") for run in runs}
    return {
        seed: images
        for seed, images in images_by_seed.items()
        if any(metric in scores for scores in images.values())
    }


def _scaled(
    difference: PairedDifference, factor: float, num_pairs: int, num_missing: int
) -> Difference:
    return Difference(
        mean=difference.mean * factor,
        low=difference.low * factor,
        high=difference.high * factor,
        p_value=difference.p_value,
        num_pairs=num_pairs,
        num_missing=num_missing,
    )


def _check_comparable(runs: Sequence[Run], options: Options) -> None:
    for key in options.group:
        if all(run.setting(key) is None for run in runs):
            raise ValueError(f"no run has the config key {key!r} of --group")
    splits = {name for run in runs for name in run.metrics if run.scores(name, "corpus")}
    if splits and options.split not in splits:
        raise ValueError(f"no run has the split {options.split!r}: they have {sorted(splits)}")
    names = {run.setting("data.name") for run in runs}
    if len(names) > 1 and "data.name" not in options.group:
        listed = ", ".join(sorted(str(name) for name in names))
        raise ValueError(
            f"runs of different data ({listed}) must not share a column; "
            "make one table for each, or add data.name to --group"
        )
    if all(name.startswith(_NO_CAPTION_SCORES) for name in options.metrics):
        return
    for key in ("tokenizer", "references_hash", "cider_statistics"):
        _check_alike(runs, key, options.split)


def _check_alike(runs: Sequence[Run], key: str, split: str) -> None:
    """Raise an error if scores were computed with different values of a setting."""
    first: dict[str | None, tuple[object, Path]] = {}
    for run in runs:
        settings = run.scores(split, "settings")
        if not settings:
            continue
        value = settings.get(key)
        # each data set has its own references, but the tokenizer must be one for all
        data = None if key == "tokenizer" else run.setting("data.name")
        first_value, folder = first.setdefault(data, (value, run.folder))
        if first_value != value:
            raise ValueError(
                f"scores with another {key} are not comparable: {first_value} in {folder}, {value} "
                f"in {run.folder}; `captioning compare` scores two runs on one test set, or make "
                "two tables"
            )


def _check_seeds(label: Sequence[str | None], runs: Sequence[Run], group: Sequence[str]) -> None:
    seen: dict[str, Path] = {}
    for run in runs:
        seed = run.setting("seed")
        if seed is not None and seed in seen:
            raise ValueError(
                f"row {', '.join(map(str, label))}: seed {seed} occurs twice, in {seen[seed]} and "
                f"{run.folder}; add the config key that tells them apart to --group "
                f"(now: {', '.join(group)})"
            )
        if seed is not None:
            seen[seed] = run.folder


def _head(runs: Sequence[Run], options: Options) -> tuple[str, ...]:
    dates = sorted(str(run.versions["date"]) for run in runs if run.versions.get("date"))
    used = (run.scores(options.split, "settings").get("tokenizer") for run in runs)
    facts = {
        "built by": options.command or MISSING,
        "split": f"{options.split}, {len(runs)} runs, mean ± sample standard deviation over seeds",
        "scale": _scale(options),
    }
    if options.against is not None:
        facts["differences"] = (
            f"to {', '.join(options.against)}: mean over images of the differences of single "
            "images' scores (METEOR's corpus score is no such mean), the same seeds of both "
            "pooled, with the 95% interval and two-sided p of a paired bootstrap "
            f"({_RESAMPLES} resamples of the images, not of the seeds; not corrected for the "
            "number of comparisons)"
        )
    if options.published:
        facts["rows without runs"] = "published scores, not measured here"
    facts |= {
        "commit": _distinct(run.versions.get("commit") for run in runs),
        "seeds": _distinct(run.setting("seed") for run in runs),
        "machine": _distinct(run.versions.get("machine") for run in runs),
        "date": " to ".join(dict.fromkeys((dates[0], dates[-1]))) if dates else MISSING,
        "data": _distinct(run.setting("data.name") for run in runs),
        "tokenizer": _distinct(used),
    }
    commands = dict.fromkeys(str(run.versions.get("command") or MISSING) for run in runs)
    lines = [f"{name}: {value}" for name, value in facts.items()]
    return (*lines, *(f"run: {text}" for text in commands))


def _scale(options: Options) -> str:
    if not options.percent:
        return "as in metrics.json: fractions, CIDEr-D at most 10"
    as_they_are = [name for name in options.metrics if options.factor(name) == 1]
    return "scores times 100" + (f", but not {', '.join(as_they_are)}" if as_they_are else "")


def _distinct(values: Iterable[object]) -> str:
    return ", ".join(dict.fromkeys(MISSING if v is None else str(v) for v in values)) or MISSING


def table_text(
    *,
    runs: Sequence[str],
    format: str,
    only: Sequence[str] = (),
    published: Path | None = None,
    **options: Any,
) -> str:
    """Build the table of some runs as text.

    Args:
        runs: run folders, folders that hold some, or files of records.
        format: one of `captioning.results.table_formats.FORMATS`.
        only: patterns of run names to read, with ``*`` and ``?``; empty: all.
        published: YAML file of published scores, see `read_published`.
        **options: see `Options`.

    Raises:
        ValueError, OSError: runs cannot be read, or must not share a table.
    """
    scores = None if published is None else read_published(published)
    table = build_table(read_runs(runs, only=only), Options(published=scores, **options))
    return FORMATS[format](table)
