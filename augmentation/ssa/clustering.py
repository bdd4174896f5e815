"""The order of merging graphs: average linkage (UPGMA; Sokal and Michener, 1958)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from augmentation.ssa.graph import Graph
from augmentation.ssa.smatch import agreement, triples


def distances(graphs: Sequence[Graph]) -> NDArray[np.float64]:
    """``(N, N)`` distances 1 − smatch, symmetric, 0 on the diagonal (Algorithm 1, line 4)."""
    all_triples = [triples(graph) for graph in graphs]
    matrix = np.zeros((len(graphs), len(graphs)))
    for i, graph_triples in enumerate(all_triples):
        for j in range(i):
            matrix[i, j] = matrix[j, i] = (
                1 - agreement(graph_triples, all_triples[j], restarts=1).f1
            )
    return matrix


def merge_order(distance: NDArray[np.float64]) -> list[tuple[int, int]]:
    """Pairs in the order of merging, the closest first (Algorithm 1, line 5).

    A merged pair keeps its first, smaller number. Ties go to the smallest numbers.

    Args:
        distance: ``(N, N)``, symmetric.
    """
    members = {i: [i] for i in range(len(distance))}
    order = []
    while len(members) > 1:
        pairs = [(i, j) for i in members for j in members if i < j]
        means = [distance[np.ix_(members[i], members[j])].mean() for i, j in pairs]
        i, j = pairs[int(np.argmin(np.round(means, 9)))]
        order.append((i, j))
        members[i] += members.pop(j)
    return order
