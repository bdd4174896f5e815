"""Count which articles and plurals the captions use with each noun."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from augmentation.regions.closed_classes import FEMININE, MASCULINE
from augmentation.ssa.graph import Graph, Name
from augmentation.ssa.lexicon import PEOPLE_WORDS
from captioning.text.inflection import pluralise
from captioning.text.lemmas import PLURALS_ONLY

Frame = tuple[frozenset[str], bool]


class Frames:
    """Counts of the arguments of each predicate in the captions.

    Args:
        graphs: graphs of captions.
        min_share: minimum share of a predicate's captions that a usual frame needs.
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
        """Return whether a predicate often has exactly its present arguments.

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
    """Numbered arguments of a predicate, and whether it has other dependents."""
    roles = {edge.role for edge in graph.out[variable]} - {"polarity"}
    arguments = frozenset(role for role in roles if role.startswith("ARG"))
    return arguments, bool(roles - arguments) or len(arguments) > 1


class NounForms:
    """Counts of articles and plurals by noun.

    Args:
        graphs: graphs of captions; their nouns' articles and plurals are counted.
    """

    def __init__(self, graphs: Iterable[Graph] = ()) -> None:
        self._counts: dict[str, Counter[str]] = defaultdict(Counter)
        self._plurals: dict[str, Counter[str]] = defaultdict(Counter)
        self._all_plurals: set[str] = set()
        for graph in graphs:
            for variable, node in graph.nodes.items():
                name = node.names[0]
                if name.noun and not name.plural and not graph.children(variable, "poss"):
                    self._counts[name.word][name.article] += 1
                if name.form:
                    self._plurals[name.word][name.form] += 1
                    self._all_plurals.add(name.form)

    def article(self, name: Name) -> str:
        """Article of a singular, ``"a"``, ``"the"`` or ``""``: its own if captions often use it.

        Captions leave out articles ("Woman in black") and write "the" for new objects; a noun
        has "the" or no article if it has that in most captions.
        """
        counts = self._counts.get(name.word)
        if name.article == "a" or not counts:
            return name.article or "a"
        most_frequent = max(("a", "the", ""), key=lambda article: counts[article])
        if name.article == "the":
            return "the" if counts["the"] >= counts["a"] else "a"
        return "" if most_frequent == "" else most_frequent

    def plural(self, word: str) -> str:
        """Plural of a noun: the captions' most frequent plural, else the regular form."""
        if word in PLURALS_ONLY:
            return word
        if counts := self._plurals.get(word):
            return max(sorted(counts), key=lambda form: counts[form])
        if word in self._all_plurals:  # "jockeys" of "jockeys race horses"
            return word
        return pluralise(word)

    def is_person(self, word: str) -> bool:
        """Return whether a noun names a person."""
        return word in PEOPLE_WORDS

    def pronoun(self, name: Name, *, plural: bool, object_form: bool = False) -> str:
        """Possessive pronoun such as "his" or, as an object, "him"."""
        if plural:
            return "them" if object_form else "their"
        if name.word in MASCULINE:
            return "him" if object_form else "his"
        if name.word in FEMININE:
            return "her"
        if self.is_person(name.word):
            return "them" if object_form else "their"
        return "it" if object_form else "its"
