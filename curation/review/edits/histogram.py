"""The distribution of an epoch's losses, after Figure 2 of the data curation paper."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from captioning.results import figures
from captioning.results.figures import INK, figure_style, new_figure
from curation.base import as_numpy
from curation.loop.curator import Outcome
from curation.score.loss import SUMMED

NUM_BINS = 60


def draw_histogram(outcome: Outcome, path: Path) -> None:
    """Draw the losses of the live samples, the selected ones in another colour, as PNG.

    It can be read in grey, too: what is selected is hatched.
    """
    sums = outcome.context.signals.get(SUMMED)
    by_token = sums is None
    losses = as_numpy(outcome.context.losses if sums is None else sums[-1])
    live = losses[outcome.context.live_rows]
    live = live[~np.isnan(live)]
    selected = losses[[candidate.sample.row for candidate in outcome.decision.selected]]
    selected = selected[~np.isnan(selected)]
    with figure_style():
        figure, (axes,) = new_figure(height=2.2)
        edges = np.histogram_bin_edges(live, NUM_BINS) if len(live) else np.array([0.0, 1.0])
        counts, chosen = (np.histogram(values, edges)[0] for values in (live, selected))
        labels = (f"{len(live):,} captions", f"{len(selected):,} selected")
        figures.draw_histogram(axes, edges, counts, chosen, labels=labels)
        if len(live) > 1:
            _mark(axes, live.mean(), live.std(ddof=1))
        axes.set(
            xlabel=f"loss of the caption ({'nats a token' if by_token else 'nats'})",
            ylabel="captions",
            title=f"epoch {outcome.context.epoch}",
        )
        axes.legend(loc="upper right")
        figure.savefig(path, dpi=150)


def _mark(axes: Any, mean: float, std: float) -> None:
    axes.axvline(mean, color=INK, linewidth=0.8, label=f"mean, {mean:.3g}")
    high = mean + 2 * std
    axes.axvline(high, color=INK, linewidth=0.8, linestyle="--", label=f"mean + 2 SD, {high:.3g}")
