"""The distribution of an epoch's losses, after Figure 2 of the data curation paper."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from curation.base import as_numpy
from curation.loop.curator import Outcome
from curation.score.loss import SUMMED

NUM_BINS = 60


def draw_histogram(outcome: Outcome, path: Path) -> None:
    """Draw the losses of the live samples, the selected ones in another colour, as PNG.

    Uses a figure of its own, not pyplot's global state, so that it works beside a user's plots.
    """
    sums = outcome.context.signals.get(SUMMED)
    by_token = sums is None
    losses = as_numpy(outcome.context.losses if sums is None else sums[-1])
    live = losses[outcome.context.live_rows]
    live = live[~np.isnan(live)]
    selected = losses[[candidate.sample.row for candidate in outcome.decision.selected]]
    selected = selected[~np.isnan(selected)]
    # Margins and legend are fixed, and bars are one shape: a layout engine would draw all twice.
    figure = Figure(figsize=(6, 3.5))
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.13, 0.15, 0.84, 0.75))
    edges = np.histogram_bin_edges(live, NUM_BINS) if len(live) else np.array([0.0, 1.0])
    counts, chosen = (np.histogram(values, edges)[0] for values in (live, selected))
    axes.stairs(counts, edges, fill=True, color="#4878a8", label=f"{len(live)} samples")
    axes.stairs(chosen, edges, fill=True, color="#d1603d", label=f"{len(selected)} selected")
    if len(live) > 1:
        _mark(axes, live.mean(), live.std(ddof=1))
    axes.set(
        xlabel="loss of the caption (nats a token)" if by_token else "loss of the caption (nats)",
        ylabel="captions",
        title=f"Epoch {outcome.context.epoch}",
    )
    axes.legend(frameon=False, loc="upper right")
    figure.savefig(path, dpi=100)


def _mark(axes, mean: float, std: float) -> None:
    axes.axvline(mean, color="0.3", linewidth=1)
    axes.axvline(mean + 2 * std, color="0.3", linewidth=1, linestyle="--", label="mean + 2 std")
