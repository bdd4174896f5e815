"""Usual arguments of verbs: "a man stands", but never "a man holds"."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from augmentation.ssa.graph import Graph

Frame = tuple[frozenset[str], bool]


class Frames:
    """Counts of the arguments that each predicate has in the captions.

    Args:
        graphs: of captions.
        min_share: of a predicate's captions that a usual frame needs.
        min_count: captions that it needs: a single one may be a mistake.
    """

    def __init__(
        self, graphs: Iterable[Graph], *, min_share: float = 0.06, min_count: int = 2
    ) -> None:
        self.min_share, self.min_count = min_share, min_count
        self._counts: dict[str, Counter[Frame]] = {}
        for graph in graphs:
            for variable, node in graph.nodes.items():
                if node.is_predicate:
                    counts = self._counts.setdefault(node.concept, Counter())
                    counts[frame_of(graph, variable)] += 1

    def usual(self, graph: Graph, variable: str) -> bool:
        """Whether a predicate often has exactly the arguments that it has here.

        A verb with a subject alone needs captions with a subject alone; a verb with an argument
        or a place needs the same numbered arguments, with or without a place.
        """
        counts = self._counts.get(graph.nodes[variable].concept)
        if not counts:
            return False
        arguments, complete = frame_of(graph, variable)
        num_fitting = sum(
            count
            for (known_arguments, has_more), count in counts.items()
            if known_arguments == arguments and (complete or not has_more)
        )
        return num_fitting >= max(self.min_count, self.min_share * sum(counts.values()))


def frame_of(graph: Graph, variable: str) -> Frame:
    """A predicate's numbered arguments, and whether it has other dependents."""
    roles = {edge.role for edge in graph.out[variable]} - {"polarity"}
    arguments = frozenset(role for role in roles if role.startswith("ARG"))
    return arguments, bool(roles - arguments) or len(arguments) > 1
