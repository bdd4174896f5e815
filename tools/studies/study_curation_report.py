"""Build tables and figure of the curation benchmark from the records of its runs."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import zip_longest
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import MaxNLocator
from page_tables import read_records, share_of
from report_parts import (
    METRIC,
    RECORDS,
    ROOT,
    Table,
    head,
    read_table,
    scores,
    spread,
    studies,
    write_page,
)

from captioning.results.runs import METRICS, Run, keep_record
from captioning.results.significance import paired_bootstrap, pool_runs
from captioning.results.table_formats import markdown_lines, put_between_marks
from captioning.runtime.files import read_json, write_atomically
from curation.detect import FILE_NAME
from curation.loop.ledger import read_history

# Scores of single images, by which close rows are told apart, are kept of runs on sound data, and
# of those by which curation=recommended is judged.
PER_IMAGE = ("none",)
RECOMMENDED, ORACLE = "remove_recommended_before", "remove_oracle_before"
JUDGED = {"track": "none", RECOMMENDED: "recommended", ORACLE: "oracle"}
FAULTS_OF = {"none": "0%", "swap5": "5%", "swap20": "20%", "swap40": "40%"}
CAPTIONS_OF = {"flickr8k": "five", "flickr8k_2000": "five", "flickr8k_one": "one"}
PAGE = ROOT / "docs" / "results" / "recommended.md"
SELECTOR = (
    "python tools/studies/study_curation.py --selector --noise none swap5 swap20 swap40 "
    "--space coco_heads.safetensors"
)
TRAINED = (
    "python tools/studies/study_curation.py "
    "--policies remove_recommended_before remove_oracle_before "
    "--space coco_heads.safetensors --data DATA --noise NOISE -- threads=1 start_score=false "
    "trainer.precision=32-true +trainer.limit_val_batches=0 "
    "'metrics.test=[BLEU,ROUGE-L,CIDEr-D]', for flickr8k_one also num_epochs=6 (the records' "
    "command called this for each cell in one process that embedded every photo once); then "
    "captioning record --per-image CIDEr-D and --report"
)
# No share of a smaller gain of the oracle is shown: seeds alone can cause such a gain.
MIN_ORACLE_GAIN = 0.01
# Number of epochs whose losses are drawn in long runs, the first and the last among them.
MAX_EPOCHS_DRAWN = 5
# What the README shows, of a fifth of the captions swapped: data set, policy, and its name there.
SUMMARY_NOISE = "swap20"
SUMMARY = (
    ("flickr8k_2000", RECOMMENDED, "`recommended`, 2,000 photos with five captions"),
    ("flickr8k_one", RECOMMENDED, "`recommended`, 6,000 photos with one caption"),
    ("flickr8k", "remove_siblings", "`siblings`: unlike the photo's other captions"),
    ("flickr8k", "remove_visual_gain", "`visual_gain`: the photo hardly lowers the loss"),
    ("flickr8k", "remove_top_loss_10", "plain loss: the highest 10% after each epoch"),
)

Panel = Callable[[plt.Axes], None]


def keep(data: str, runs: Path) -> None:
    """Record all finished runs, and draw the figure from records and losses.

    Args:
        data: name of the dataset.
        runs: parent of the folders ``DATA-NOISE``.
    """
    for folder in sorted(runs.glob(f"{data}-*/*/seed*")):
        kept = folder.parent.parent.name.endswith(PER_IMAGE) or folder.parent.name in JUDGED
        metrics = [METRIC] if kept else []
        if (folder / METRICS).is_file():
            keep_record(folder, RECORDS, per_image=metrics)
    table = read_table(studies(RECORDS, f"{data}-*"))
    picture = ROOT / "docs" / "images" / f"curation_{data}.png"
    write_atomically(picture, lambda part: draw(table, runs, part))
    print(picture)


def report(data: str) -> None:
    """Write the page of a dataset from the records."""
    table = read_table(studies(RECORDS, f"{data}-*"))
    lines = [f"# Benchmark of curation on {data}", ""]
    command = f"python tools/studies/study_curation.py --data {data} --report"
    lines += head(command, table)
    if data in CAPTIONS_OF:
        put_between_marks(PAGE, recommended(), "recommended")
    print(write_page(f"curation_{data}", [*lines, *won_back(table), *detection_tables(table)]))


def won_back(table: Table) -> list[str]:
    """Table per noise: test score, and share of the oracle's gain over no curation."""
    lines: list[str] = []
    for noise in sorted({noise for noise, _ in table}):
        rows = {name: runs for (planted, name), runs in table.items() if planted == noise}
        if rows.keys() - {"track"}:
            lines += [f"## {noise}: test {METRIC}", "", _size(rows), ""]
            lines += [*_rows(noise, rows, list(rows)), ""]
    lines += [
        "`track` is no curation. Won back: mean over seeds of the gain over no curation, divided "
        "by that of the oracle, which removes exactly the faults, if that is at least "
        f"{MIN_ORACLE_GAIN}; rows that end in `_before` act before training and are held against "
        "`remove_oracle_before`, the others once at the end "
        "of the second epoch or, those by loss, after every epoch from then on. 95% interval: of "
        "the mean difference to no curation over the test images, the seeds of both pooled, with "
        "the two-sided p of a paired bootstrap. Precision: of what was selected first.",
        "",
    ]
    return lines


def recommended() -> str:
    """Tables of ``curation=recommended``: what it removes, and its effect on the test score."""
    lines = ["What it would remove from Flickr8k's training captions, swapped between photos:", ""]
    counts = read_records(RECORDS / "recommended.jsonl")
    columns = (
        "captions a photo",
        "planted",
        "seeds",
        "estimated",
        "removed",
        "precision",
        "recall",
    )
    lines += markdown_lines(columns, [row for row in _selected(counts) if row])
    lines += ["", f"- built by: {SELECTOR}, also with --data flickr8k_one; then --report"]
    for name in ("space", "commit", "machine", "date"):
        lines.append(f"- {name}: {', '.join(sorted({c[name] for c in counts}))}")
    lines.append("")
    return "\n".join([*lines, *_what_it_is_worth()])


def _what_it_is_worth() -> list[str]:
    """Table of trainings with and without recommended curation, and its sources."""
    runs: Table = {}
    rows = []
    for data, captions in CAPTIONS_OF.items():
        table = read_table(studies(RECORDS, f"{data}-*"))
        for noise, planted in FAULTS_OF.items():
            judged = _judged(table, noise)
            if judged:
                rows.append((captions, _trained_on(judged["track"]), planted, *_worth(judged)))
                runs |= {(data, noise, name): by_seed for name, by_seed in judged.items()}
    if not rows:
        return []
    columns = ("captions a photo", "trained on", "planted", "seeds", *JUDGED.values(), "won back")
    return [
        f"Trained with it, test {METRIC} against no curation and an oracle:",
        "",
        *markdown_lines((*columns, "recommended against none"), rows),
        "",
        *head(TRAINED, runs),
    ]


def _selected(counts: Sequence[dict]) -> Iterator[tuple[str, ...]]:
    for data, captions in CAPTIONS_OF.items():
        for noise, planted in FAULTS_OF.items():
            found = [c for c in counts if (c["data"], c["noise"]) == (data, noise)]
            if not found:
                continue
            total = {key: sum(c[key] for c in found) for key in ("captions", "planted", "right")}
            removed = sum(c["removed"] for c in found)
            estimated = statistics.fmean(c["estimated"] for c in found)
            yield (
                *(captions, planted, str(len(found)), f"{estimated:.1%}"),
                f"{removed / total['captions']:.1%}",
                share_of(total["right"], removed if total["planted"] else 0),
                share_of(total["right"], total["planted"]),
            )


def _judged(table: Table, noise: str) -> dict[str, dict[int, Run]]:
    """Runs of a noise by policy, for seeds that all policies have; empty without such seeds."""
    names = [name for name in JUDGED if noise not in PER_IMAGE or name != ORACLE]
    runs = {name: table.get((noise, name), {}) for name in names}
    seeds = sorted(set.intersection(*(set(scores(by_seed)) for by_seed in runs.values())))
    return {name: {seed: runs[name][seed] for seed in seeds} for name in names} if seeds else {}


def _trained_on(runs: dict[int, Run]) -> str:
    run = next(iter(runs.values()))
    photos = run.setting("first_images")
    number = "all" if photos is None else f"{int(photos):,}"
    return f"{number} photos, {run.setting('num_epochs')} epochs"


def _worth(judged: dict[str, dict[int, Run]]) -> tuple[str, ...]:
    """Number of seeds, score per policy, share of the oracle's gain, and interval."""
    by_name = {name: scores(by_seed) for name, by_seed in judged.items()}
    shown = [spread(list(by_name.get(name, {}).values()), ".3f") for name in JUDGED]
    plain, found = judged["track"], judged[RECOMMENDED]
    known = all(run.scores("test", "per_image") for run in (*plain.values(), *found.values()))
    gains = [by_name[RECOMMENDED][seed] - by_name["track"][seed] for seed in plain]
    return (
        *(str(len(plain)), *shown),
        _share(by_name[RECOMMENDED], by_name["track"], by_name.get(ORACLE, {})),
        f"{spread(gains, '+.3f')}; {interval(plain, found) if known else '-'}",
    )


def _size(rows: dict[str, dict[int, Run]]) -> str:
    """Number of training images and epochs of the runs, naming all values if they differ."""
    runs = [run for by_seed in rows.values() for run in by_seed.values()]
    # the earliest records have the number of images by another name
    numbers = {run.setting("first_images") or run.setting("limit_images") for run in runs}
    images = sorted(numbers, key=str)
    epochs = sorted({run.setting("num_epochs") for run in runs}, key=str)
    image_texts = ["all" if number is None else number for number in images]
    return f"{' or '.join(image_texts)} training images, {' or '.join(map(str, epochs))} epochs."


def _rows(noise: str, rows: dict[str, dict[int, Run]], shown: Collection[str]) -> list[str]:
    """Rows of policies of a noise, the best first."""
    column = "95% interval" if noise in PER_IMAGE else "won back"
    columns = ("policy", "seeds", METRIC, "against no curation", column, "precision")
    cells = []
    for name in sorted(shown, key=lambda name: -_mean(scores(rows[name]).values())):
        gain, last = ("-", "-") if name == "track" else _gain(noise, name, rows)
        score = spread(list(scores(rows[name]).values()), ".4f")
        cells.append((name, str(len(rows[name])), score, gain, last, _precision(rows[name])))
    return markdown_lines(columns, cells)


def summary() -> str:
    """Rows of the README, one per policy, beside no curation and the oracle of the same data."""
    rows = []
    for data, name, shown in SUMMARY:
        table = read_table(studies(RECORDS, f"{data}-{SUMMARY_NOISE}"))
        policies = ("track", name, _oracle_of(name))
        runs = [table[SUMMARY_NOISE, policy] for policy in policies]
        seeds = sorted(set.intersection(*(set(scores(by_seed)) for by_seed in runs)))
        plain, policy, oracle = ([scores(by_seed)[s] for s in seeds] for by_seed in runs)
        cells = [spread(values, ".3f") for values in (plain, policy, oracle)]
        share = _share(scores(runs[1]), scores(runs[0]), scores(runs[2]))
        rows.append((shown, *cells, share, _precision(runs[1])))
    columns = ("removed by", "no curation", "curated", "oracle", "won back", "precision")
    return "\n".join(markdown_lines(columns, rows)) + "\n"


def _oracle_of(name: str) -> str:
    """Row of the oracle that removes exactly the faults at the same time as this policy."""
    return ORACLE if name.endswith("_before") else "remove_oracle"


def _gain(noise: str, name: str, rows: dict[str, dict[int, Run]]) -> tuple[str, str]:
    """Difference to no curation, and share of the oracle's gain."""
    row, plain = scores(rows[name]), scores(rows.get("track", {}))
    gain = spread([row[seed] - plain[seed] for seed in sorted(row.keys() & plain.keys())], "+.4f")
    if noise in PER_IMAGE:
        return gain, interval(rows.get("track", {}), rows[name])
    return gain, _share(row, plain, scores(rows.get(_oracle_of(name), {})))


def _precision(runs: dict[int, Run]) -> str:
    """Precision of the first selection."""
    entries = [[entry.get("precision") for entry in run.detection] for run in runs.values()]
    hits = [next((hit for hit in run if hit is not None), None) for run in entries]
    return spread([hit for hit in hits if hit is not None], ".2f")


def interval(before: dict[int, Run], after: dict[int, Run]) -> str:
    """Paired bootstrap over test images of two rows' difference."""
    seeds = sorted(scores(before).keys() & scores(after).keys())
    if not seeds:
        return "-"
    pools = [
        pool_runs([runs[seed].scores("test", "per_image") for seed in seeds], METRIC)
        for runs in (before, after)
    ]
    result = paired_bootstrap(*pools, METRIC, generator=np.random.default_rng(0))
    return f"{result.low:+.4f} to {result.high:+.4f}, p {result.p_value:.3f}"


def _share(row: dict[int, float], plain: dict[int, float], oracle: dict[int, float]) -> str:
    seeds = sorted(row.keys() & plain.keys() & oracle.keys())
    if not seeds:
        return "-"
    gain = statistics.fmean(row[s] - plain[s] for s in seeds)
    oracle_gain = statistics.fmean(oracle[s] - plain[s] for s in seeds)
    return f"{100 * gain / oracle_gain:.0f}%" if oracle_gain >= MIN_ORACLE_GAIN else "-"


def _mean(values: Sequence[float]) -> float:
    values = list(values)
    return statistics.fmean(values) if values else float("-inf")


def by_score(runs: dict[int, Run]) -> dict[int, dict[str, list[dict]]]:
    """Detection results of all seeds, by epoch and score."""
    detections: dict[int, dict[str, list[dict]]] = {}
    for run in runs.values():
        for entry in run.files.get(f"curation/{FILE_NAME}", ()):
            for name, values in entry["scores"].items():
                detections.setdefault(entry["epoch"], {}).setdefault(name, []).append(values)
    return detections


def detection_tables(table: Table) -> list[str]:
    """Table per noise: how well each score finds each kind of fault, by epoch."""
    lines: list[str] = []
    for noise in sorted({noise for noise, _ in table}):
        epochs = by_score(table.get((noise, "track"), {}))
        if not epochs:
            continue
        kinds = sorted({k for e in epochs.values() for s in e.values() for k in s[0]["by_kind"]})
        lines += [f"## {noise}: how well each score finds the faults", ""]
        lines += ["Area under the ROC curve, and precision at the noise rate, mean over seeds.", ""]
        columns = ["all", *kinds] if len(kinds) > 1 else ["all"]
        rows = [
            (name, _ranges(when), *cells)
            for name in sorted({name for entry in epochs.values() for name in entry})
            for cells, when in _epochs_by_cells(epochs, name, columns).items()
        ]
        lines += [*markdown_lines(["score", "epoch", *columns], rows), ""]
    return lines


def _ranges(numbers: Sequence[int]) -> str:
    """Rising numbers as text, consecutive ones as first-last."""
    runs_of_numbers: list[list[int]] = []
    for number in numbers:
        if runs_of_numbers and number == runs_of_numbers[-1][-1] + 1:
            runs_of_numbers[-1] = [runs_of_numbers[-1][0], number]
        else:
            runs_of_numbers.append([number])
    return ", ".join("-".join(map(str, bounds)) for bounds in runs_of_numbers)


def _epochs_by_cells(
    epochs: dict[int, dict[str, list[dict]]], name: str, columns: Sequence[str]
) -> dict[tuple[str, ...], list[int]]:
    """Cells of a score with the epochs that share them, as some scores never change."""
    epochs_by_cells: dict[tuple[str, ...], list[int]] = {}
    for epoch, by_name in sorted(epochs.items()):
        if name in by_name:
            cells = tuple(_cell(by_name[name], kind) for kind in columns)
            epochs_by_cells.setdefault(cells, []).append(epoch + 1)
    return epochs_by_cells


def _cell(seeds: list[dict], kind: str) -> str:
    parts = [
        seed_scores if kind == "all" else seed_scores["by_kind"][kind] for seed_scores in seeds
    ]
    auc = statistics.fmean(part["auc"] for part in parts)
    return f"{auc:.3f} / {statistics.fmean(p['precision_at_noise_rate'] for p in parts):.2f}"


def draw(table: Table, runs: Path, path: Path) -> None:
    """Draw losses by epoch, detection by score and gain by policy, for each noise.

    Panels without data are left out, and the following panels move up.
    """
    noises = [n for n in sorted({noise for noise, _ in table}) if (n, "track") in table]
    rows = [_panels(table, runs, noise) for noise in noises]
    num_columns = sum(any(kind) for kind in zip(*rows, strict=True))
    panels = [panel for row in rows for panel in row if panel is not None]
    num_rows = -(-len(panels) // num_columns)
    size = (6 * num_columns, 3.5 * num_rows)
    figure, axes = plt.subplots(
        num_rows, num_columns, figsize=size, squeeze=False, layout="constrained"
    )
    for axis, panel in zip_longest(axes.flat, panels):
        if panel is None:
            axis.remove()
        else:
            panel(axis)
    figure.savefig(path, format="png", dpi=90)
    plt.close(figure)


def _panels(table: Table, runs: Path, noise: str) -> tuple[Panel | None, ...]:
    """Functions that draw the panels of a noise, None without data."""
    tracked = table[noise, "track"]
    run = tracked[min(tracked)]
    folder = runs / run.folder
    epochs = by_score(tracked)
    gains = _gains(
        {name: scores(rows) for (planted, name), rows in table.items() if planted == noise}
    )
    return (
        partial(_draw_losses, noise=noise, folder=folder)
        if (folder / "curation" / "losses.npz").is_file()
        else None,
        partial(_draw_found, noise=noise, epochs=epochs) if epochs else None,
        partial(_draw_gains, noise=noise, gains=gains) if gains else None,
    )


def _draw_losses(axis: plt.Axes, *, noise: str, folder: Path) -> None:
    """Draw losses as in the paper's Figures 2 and 8, sound and faulty captions apart."""
    axis.set(title=f"{noise}: losses by epoch", xlabel="nats a token", ylabel="density")
    ids, epochs, history = read_history(folder / "curation" / "losses.npz")
    truth_path = folder / "noise_truth.json"
    truth = read_json(truth_path) if truth_path.is_file() else {}
    faulty = np.array([name in truth for name in ids])
    shown = sorted({round(k) for k in np.linspace(0, len(epochs) - 1, MAX_EPOCHS_DRAWN)})
    for number, position in enumerate(shown):
        losses = history[position]
        for rows, style in ((~faulty, "-"), (faulty, ":")):
            values = losses[rows & ~np.isnan(losses)]
            if len(values):
                counts, edges = np.histogram(values, bins=80, density=True)
                label = f"epoch {epochs[position] + 1}" if style == "-" else None
                axis.plot(edges[:-1], counts, style, color=f"C{number}", label=label)
    _legend_beside(axis, title="dotted: faulty" if faulty.any() else None)


def _draw_found(axis: plt.Axes, *, noise: str, epochs: dict[int, dict[str, list[dict]]]) -> None:
    axis.set(title=f"{noise}: faults found", xlabel="epoch", ylabel="area under the ROC curve")
    for number, name in enumerate(sorted({name for entry in epochs.values() for name in entry})):
        points = {
            epoch + 1: statistics.fmean(run["auc"] for run in entry[name])
            for epoch, entry in sorted(epochs.items())
            if name in entry
        }
        style = "-" if number < 10 else "--"
        axis.plot(list(points), list(points.values()), style, marker="o", label=name)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.axhline(0.5, color="grey", linewidth=0.5)
    _legend_beside(axis)


def _legend_beside(axis: plt.Axes, title: str | None = None) -> None:
    """Place a legend to the right of the panel, where it covers no data."""
    axis.legend(
        title=title, loc="upper left", bbox_to_anchor=(1.01, 1.02), frameon=False, fontsize=7
    )


def _gains(rows: dict[str, dict[int, float]]) -> list[tuple[str, list[float]]]:
    """Gains of every policy over no curation, one per common seed, the smallest first."""
    plain = rows.get("track", {})
    gains = [
        (name, [row[s] - plain[s] for s in sorted(row.keys() & plain.keys())])
        for name, row in rows.items()
        if name != "track"
    ]
    return sorted((gain for gain in gains if gain[1]), key=lambda gain: _mean(gain[1]))


def _draw_gains(axis: plt.Axes, *, noise: str, gains: list[tuple[str, list[float]]]) -> None:
    """Draw gains over no curation as in the paper's Figures 5 and 7, a dot per seed."""
    axis.set(title=f"{noise}: {METRIC} over no curation", xlabel=METRIC)
    for position, (_, values) in enumerate(gains):
        axis.barh(position, _mean(values), color="C0", alpha=0.5)
        axis.plot(values, [position] * len(values), "k.", markersize=4)
    axis.set_yticks(range(len(gains)), [name for name, _ in gains], fontsize=7)
    axis.xaxis.set_major_locator(MaxNLocator(6))
    axis.axvline(0, color="grey", linewidth=0.5)
