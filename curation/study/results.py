"""Results of a study: a table, the paper's two figures (9a and 9b), and the agreement."""

from __future__ import annotations

import csv
import io
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from captioning.runtime.files import write_atomically, write_json, write_text
from curation.study.agreement import agreement
from curation.study.categories import CATEGORIES
from curation.study.store import Annotation, Store, Stored

COLUMNS = (
    "annotator", "picture", "set", "half", "loss", "clip_score", "num_errors", "categories",
    "comment", "captions",
)  # fmt: skip
COLORS = ("#2f6690", "#d1603d", "#3f7d58", "#b98a2f")


def write_results(store: Store, folder: str | Path, *, num_required: int) -> dict[str, Any]:
    """Write ``annotations.csv``, ``summary.json`` and the figures.

    The table holds every finished annotation; figures and summary rest on the pictures with at
    least ``num_required`` of them.

    Returns:
        The summary: counts, mean errors, agreement.

    Raises:
        ValueError: no picture has as many annotations.
    """
    folder = Path(folder)
    items = {item.number: item for item in store.items()}
    done = [annotation for annotation in store.annotations() if annotation.done]
    counts = Counter(annotation.number for annotation in done)
    write_text(folder / "annotations.csv", _table(items, done))
    used = [annotation for annotation in done if counts[annotation.number] >= num_required]
    if not used:
        raise ValueError(
            f"{store.path}: no picture has {num_required} annotations yet "
            f"({len(done)} are finished, in {folder / 'annotations.csv'}); go on annotating, or "
            "lower --annotations"
        )
    errors: dict[int, list[int]] = defaultdict(list)
    for annotation in used:
        errors[annotation.number].append(len(annotation.categories))
    means = {number: float(np.mean(values)) for number, values in errors.items()}
    by_category = Counter(key for annotation in used for key in annotation.categories)
    write_atomically(
        folder / "errors_by_category.png", lambda part: _by_category(by_category, part)
    )
    shown = [items[number] for number in means]
    write_atomically(
        folder / "errors_by_loss.png", lambda part: _by_loss(shown, list(means.values()), part)
    )
    summary = {
        "num_pictures": len(means),
        "num_annotations": len(used),
        "num_annotators": len({annotation.annotator for annotation in used}),
        "mean_errors": {
            half: _mean([means[item.number] for item in shown if item.half == half])
            for half in ("low", "high")
        },
        "errors_by_category": {c.key: by_category[c.key] for c in CATEGORIES},
        "krippendorff_alpha": agreement(used),
    }
    write_json(folder / "summary.json", summary)
    return summary


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _table(items: dict[int, Stored], annotations: Sequence[Annotation]) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    for annotation in annotations:
        item = items[annotation.number]
        score = "" if item.clip_score is None else item.clip_score
        texts = (" ".join(annotation.categories), annotation.comment, " | ".join(item.captions))
        writer.writerow(
            [
                annotation.annotator,
                _plain(item.name),
                item.set_number,
                item.half,
                item.loss,
                score,
                len(annotation.categories),
                *map(_plain, texts),
            ]
        )
    return file.getvalue()


def _plain(text: str) -> str:
    """Text that no spreadsheet takes for a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def _figure(width: float, height: float) -> Figure:
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _by_category(counts: Counter[str], path: Path) -> None:
    """Figure 9a: how often each kind of error was ticked."""
    figure = _figure(7, 6)
    axes = figure.add_subplot()
    groups = list(dict.fromkeys(category.group for category in CATEGORIES))
    rows = sorted(CATEGORIES, key=lambda category: counts[category.key])
    axes.barh(
        [category.key for category in rows],
        [counts[category.key] for category in rows],
        color=[COLORS[groups.index(category.group)] for category in rows],
    )
    axes.legend(
        handles=[Patch(color=COLORS[place], label=group) for place, group in enumerate(groups)],
        frameon=False,
        loc="lower right",
    )
    axes.set(xlabel="annotations that name it", title="Errors by category")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


def _by_loss(items: Sequence[Stored], errors: Sequence[float], path: Path) -> None:
    """Figure 9b: mean errors of each picture against its loss and, where known, its CLIPScore."""
    figure = _figure(6, 4.2)
    axes = figure.add_subplot()
    losses = [item.loss for item in items]
    scores = [item.clip_score for item in items if item.clip_score is not None]
    if len(scores) == len(items):
        dots = axes.scatter(scores, losses, c=errors, cmap="viridis", s=36)
        figure.colorbar(dots, ax=axes, label="mean number of errors")
        axes.set(xlabel="CLIPScore", ylabel="loss of the captioner (nats a token)")
    else:
        axes.scatter(losses, errors, color=COLORS[0], s=36)
        axes.set(xlabel="loss of the captioner (nats a token)", ylabel="mean number of errors")
    axes.set_title("Errors, loss and CLIPScore")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
