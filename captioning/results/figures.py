"""Style of figures: one-column width, distinguishable by colour-blind people and in grey.

matplotlib takes long to import, so it is imported where a figure is drawn.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from captioning.runtime.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMN, PAGE = 3.3, 6.9  # inches: width of a column and of two
VECTOR = ("svg", "pdf")
# Okabe and Ito, "Color Universal Design" (2008). Neighbours differ in lightness, too.
BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"),
)
GREY, INK = "#BFC9D1", "#222222"
COLORS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY)
DASHES = ("-", "--", ":", "-.", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)))
MARKS = ("o", "s", "^", "D", "v", "P")
_STYLE: Any = {
    "font.size": 8,
    "font.family": "DejaVu Sans",
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "legend.fontsize": 7,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "lines.linewidth": 1.3,
    "lines.markersize": 4,
    "hatch.linewidth": 0.5,
    "legend.frameon": False,
    "svg.fonttype": "none",  # text stays text, to be searched and edited
    "pdf.fonttype": 42,
    "svg.hashsalt": "captioning",  # equal figures are equal files
}


def line_style(place: int) -> dict[str, Any]:
    """Colour, dash and marker of a line; six lines differ in all three.

    Args:
        place: index of the line in the figure.
    """
    at = place % len(COLORS)
    return {"color": COLORS[at], "linestyle": DASHES[at], "marker": MARKS[at]}


def figure_style() -> AbstractContextManager[None]:
    """Use the figure style within the block; a user's own settings are restored."""
    from matplotlib import rc_context

    return rc_context(_STYLE)


def new_figure(
    *, width: float = COLUMN, height: float = 2.3, rows: int = 1, columns: int = 1, **options: Any
) -> tuple[Figure, list[Any]]:
    """Create a figure, for use within `figure_style`, and its axes row by row.

    It avoids pyplot, so a user's plots are not affected.

    Args:
        width, height: size in inches.
        rows, columns: numbers of axes.
        **options: options of ``Figure.subplots``, such as ``sharey``.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, list(figure.subplots(rows, columns, squeeze=False, **options).ravel())


def draw_histogram(
    axes: Any, edges: Any, counts: Any, selected: Any, *, labels: tuple[str, str]
) -> None:
    """Draw a histogram of all values and of the selected values, hatched for grey print.

    Args:
        axes: axes from `new_figure`.
        edges: edges of the bins.
        counts: counts of all, by bin.
        selected: counts of the selected, by bin.
        labels: labels of all values and of the selected values.
    """
    axes.stairs(counts, edges, fill=True, color=GREY, label=labels[0])
    axes.stairs(
        *(selected, edges),
        fill=True,
        facecolor=VERMILION,
        edgecolor=INK,
        hatch="////",
        linewidth=0.5,
        label=labels[1],
    )


def save_figure(
    figure: Figure, folder: Path, name: str, formats: Sequence[str] = VECTOR, *, dpi: int = 150
) -> None:
    """Write a figure in each format, without the date, so that equal figures give equal files.

    Args:
        figure: figure from `new_figure`.
        folder: folder to write to; created if missing.
        name: name of the files, without suffix.
        formats: file suffixes.
        dpi: dpi of PNG.
    """
    logging.getLogger("fontTools").setLevel(logging.WARNING)  # it tells each font of a PDF
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    for ending in formats:
        settings: dict[str, Any] = {
            "format": ending,
            "dpi": dpi,
            "metadata": undated.get(ending),
        }

        def write(part: Path, settings: dict[str, Any] = settings) -> None:
            with figure_style():
                figure.savefig(part, **settings)

        write_atomically(folder / f"{name}.{ending}", write)
