"""Build a graph while a caption is parsed: nodes, edges, and antecedents of pronouns."""

from __future__ import annotations

from collections.abc import Iterator

from augmentation.regions.closed_classes import (
    FEMININE,
    FEMININE_PRONOUNS,
    MASCULINE,
    MASCULINE_PRONOUNS,
)
from augmentation.ssa.dependency_parse import Words
from augmentation.ssa.graph import Edge, Graph, Name, Node
from augmentation.ssa.lexicon import is_living
from captioning.text.phrases import MAX_STEPS_UP, NOUNS, PASSIVE_SUBJECTS, SUBJECTS

PLURAL_TAGS = ("NNS", "NNPS")
NEUTER_PRONOUNS = frozenset(("it", "its", "itself"))


class Builder:
    """An AMR graph under construction.

    Args:
        words: the caption's words.

    Attributes:
        variable_of: variable of each word that has one.
    """

    def __init__(self, words: Words) -> None:
        self.words = words
        self.nodes: dict[str, Node] = {}
        self.edges: list[Edge] = []
        self.variable_of: dict[int, str] = {}

    def add(
        self, concept: str, word: str = "", *, token: int = -1, plural: bool = False,
        article: str = "", noun: bool = False, form: str = "",
    ) -> str:  # fmt: skip
        """Add a node and return its variable."""
        variable = f"v{len(self.nodes)}"
        name = Name(concept, word, plural, article, token=token, noun=noun, form=form)
        self.nodes[variable] = Node((name,))
        if token >= 0:
            self.variable_of.setdefault(token, variable)
        return variable

    def link(self, source: str, role: str, target: str, word: str = "") -> None:
        """Add an edge, unless it exists or leads back to its source."""
        if source != target and not any(
            (e.source, e.role, e.target) == (source, role, target) for e in self.edges
        ):
            self.edges.append(Edge(source, role, target, word.replace("-", " ")))

    def negate(self, variable: str) -> None:
        """Mark a graph node as negated."""
        if not any(e.source == variable and e.role == "polarity" for e in self.edges):
            self.link(variable, "polarity", self.add("-"))

    def graph(self, root: str) -> Graph:
        """Return the graph, without nodes that the root does not reach."""
        graph = Graph(self.nodes, tuple(self.edges), root)
        reachable = graph.reachable(root)
        return graph if len(reachable) == len(self.nodes) else graph.part(reachable, root)

    def antecedent(self, position: int) -> str | None:
        """Node that a pronoun refers to: the subject, else the nearest noun that agrees."""
        word = self.words.tokens[position].lemma
        if self.words.tokens[position].text.lower() in ("himself", "herself", "itself"):
            word = self.words.tokens[position].text.lower()
        nearest = (i for i in range(position - 1, -1, -1))
        for i in (*self._candidate_subjects(position), *nearest):
            if i < position and i in self.variable_of and self._agrees(i, word):
                return self.variable_of[i]
        return None

    def _candidate_subjects(self, position: int) -> Iterator[int]:
        """Subjects of the verbs above a word, and nouns that these verbs describe."""
        tokens = self.words.tokens
        for _ in range(MAX_STEPS_UP):
            head = tokens[position].head
            if head == position:
                return
            yield from self.words.having(head, *SUBJECTS, *PASSIVE_SUBJECTS)
            if tokens[head].dep in ("acl", "relcl"):
                yield tokens[head].head
            position = head

    def _agrees(self, position: int, pronoun: str) -> bool:
        token = self.words.tokens[position]
        if token.pos not in NOUNS:
            return False
        if pronoun in ("they", "their", "them", "themselves", "-PRON-"):
            return is_living(token.lemma)
        if token.tag in PLURAL_TAGS:
            return False
        if pronoun in MASCULINE_PRONOUNS:
            return is_living(token.lemma) and token.lemma not in FEMININE
        if pronoun in FEMININE_PRONOUNS:
            return is_living(token.lemma) and token.lemma not in MASCULINE
        return pronoun in NEUTER_PRONOUNS and token.lemma not in MASCULINE | FEMININE
