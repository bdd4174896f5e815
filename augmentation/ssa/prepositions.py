"""Prepositions to roles: place, time, path, instrument, clothes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from augmentation.ssa.builder import Builder
from augmentation.ssa.lexicon import (
    ARGUMENTS,
    BODY_PARTS,
    CLOTHES,
    COLOURS,
    DIRECTIONS,
    GOALS,
    GROUPS,
    MOTION,
    PATHS,
    PIECES,
    PLAIN_PLACES,
    RELATIVE_PLACES,
    SOURCES,
    TIME_PREPOSITIONS,
    TIMES,
    is_living,
)
from captioning.types import Token

_PICTURE_WORDS = "picture photo photograph image view painting drawing shot portrait"
_PICTURES = frozenset(_PICTURE_WORDS.split())
# Prepositions with one role in all contexts.
_FIXED_ROLES = {"for": "purpose", "about": "topic", "as": "prep-as", "without": "prep-without"}
_PLAIN_VERB_WORDS = "stand sit lie walk run jump pose lean wait swim be"
_PLAIN_VERBS = frozenset(_PLAIN_VERB_WORDS.split())


@dataclass(frozen=True, slots=True)
class Site:
    """The word that a preposition depends on.

    Attributes:
        variable: its node.
        token: its word.
        verb: with its particle; empty for a noun.
        agent: node of the subject of a verb; the node itself for a noun.
        negated: whether "not" belongs to a verb without a meaning of its own: "is not in a hat".
    """

    variable: str
    token: Token
    verb: str = ""
    agent: str | None = None
    negated: bool = False


class Places:
    """Reads prepositions into a builder.

    Args:
        builder: to which nodes are added.
        entity: returns the node of a noun phrase.
        action: returns the node of a verb, with its subject's node or None.
    """

    def __init__(
        self,
        builder: Builder,
        *,
        entity: Callable[[int], str],
        action: Callable[[int, str | None], str],
    ) -> None:
        self.builder, self.words = builder, builder.words
        self.entity, self.action = entity, action

    def attach(self, site: Site, i: int) -> None:
        """Add a preposition and its objects."""
        name, objects = self.words.preposition(i)
        for j in objects:
            if self.words.tokens[j].dep == "pcomp":
                role = "time" if name in TIME_PREPOSITIONS else "manner" if site.verb else "topic"
                self.builder.link(site.variable, role, self.action(j, site.agent))
            else:
                self._attach(site, name, j)

    def _attach(self, site: Site, name: str, j: int) -> None:
        token = self.words.tokens[j]
        lemma = token.lemma
        if site.verb and (site.verb, name) in ARGUMENTS:
            self._link(site, ARGUMENTS[site.verb, name], j, name)
        elif name == "in" and self._is_worn(site, token):
            self._negate(self._hold("wear-01", site.agent, j, name), site)
        elif name == "with":
            self._with(site, j)
        elif name == "of":
            self._link(site, self._of(site, lemma), j, name)
        elif name == "like":
            self._resemble(site, j)
        elif lemma in TIMES or name in TIME_PREPOSITIONS:
            self._time(site, name, j)
        elif name in _FIXED_ROLES:
            self._link(site, _FIXED_ROLES[name], j, name)
        else:
            self._where(site, name, j)

    def _where(self, site: Site, name: str, j: int) -> None:
        is_motion = site.verb.split(" ")[0].rpartition("-")[2] in MOTION
        if name in PATHS and (is_motion or name not in RELATIVE_PLACES):
            self._relative(site, "path", name, j)
        elif name in GOALS:
            self._link(site, "destination", j, name)
        elif name in DIRECTIONS:
            self._relative(site, "direction", name, j)
        elif name in SOURCES:
            self._link(site, "source", j, name)
        elif name in PLAIN_PLACES:
            self._link(site, "ARG2" if site.verb == "be" else "location", j, name)
        elif name in RELATIVE_PLACES or "-" in name:
            self._relative(site, "ARG2" if site.verb == "be" else "location", name, j)
        else:
            self._link(site, f"prep-{name}", j, name)

    def _link(self, site: Site, role: str, j: int, name: str) -> None:
        self.builder.link(site.variable, role, self.entity(j), name)

    def _relative(self, site: Site, role: str, name: str, j: int) -> None:
        """ "behind a tree": a node of its own."""
        node = self.builder.add(name, name.replace("-", " "))
        self.builder.link(site.variable, role, node)
        self.builder.link(node, "op1", self.entity(j))

    def _time(self, site: Site, name: str, j: int) -> None:
        if name in TIME_PREPOSITIONS - {"during"}:
            self._relative(site, "time", name, j)
        else:
            self._link(site, "time", j, name)

    def _resemble(self, site: Site, j: int) -> None:
        node = self.builder.add("resemble-01", "like")
        self.builder.link(node, "ARG1", site.variable)
        self.builder.link(node, "ARG2", self.entity(j))
        self._negate(node, site)

    def _negate(self, variable: str, site: Site) -> None:
        if site.negated:
            self.builder.negate(variable)

    def _is_worn(self, site: Site, token: Token) -> bool:
        if site.agent is None:
            return False
        wearer = self.builder.nodes[site.agent].concept
        worn = token.lemma.split("-")[-1] in CLOTHES or token.lemma in CLOTHES
        return worn or (
            is_living(wearer) and (token.lemma in COLOURS or token.lemma in ("orange", "pink"))
        )

    def _hold(self, concept: str, agent: str | None, j: int, name: str) -> str:
        """ "a man in a hat" wears it, "a man with a stick" has it; the node of this."""
        node = self.builder.add(concept, concept[:-3])
        if agent is not None:
            self.builder.link(node, "ARG0", agent)
        self.builder.link(node, "ARG1", self.entity(j), name)
        return node

    def _with(self, site: Site, j: int) -> None:
        lemma = self.words.tokens[j].lemma
        if is_living(lemma) and lemma not in GROUPS:
            self._link(site, "accompanier", j, "with")
        elif not site.verb:
            if lemma in BODY_PARTS:
                self._link(site, "part", j, "with")
            else:
                self._hold("have-03", site.variable, j, "with")
        elif lemma in BODY_PARTS:
            self._link(site, "manner", j, "with")
        else:
            role = "accompanier" if site.verb.split(" ")[0] in _PLAIN_VERBS else "instrument"
            self._link(site, role, j, "with")

    def _of(self, site: Site, lemma: str) -> str:
        head = site.token.lemma
        if site.verb or head in _PICTURES:
            return "topic"
        if head in GROUPS or head in PIECES:
            return "consist-of"
        return "poss" if is_living(lemma) and head not in BODY_PARTS else "part-of"
