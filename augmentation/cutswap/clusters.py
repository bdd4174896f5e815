"""Group object words into clusters whose members can replace each other.

Section 4.4.1 of the CutSwap thesis (Hahn, 2022): K-Means, bisecting K-Means and agglomerative
clustering of unit vectors, compared by the sum of squared distances and by the silhouette over k.
The thesis takes agglomerative clustering and k = 122.
`write_cluster_report` writes both over k for each algorithm (Figure 4.2), the words in two
dimensions by t-SNE (Figure 4.1), and the clusters as a table (Table 4.1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from augmentation.cutswap.embeddings import WordEmbeddings
from augmentation.cutswap.objects import ObjectTable
from augmentation.plane import two_dimensions
from captioning.config.ranges import PositiveInt
from captioning.runtime.extras import import_extra
from captioning.runtime.files import write_atomically, write_json, write_text

Method = Literal["agglomerative", "kmeans", "bisecting_kmeans"]
METHODS: tuple[Method, ...] = ("agglomerative", "kmeans", "bisecting_kmeans")
NUM_CLUSTERS = 122
THESIS_WORDS = 332  # lemmas of object classes that the thesis has 122 clusters of
# Runs of K-Means from different starts, of which the best is kept.
NUM_STARTS = 10
DECIMALS = 6
FORMAT = 1
# Fewer words have no neighbourhoods to be kept.
MIN_WORDS_OF_PLOT = 5


@dataclass(frozen=True, kw_only=True)
class Clusters:
    """Object words divided into K clusters.

    Attributes:
        words: W words, sorted.
        labels: cluster of each, in [0, K); clusters are numbered by their first word.
        centres: ``(K, D) float32``, means of their words' vectors.
        method: the algorithm.
    """

    words: tuple[str, ...]
    labels: tuple[int, ...]
    centres: np.ndarray
    method: str

    def __len__(self) -> int:
        """Number of clusters K."""
        return len(self.centres)

    @cached_property
    def members(self) -> tuple[tuple[str, ...], ...]:
        """Sorted words of each cluster."""
        members: list[list[str]] = [[] for _ in range(len(self))]
        for word, label in zip(self.words, self.labels, strict=True):
            members[label].append(word)
        return tuple(map(tuple, members))

    def nearest(self, vectors: np.ndarray) -> np.ndarray:
        """Cluster whose centre has the highest cosine with each vector (section 3.2.2).

        A word's nearest cluster need not be its own: the thesis compares with the centres too.

        Args:
            vectors: ``(N, D)``; length does not matter.

        Returns:
            ``(N,) int64`` in [0, K).

        Raises:
            ValueError: the vectors have another size than the centres.
        """
        if vectors.ndim != 2 or vectors.shape[1] != self.centres.shape[1]:
            raise ValueError(
                f"vectors must be (N, {self.centres.shape[1]}) like the cluster centres: got "
                f"{vectors.shape}; use the embeddings from which the clusters were made"
            )
        lengths = np.linalg.norm(self.centres, axis=1, keepdims=True)
        directions = self.centres / np.maximum(lengths, np.finfo(np.float32).tiny)
        return (vectors @ directions.T).argmax(axis=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clustering:
    """Settings for clustering object words (section 4.4.1).

    Attributes:
        method: algorithm, one of `METHODS`.
        num_clusters: k; None: the thesis' 122 of 332 words, and in proportion for fewer words.
        curve: numbers of clusters for the curves of the report, see `numbers`.

    Raises:
        ValueError: ``curve`` is empty, or holds a number below 1.
    """

    method: Method = "agglomerative"
    num_clusters: PositiveInt | None = None
    curve: tuple[int, ...] = (30, 60, 122, 180, 240)

    def __post_init__(self) -> None:
        if min(self.curve, default=0) < 1:
            raise ValueError(
                f"curve must list numbers of clusters, each at least 1: got {list(self.curve)}; "
                "omit curve to use 30, 60, 122, 180 and 240"
            )

    def clusters(self, embeddings: WordEmbeddings, *, seed: int) -> Clusters:
        """Cluster the embedded words with these settings."""
        number = self.num_clusters
        if number is None:
            number = _scaled(NUM_CLUSTERS, len(embeddings.words))
        return cluster_words(embeddings, method=self.method, num_clusters=number, seed=seed)

    def numbers(self, num_words: int) -> tuple[int, ...]:
        """Numbers of clusters in the curve that fit the number of words, ascending.

        Where there are fewer words than any of them, the numbers are scaled from the thesis' words,
        so that small data has curves too.
        """
        fitting = {number for number in self.curve if number <= num_words}
        return tuple(sorted(fitting or {_scaled(number, num_words) for number in self.curve}))


def _scaled(number: int, num_words: int) -> int:
    """The thesis' number of clusters, scaled down in proportion for fewer words."""
    share = min(1.0, num_words / THESIS_WORDS)
    return max(1, min(round(number * share), num_words))


def cluster_words(
    embeddings: WordEmbeddings,
    *,
    method: Method = "agglomerative",
    num_clusters: int = NUM_CLUSTERS,
    seed: int = 0,
) -> Clusters:
    """Group object words into clusters by their embeddings.

    Args:
        embeddings: embeddings of the words, from `augmentation.cutswap.embeddings.embed_words`.
        method: one of `METHODS`.
        num_clusters: k; with fewer words than that, each is a separate cluster.
        seed: seed of the starts of K-Means.

    Raises:
        ValueError: ``method`` is unknown, or ``num_clusters`` below 1.
        ModuleNotFoundError: scikit-learn is not installed.
    """
    order = np.argsort(np.array(embeddings.words))
    words = tuple(embeddings.words[i] for i in order)
    vectors = embeddings.vectors[order]
    clusters = label_vectors(vectors, method=method, num_clusters=num_clusters, seed=seed)
    # Numbered by first word: scikit-learn's own numbers say nothing.
    numbers = {label: number for number, label in enumerate(dict.fromkeys(clusters.tolist()))}
    labels = np.array([numbers[label] for label in clusters.tolist()])
    centres = np.stack([vectors[labels == number].mean(0) for number in range(len(numbers))])
    return Clusters(
        words=words,
        labels=tuple(labels.tolist()),
        centres=centres.astype(np.float32),
        method=method,
    )


def label_vectors(
    vectors: np.ndarray, *, method: Method, num_clusters: int, seed: int = 0
) -> np.ndarray:
    """Cluster of each of the ``(W, D)`` unit vectors, ``(W,) int64``.

    Agglomerative clustering joins by Ward's criterion, which the sum of squares is of.

    Raises:
        ValueError: ``method`` is unknown, or ``num_clusters`` below 1.
        ModuleNotFoundError: scikit-learn is not installed.
    """
    if method not in METHODS:
        raise ValueError(f"method must be one of {METHODS}: got {method!r}")
    if num_clusters < 1:
        raise ValueError(f"num_clusters must be at least 1: got {num_clusters}")
    num_clusters = min(num_clusters, len(np.unique(vectors, axis=0)))
    if num_clusters in (1, len(vectors)):
        return np.arange(len(vectors)) % num_clusters
    cluster = scikit_learn("cluster")
    if method == "agglomerative":
        model = cluster.AgglomerativeClustering(n_clusters=num_clusters, linkage="ward")
    elif method == "kmeans":
        model = cluster.KMeans(num_clusters, n_init=NUM_STARTS, random_state=seed)
    else:
        model = cluster.BisectingKMeans(
            num_clusters,
            n_init=NUM_STARTS,
            random_state=seed,
            bisecting_strategy="biggest_inertia",
        )
    return model.fit_predict(vectors.astype(np.float64)).astype(np.int64)


def sum_of_squares(vectors: np.ndarray, labels: np.ndarray) -> float:
    """Sum of the squared distances of ``(W, D)`` vectors to their cluster means."""
    total = 0.0
    for label in np.unique(labels):
        members = vectors[labels == label].astype(np.float64)
        total += float(((members - members.mean(0)) ** 2).sum())
    return total


def silhouette(vectors: np.ndarray, labels: np.ndarray) -> float | None:
    """Mean silhouette in [-1, 1] with Euclidean distances; None if undefined.

    This holds with one cluster, or with as many clusters as words.

    Raises:
        ModuleNotFoundError: scikit-learn is not installed.
    """
    if not 1 < len(np.unique(labels)) < len(vectors):
        return None
    return float(scikit_learn("metrics").silhouette_score(vectors.astype(np.float64), labels))


def save_clusters(clusters: Clusters, path: str | Path) -> None:
    """Save clusters with their centres as JSON."""
    content = {
        "format": FORMAT,
        "method": clusters.method,
        "words": clusters.words,
        "labels": clusters.labels,
        "centres": clusters.centres.astype(float).round(DECIMALS).tolist(),
    }
    write_json(path, content, indent=None)


def scikit_learn(part: str) -> Any:
    """Import a module of scikit-learn when it is first needed.

    Raises:
        ModuleNotFoundError: scikit-learn is not installed.
    """
    return import_extra(f"sklearn.{part}", extra="augmentation", purpose="clusters of objects")


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """Quality measures of one clustering.

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
    """Quality measures for each algorithm and each number of clusters up to the number of words.

    Raises:
        ValueError: no number of clusters fits the words, or a method is unknown.
        ModuleNotFoundError: scikit-learn is not installed.
    """
    usable = sorted({number for number in numbers if 1 <= number <= len(embeddings.words)})
    if not usable:
        raise ValueError(
            f"numbers must include a number from 1 to {len(embeddings.words)} words: got {numbers}"
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
    """Write ``clusters.json``, ``clusters.md``, ``curves.json``, ``curves.png``, ``tsne.png``.

    ``silhouettes.json`` has the curves' silhouettes by algorithm and number of clusters.

    Args:
        folder: made if need be.
        embeddings: the clustered embeddings.
        clusters: their clusters.
        curves: result of `cluster_curves`.
        table: gives the words of each class in singular and plural; None lists names.
        seed: seed of t-SNE.

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
    """Format the clusters as a Markdown table like Table 4.1 of the thesis."""
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
