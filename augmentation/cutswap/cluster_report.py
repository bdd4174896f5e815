"""How many clusters, and by which algorithm: the curves and the plot of section 4.4.1.

Writes the sum of squared distances and the silhouette over k for each algorithm (Figure 4.2), the
words in two dimensions by t-SNE (Figure 4.1), and the clusters as a table (Table 4.1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from augmentation.cutswap.clusters import (
    METHODS,
    Clusters,
    Method,
    label_vectors,
    save_clusters,
    silhouette,
    sum_of_squares,
)
from augmentation.cutswap.embeddings import WordEmbeddings
from augmentation.cutswap.objects import ObjectTable
from augmentation.plane import two_dimensions
from captioning.runtime.files import write_atomically, write_json, write_text

# Fewer words have no neighbourhoods to be kept.
MIN_WORDS_OF_PLOT = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """One clustering.

    Attributes:
        method: the algorithm.
        num_clusters: k.
        sum_of_squares: within clusters.
        silhouette: mean over words, in [-1, 1]; None where it is not defined.
    """

    method: str
    num_clusters: int
    sum_of_squares: float
    silhouette: float | None


def cluster_curves(
    embeddings: WordEmbeddings,
    *,
    numbers: Sequence[int],
    methods: Sequence[Method] = METHODS,
    seed: int = 0,
) -> tuple[CurvePoint, ...]:
    """Both measures for each algorithm and each number of clusters up to that of the words.

    Raises:
        ValueError: no number is left, or an unknown method.
        ModuleNotFoundError: scikit-learn is not installed.
    """
    usable = sorted({number for number in numbers if 1 <= number <= len(embeddings.words)})
    if not usable:
        raise ValueError(
            f"numbers must have one from 1 to {len(embeddings.words)}, the words: got {numbers}"
        )
    points = []
    for method in methods:
        for number in usable:
            labels = label_vectors(
                embeddings.vectors, method=method, num_clusters=number, seed=seed
            )
            points.append(
                CurvePoint(
                    method=method,
                    num_clusters=number,
                    sum_of_squares=sum_of_squares(embeddings.vectors, labels),
                    silhouette=silhouette(embeddings.vectors, labels),
                )
            )
    return tuple(points)


def write_cluster_report(
    folder: str | Path,
    *,
    embeddings: WordEmbeddings,
    clusters: Clusters,
    curves: Sequence[CurvePoint],
    table: ObjectTable | None = None,
    seed: int = 0,
) -> tuple[str, ...]:
    """Write ``clusters.json``, ``clusters.md``, ``curves.json``, ``curves.png`` and ``tsne.png``.

    ``silhouettes.json`` has those of the curves by algorithm and number of clusters.

    Args:
        folder: made if need be.
        embeddings: what was clustered.
        clusters: of them.
        curves: from `cluster_curves`.
        table: gives the words of each class in singular and plural; None lists names.
        seed: of t-SNE.

    Returns:
        Names of the files; no plot of fewer than five words.

    Raises:
        ModuleNotFoundError: scikit-learn is not installed.
    """
    folder = Path(folder)
    save_clusters(clusters, folder / "clusters.json")
    write_text(folder / "clusters.md", cluster_markdown(clusters, table))
    write_json(folder / "curves.json", [asdict(point) for point in curves])
    write_json(folder / "silhouettes.json", _silhouettes(curves))
    write_atomically(
        folder / "curves.png", lambda part: _draw_curves(curves).savefig(part, dpi=100)
    )
    written = ["clusters.json", "clusters.md", "curves.json", "silhouettes.json", "curves.png"]
    if len(embeddings.words) >= MIN_WORDS_OF_PLOT:
        figure = _draw_words(embeddings, clusters, seed)
        write_atomically(folder / "tsne.png", lambda part: figure.savefig(part, dpi=120))
        written.append("tsne.png")
    return tuple(written)


def _silhouettes(curves: Sequence[CurvePoint]) -> dict[str, dict[str, float | None]]:
    return {
        method: {
            str(point.num_clusters): point.silhouette for point in curves if point.method == method
        }
        for method in dict.fromkeys(point.method for point in curves)
    }


def cluster_markdown(clusters: Clusters, table: ObjectTable | None = None) -> str:
    """The clusters as a Markdown table, as Table 4.1 of the thesis."""
    lines = ["| cluster | singular | plural |", "|---|---|---|"]
    for number, names in enumerate(clusters.members, start=1):
        columns = [", ".join(names), ""]
        if table is not None:
            columns = [
                ", ".join(table.by_key[name, plural].noun for name in names
                          if (name, plural) in table.by_key)
                for plural in (False, True)
            ]  # fmt: skip
        lines.append(f"| {number} | {columns[0]} | {columns[1]} |")
    return "\n".join(lines) + "\n"


def _draw_curves(curves: Sequence[CurvePoint]) -> Figure:
    figure = Figure(figsize=(9, 3.5), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    for method in dict.fromkeys(point.method for point in curves):
        points = [point for point in curves if point.method == method]
        numbers = [point.num_clusters for point in points]
        left.plot(numbers, [point.sum_of_squares for point in points], label=method)
        defined = [point for point in points if point.silhouette is not None]
        right.plot([p.num_clusters for p in defined], [p.silhouette for p in defined], label=method)
    left.set(xlabel="clusters k", ylabel="sum of squared distances")
    right.set(xlabel="clusters k", ylabel="silhouette")
    left.legend(frameon=False)
    return figure


def _draw_words(embeddings: WordEmbeddings, clusters: Clusters, seed: int) -> Figure:
    points = two_dimensions(embeddings.vectors, seed=seed)
    label_of = dict(zip(clusters.words, clusters.labels, strict=True))
    labels = [label_of.get(word, 0) for word in embeddings.words]
    figure = Figure(figsize=(12, 12), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.scatter(*points.T, c=labels, cmap="prism", s=6)
    for word, (x, y) in zip(embeddings.words, points.tolist(), strict=True):
        axes.annotate(word, (x, y), fontsize=5, alpha=0.8)
    axes.set_axis_off()
    return figure
