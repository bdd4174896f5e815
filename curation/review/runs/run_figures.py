"""Draw figures of a run for papers: loss, validation, test scores, and edited samples' losses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from captioning.results.figures import (
    BLUE,
    COLORS,
    COLUMN,
    GREEN,
    GREY,
    INK,
    MARKS,
    ORANGE,
    PAGE,
    PURPLE,
    VERMILION,
    draw_histogram,
    figure_style,
    line_style,
    new_figure,
    save_figure,
)
from captioning.results.table import DEFAULT_METRICS
from curation.record import changes
from curation.review.edit_report import histograms
from curation.review.runs.reading import FinishedRun
from curation.review.runs.run_page import TEST, score_intervals, threshold
from curation.review.runs.runs_page import (
    Group,
    are_apart,
    edited_by_epoch,
    groups_of,
    loss_curve,
    validation_curve,
)

MAX_EPOCHS = 6  # maximum number of loss panels
MANY = 40  # lines with this many points have no markers
# Name, colour and hatch of each action.
ACTIONS = {
    "remove": ("removed", VERMILION, "////"),
    "replace_caption": ("caption replaced", BLUE, ""),
    "replace_image": ("photo replaced", GREEN, "...."),
    "down_weight": ("weighted down", PURPLE, "xxxx"),
    "mask_words": ("words masked", ORANGE, "\\\\\\\\"),
    "set_bucket": ("put into a bucket", GREY, "++++"),
}


def draw_figures(runs: Sequence[FinishedRun], folder: Path) -> list[str]:
    """Draw all figures that the runs have data for, and return the file names.

    Configs that cannot be compared share no axes: they have no figure of scores and losses.

    Args:
        runs: runs of one name are pooled as seeds.
        folder: folder to write to.
    """
    groups = groups_of(runs)
    makers: dict[str, Callable[[Sequence[Group]], Any]] = {"edits": edits, "losses": losses}
    if len(groups) < 2 or not are_apart(groups):
        compared = {"training_loss": training_loss, "validation": validation}
        makers = {**compared, "test_scores": scores, **makers}
    drawn = []
    for name, make in makers.items():
        with figure_style():
            figure = make(groups)
        if figure is not None:
            save_figure(figure, folder, name)
            drawn.append(name)
    return drawn


def training_loss(groups: Sequence[Group]) -> Any:
    """Draw the training loss by update."""
    curves = [(group.name, loss_curve(group)) for group in groups]
    return _lines(curves, "training loss", "update")


def validation(groups: Sequence[Group]) -> Any:
    """Draw CIDEr-D on validation data by epoch; None for a single epoch."""
    curves = [(group.name, validation_curve(group, "CIDEr-D")) for group in groups]
    if not any(curve is not None and len(curve["points"]) > 1 for _, curve in curves):
        return None
    return _lines(curves, "validation CIDEr-D", "epoch")


def _lines(curves: Sequence[tuple[str, dict[str, Any] | None]], label: str, unit: str) -> Any:
    known = [(name, curve) for name, curve in curves if curve is not None]
    if not known:
        return None
    figure, (axes,) = new_figure()
    for place, (name, curve) in enumerate(known):
        xs, ys = np.array(curve["points"]).T
        style = line_style(place) | ({"marker": ""} if len(xs) > MANY else {})
        axes.plot(xs, ys, label=name, **style)
        if curve["band"] is not None:
            _, low, high = np.array(curve["band"]).T
            axes.fill_between(xs, low, high, color=style["color"], alpha=0.15, linewidth=0)
    axes.set(xlabel=unit, ylabel=label)
    if unit == "epoch":
        axes.locator_params(axis="x", integer=True)
    if len(known) > 1:
        figure.legend(loc="outside upper center", ncols=1 if len(known) > 4 else 2)
    return figure


def scores(groups: Sequence[Group]) -> Any:
    """Draw test scores: standard deviation over seeds, or the interval of a single run."""
    corpora = [run.run.scores(TEST, "corpus") for group in groups for run in group.runs]
    names = [name for name in DEFAULT_METRICS if any(name in corpus for corpus in corpora)]
    if not names:
        return None
    figure, (axes,) = new_figure(height=0.9 + 0.22 * len(names) * max(1, 0.6 * len(groups)))
    rows = np.arange(len(names))[::-1]
    for place, group in enumerate(groups):
        shift = 0.7 * (0.5 - (place + 0.5) / len(groups))
        ends = [_ends(group, name) for name in names]
        middles = np.array([middle for middle, _, _ in ends])
        bars = np.abs([[m - low, high - m] for m, low, high in ends]).T
        at = place % len(COLORS)
        axes.errorbar(
            *(middles, rows + shift),
            xerr=bars,
            fmt=MARKS[at],
            color=COLORS[at],
            capsize=2,
            label=group.name,
        )
    axes.set_yticks(rows, names)
    axes.set_xlim(left=0)
    axes.grid(axis="x", color="0.9", linewidth=0.5)
    seeds = any(len(group.runs) > 1 for group in groups)
    axes.set_xlabel("test score" + (" (± SD over seeds)" if seeds else " (95% interval)"))
    if len(groups) > 1:
        figure.legend(loc="outside upper center", ncols=1 if len(groups) > 4 else 2)
    return figure


def _ends(group: Group, metric: str) -> tuple[float, float, float]:
    """Mean of a score, with lower and upper end of its spread; NaN without a score."""
    values = [run.run.value(metric, TEST) for run in group.runs]
    known = [value for value in values if value is not None]
    if not known:
        return np.nan, np.nan, np.nan
    middle = float(np.mean(known))
    if len(known) > 1:
        spread = float(np.std(known, ddof=1))
        return middle, middle - spread, middle + spread
    low, high = score_intervals(group.runs[0].run).get(metric, (middle, middle))
    return middle, low, high


def edits(groups: Sequence[Group]) -> Any:
    """Draw edits by epoch: of one config by action, of several configs the running total."""
    if len(groups) > 1:
        curves = [(group.name, edited_by_epoch(group)) for group in groups]
        return _lines(curves, "edits so far", "epoch")
    journals = [record.view.journal for record in groups[0].records]
    epochs = sorted({edit.epoch for journal in journals for edit in journal})
    if not epochs:
        return None
    figure, (axes,) = new_figure()
    base = np.zeros(len(epochs))
    for action, (name, color, hatch) in ACTIONS.items():
        made = [edit.epoch for journal in journals for edit in journal if edit.action == action]
        counts = np.array([made.count(epoch) for epoch in epochs]) / len(journals)
        if counts.any():
            look = {"facecolor": color, "hatch": hatch, "edgecolor": "white", "linewidth": 0.5}
            axes.bar(epochs, counts, bottom=base, width=0.7, label=name, **look)
            base += counts
    axes.set(xlabel="epoch", ylabel="captions")
    axes.locator_params(axis="x", integer=True)
    axes.legend()
    return figure


def losses(groups: Sequence[Group]) -> Any:
    """Draw losses of all captions and of edited captions by epoch, for one config's first run."""
    run = groups[0].runs[0]
    if len(groups) > 1 or run.record is None:
        return None
    change_list = list(changes(run.record.view, run.record.truth))
    bars = histograms(run.record, change_list)
    if bars is None:
        return None
    places = np.linspace(0, len(bars["epochs"]) - 1, MAX_EPOCHS).round().astype(int)
    shown = [bars["epochs"][place] for place in dict.fromkeys(places.tolist())]
    columns = min(3, len(shown))
    rows = -(-len(shown) // columns)
    width = PAGE if columns > 1 else COLUMN
    figure, panels = new_figure(
        width=width, height=0.5 + 1.4 * rows, rows=rows, columns=columns, sharey=True, sharex=True
    )
    for axes, entry in zip(panels, shown, strict=False):
        _panel(axes, bars["edges"], entry, threshold(run.record, change_list, entry["epoch"]))
    for place, axes in enumerate(panels[len(shown) :], len(shown)):
        axes.remove()
        panels[place - columns].tick_params(labelbottom=True)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3)
    figure.supxlabel(run.unit, fontsize=8)
    figure.supylabel("captions", fontsize=8)
    return figure


def _panel(axes: Any, edges: Sequence[float], entry: dict[str, Any], lowest: float | None) -> None:
    labels = ("all captions", "edited at the end of the epoch")
    draw_histogram(axes, edges, entry["seen"], entry["edited"], labels=labels)
    if entry["faulty"] is not None:
        axes.stairs(entry["faulty"], edges, color=INK, linewidth=0.9, label="planted faults")
    if lowest is not None:
        axes.axvline(lowest, color=INK, linestyle="--", linewidth=0.8)
    number = sum(entry["edited"])
    axes.set_title(f"epoch {entry['epoch']}: {number:,} edited")
