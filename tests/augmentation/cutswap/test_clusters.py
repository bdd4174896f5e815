"""Clusters of object words, their measures and their report."""

from __future__ import annotations

import json

import numpy as np
import pytest

from augmentation.cutswap.clusters import (
    METHODS,
    Clustering,
    cluster_curves,
    cluster_markdown,
    cluster_words,
    save_clusters,
    silhouette,
    sum_of_squares,
    write_cluster_report,
)
from augmentation.cutswap.embeddings import WordEmbeddings
from captioning.runtime.files import read_json

pytest.importorskip("sklearn", reason="scikit-learn makes the clusters: extra augmentation")

# Two groups of three directions, in an order that mixes them.
WORDS = ("truck", "cat", "bus", "dog", "car", "pony")
ANGLES = np.array([1.50, 0.02, 1.55, 0.05, 1.45, 0.10])
GROUPS = (("bus", "car", "truck"), ("cat", "dog", "pony"))


def embedded(words=WORDS, angles=ANGLES) -> WordEmbeddings:
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    return WordEmbeddings(words=tuple(words), vectors=vectors)


@pytest.mark.parametrize("method", METHODS)
def test_every_algorithm_finds_two_clear_groups(method):
    assert cluster_words(embedded(), method=method, num_clusters=2).members == GROUPS


@pytest.mark.parametrize("method", METHODS)
def test_there_are_never_more_clusters_than_words(method):
    assert len(cluster_words(embedded(), method=method)) == len(WORDS)
    single = cluster_words(embedded(("dog",), ANGLES[:1]), method=method)
    assert single.members == (("dog",),)


def test_the_same_vectors_are_one_cluster():
    clusters = cluster_words(embedded(("a", "b", "c"), np.array([0.0, 0.0, 1.0])), num_clusters=3)
    assert clusters.members == (("a", "b"), ("c",))


def test_the_order_of_words_does_not_matter():
    order = [3, 1, 5, 0, 4, 2]
    mixed = embedded([WORDS[i] for i in order], ANGLES[order])
    assert cluster_words(mixed, num_clusters=2).members == GROUPS


def test_the_nearest_cluster_is_that_of_the_highest_cosine():
    clusters = cluster_words(embedded(), num_clusters=2)
    assert clusters.nearest(np.array([[9.0, 0.1], [0.1, 0.5]])).tolist() == [1, 0]
    with pytest.raises(ValueError, match=r"vectors must be \(N, 2\)"):
        clusters.nearest(np.zeros((1, 3)))


def test_measures():
    vectors = np.array([[0.0, 0.0], [0.0, 2.0], [9.0, 0.0], [9.0, 4.0]])
    assert sum_of_squares(vectors, np.array([0, 0, 1, 1])) == pytest.approx(2 + 8)
    assert silhouette(vectors, np.array([0, 0, 1, 1])) > silhouette(vectors, np.array([0, 1, 0, 1]))
    assert silhouette(vectors, np.array([0, 0, 0, 0])) is None
    assert silhouette(vectors, np.array([0, 1, 2, 3])) is None


def test_clusters_are_saved(tmp_path):
    clusters = cluster_words(embedded(), num_clusters=2)
    save_clusters(clusters, tmp_path / "clusters.json")
    saved = json.loads((tmp_path / "clusters.json").read_text())
    assert (saved["words"], saved["labels"], saved["method"]) == (
        list(clusters.words),
        list(clusters.labels),
        clusters.method,
    )
    np.testing.assert_allclose(saved["centres"], clusters.centres, atol=1e-6)


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="method must be one of"):
        cluster_words(embedded(), method="means")
    with pytest.raises(ValueError, match="num_clusters must be at least 1"):
        cluster_words(embedded(), num_clusters=0)
    for curve in ((), (0, 5)):
        with pytest.raises(ValueError, match="curve must list numbers of clusters"):
            Clustering(curve=curve)


@pytest.mark.parametrize(
    ("num_words", "numbers"),
    [(332, (30, 60, 122, 180, 240)), (60, (30, 60)), (29, (3, 5, 11, 16, 21)), (1, (1,))],
)
def test_fewer_words_have_fewer_points_on_the_curves(num_words, numbers):
    assert Clustering().numbers(num_words) == numbers


def test_a_missing_scikit_learn_is_named(monkeypatch):
    def missing(name):
        raise ModuleNotFoundError(name)

    monkeypatch.setattr("importlib.import_module", missing)
    with pytest.raises(ModuleNotFoundError, match="clusters of objects: .* extra 'augmentation'"):
        cluster_words(embedded(), num_clusters=2)


def test_curves_fall_and_know_where_a_silhouette_is_not_defined():
    points = cluster_curves(embedded(), numbers=(1, 2, 6, 99))
    assert [point.num_clusters for point in points] == [1, 2, 6] * len(METHODS)
    for method in METHODS:
        method_points = [point for point in points if point.method == method]
        assert (
            method_points[0].sum_of_squares
            > method_points[1].sum_of_squares
            > method_points[2].sum_of_squares
        )
        assert (method_points[0].silhouette, method_points[2].silhouette) == (None, None)
        assert method_points[1].silhouette > 0.9
    with pytest.raises(ValueError, match="numbers must include a number from 1 to 6"):
        cluster_curves(embedded(), numbers=(7,))


def test_the_report_has_curves_plot_and_tables(tmp_path):
    clusters = cluster_words(embedded(), num_clusters=2)
    names = write_cluster_report(
        tmp_path,
        embeddings=embedded(),
        clusters=clusters,
        curves=cluster_curves(embedded(), numbers=(2, 3)),
    )
    assert sorted(names) == sorted(path.name for path in tmp_path.iterdir())
    for name in ("curves.png", "tsne.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    assert len(read_json(tmp_path / "curves.json")) == 6
    assert "| 2 | cat, dog, pony |" in (tmp_path / "clusters.md").read_text()


def test_the_table_has_singular_and_plural(table, one_cluster):
    (line,) = cluster_markdown(one_cluster, table).splitlines()[2:]
    assert "cat, dog, " in line
    assert line.endswith("| dogs, horses |")
