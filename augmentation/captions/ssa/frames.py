"""With which arguments verbs are said: "a man stands", but never "a man holds"."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from augmentation.captions.ssa.graph import Graph

Frame = tuple[frozenset[str], bool]


class Frames:
    """Counts of the arguments that each predicate has in the captions.

    Args:
        graphs: of captions.
        least_share: of a predicate's captions that a frame needs to be usual.
        least_count: captions that it needs: what one says once may be a mistake.
    """

    def __init__(
        self, graphs: Iterable[Graph], *, least_share: float = 0.06, least_count: int = 2
    ) -> None:
        self.least_share, self.least_count = least_share, least_count
        self._counts: dict[str, Counter[Frame]] = {}
        for graph in graphs:
            for variable, node in graph.nodes.items():
                if node.is_predicate:
                    counts = self._counts.setdefault(node.concept, Counter())
                    counts[frame_of(graph, variable)] += 1

    def usual(self, graph: Graph, variable: str) -> bool:
        """Whether a predicate is often said with just the arguments that it has here.

        A verb without anything but a subject needs captions that say it so; one with an argument
        or a place needs the same numbered arguments, with or without a place.
        """
        counts = self._counts.get(graph.nodes[variable].concept)
        if not counts:
            return False
        arguments, complete = frame_of(graph, variable)
        fits = sum(
            count
            for (others, has_more), count in counts.items()
            if others == arguments and (complete or not has_more)
        )
        return fits >= max(self.least_count, self.least_share * sum(counts.values()))


def frame_of(graph: Graph, variable: str) -> Frame:
    """A predicate's numbered arguments, and whether anything else hangs on it."""
    roles = {edge.role for edge in graph.out[variable]} - {"polarity"}
    arguments = frozenset(role for role in roles if role.startswith("ARG"))
    return arguments, bool(roles - arguments) or len(arguments) > 1
