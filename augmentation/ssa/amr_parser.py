"""Parse captions into AMR graphs with rules over dependency parses, without a neural model.

The graphs have the parts of AMR that captions need: predicates with senses and numbered arguments,
location, time, path, destination, direction, source, manner, purpose, modifiers, quantity,
possession, parts, coordination. docs/cards/ssa.md gives its accuracy and its failures.

`Places` gives prepositions their roles: place, time, path, instrument, clothes. `Clauses` makes the
other parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from augmentation.ssa.builder import Builder
from augmentation.ssa.dependency_parse import NOT, Words, parsed_words
from augmentation.ssa.graph import MULTI_SENTENCE, Graph
from augmentation.ssa.lexicon import (
    AGENT_ROLES,
    ARGUMENTS,
    BODY_PARTS,
    CLOTHES,
    COLOURS,
    DIRECTIONS,
    GOALS,
    GROUPS,
    MOTION,
    PASSIVE_ROLES,
    PATHS,
    PIECES,
    PLAIN_PLACES,
    RELATIVE_PLACES,
    SENSES,
    SOURCES,
    TIME_PREPOSITIONS,
    TIMES,
    concept_of,
    is_living,
    subject_role,
)
from augmentation.ssa.phrases import Phrases
from captioning.interfaces import AbstractParser
from captioning.text.phrases import NOUNS, OBJECTS, PASSIVE_SUBJECTS, SUBJECTS
from captioning.types import Parse, Token

CONTROL_VERBS = frozenset(
    [
        "try",
        "attempt",
        "prepare",
        "start",
        "begin",
        "want",
        "wait",
        "help",
        "continue",
        "pretend",
        "like",
        "love",
        "learn",
        "need",
    ]
)
PLACE_ADVERBS = frozenset(
    [
        "outside",
        "outdoors",
        "inside",
        "indoors",
        "nearby",
        "here",
        "there",
        "underwater",
        "overhead",
        "below",
        "above",
        "behind",
        "downstairs",
        "upstairs",
        "alongside",
        "midair",
        "underneath",
        "ahead",
    ]
)
DIRECTION_ADVERBS = frozenset(
    ["down", "up", "away", "off", "out", "back", "forward", "backwards", "backward", "over"]
)
PATH_PARTICLES = frozenset(
    ["down", "up", "off", "out", "over", "across", "through", "along", "around", "past"]
)
IGNORED_ADVERBS = frozenset(
    ["while", "when", "then", "just", "as", "also", "apparently", "so", "not", "n't", "too"]
)
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
        verb: verb with its particle; empty for a noun.
        agent: node of the subject of a verb; the node itself for a noun.
        negated: whether "not" belongs to a verb without its own meaning: "is not in a hat".
    """

    variable: str
    token: Token
    verb: str = ""
    agent: str | None = None
    negated: bool = False


class Places:
    """Adds prepositions and their objects to a graph builder.

    Args:
        builder: builder that receives the nodes.
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
        """Add a node for a relative place such as "behind a tree"."""
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
        """Add "wears" for "a man in a hat", or "has" for "a man with a stick"."""
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


class Clauses:
    """Adds the words of a caption to a graph builder, from the root down.

    Args:
        builder: builder that receives the nodes.
    """

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self.words, self.tokens = builder.words, builder.words.tokens
        self.phrases = Phrases(builder)
        self.places = Places(builder, entity=self.entity, action=self.action)

    def top(self, i: int) -> str | None:
        """Return the node of a parse root; None for punctuation or a word without a node."""
        token = self.tokens[i]
        if not any(char.isalnum() for char in token.text):
            return None
        if token.pos in ("VERB", "AUX"):
            return self.clause(i, None)
        if token.pos == "ADP":
            objects = self.words.preposition(i)[1]
            return self.entity(objects[0]) if objects else None
        return self.entity(i)

    def entity(self, i: int) -> str:
        """Return the node of a noun phrase with its dependents; "and" for several nouns."""
        conjuncts = self.phrases.conjuncts(i)
        if any(self.tokens[j].pos in ("VERB", "AUX") and self.words.having(j, *SUBJECTS)
               for j in conjuncts):  # fmt: skip
            conjuncts = []  # "a man on a bike and a dog runs": not the bike and the running
        return self.phrases.coordinate(i, [self._single(j) for j in (i, *conjuncts)])

    def _single(self, i: int) -> str:
        token = self.tokens[i]
        if i in self.builder.variable_of:
            return self.builder.variable_of[i]
        if token.pos in ("VERB", "AUX"):
            return self.action(i, None)
        if token.pos == "PRON":
            antecedent = self.builder.antecedent(i)
            if antecedent is not None:
                self.builder.variable_of[i] = antecedent
                return antecedent
        quantified = self.phrases.quantity_of(i)
        if quantified != i:
            variable = self.entity(quantified)
            self.builder.variable_of[i] = variable
            quantity = self.builder.add(token.lemma, token.lemma)
            self.builder.link(variable, "quant", quantity)
        else:
            variable = self.phrases.noun(i)
            self.phrases.describe(variable, i)
        self._postmodifiers(variable, i, quantified)
        return variable

    def _postmodifiers(self, variable: str, i: int, quantified: int) -> None:
        """Add the words after a noun, such as prepositional phrases."""
        for j in self.words.children[i]:
            token = self.tokens[j]
            if token.dep == "prep" and not (quantified != i and token.lemma == "of"):
                self.places.attach(Site(variable, self.tokens[quantified], agent=variable), j)
            elif token.dep in ("acl", "relcl", "advcl"):
                for k in (j, *self.phrases.conjuncts(j)):
                    self.action(k, variable)
            elif token.dep == "appos":
                self.builder.link(variable, "mod", self.entity(j))
            elif token.dep == "advmod":
                self._adverb(variable, j)
            elif token.dep in SUBJECTS and token.pos in NOUNS:
                self.builder.link(variable, "mod", self.entity(j))

    def clause(self, i: int, subject: str | None) -> str:
        """Return the node of a verb and its conjuncts."""
        verb_node = self.action(i, subject)
        agent = self._subject(i, subject)
        conjuncts = self.phrases.conjuncts(i)
        for j in self.words.having(i, "advcl"):
            if not self.words.having(j, "mark", "advmod", "aux"):
                conjuncts += [j, *self.phrases.conjuncts(j)]
        return self.phrases.coordinate(i, [verb_node, *(self.action(j, agent) for j in conjuncts)])

    def _subject(self, i: int, subject: str | None) -> str | None:
        subjects = [
            j
            for j in self.words.having(i, *SUBJECTS, *PASSIVE_SUBJECTS)
            if self.tokens[j].tag not in ("WDT", "WP")
        ]
        return self.entity(subjects[0]) if subjects else subject

    def action(self, i: int, subject: str | None) -> str:
        """Return the node of a verb with its arguments.

        Args:
            i: the verb.
            subject: node of its subject, where it has none of its own.
        """
        if i in self.builder.variable_of:
            return self.builder.variable_of[i]
        token = self.tokens[i]
        if token.pos not in ("VERB", "AUX"):
            return self.entity(i)
        if token.lemma == "be":
            return self._copula(i, subject)
        verb, path_particles = self._with_particles(i)
        variable = self.builder.add(concept_of(verb), verb, token=i)
        agent = self._subject(i, subject)
        if self._is_passive(i):
            role = PASSIVE_ROLES.get(verb, "ARG1")
        else:
            has_object = not path_particles and bool(self.words.having(i, *OBJECTS))
            role = "ARG0" if has_object else subject_role(verb)
            if subject is not None and agent != subject and not has_object:
                self.builder.link(variable, "ARG1", subject)  # "a stick that a dog has"
        if agent is not None:
            self.builder.link(variable, role, agent)
        for particle in path_particles:
            self._path(variable, particle, self._path_objects(i))
        for j in self.words.children[i]:
            if not (path_particles and self.tokens[j].dep in OBJECTS):
                self._argument(variable, verb, agent, j)
        return variable

    def _with_particles(self, i: int) -> tuple[str, list[str]]:
        """A verb with its particles, and path particles such as "up" in "walks up a hill"."""
        lemma = self.tokens[i].lemma
        particles = [self.tokens[j].lemma for j in self.words.having(i, "prt")]
        is_motion = lemma.rpartition("-")[2] in MOTION | {
            "look",
            "fall",
            "stand",
            "sit",
            "lie",
            "lay",
        }
        path_particles = [
            p
            for p in particles
            if p in PATH_PARTICLES and is_motion and f"{lemma} {p}" not in SENSES
        ]
        return " ".join([lemma, *(p for p in particles if p not in path_particles)]), path_particles

    def _path_objects(self, i: int) -> list[int]:
        """Objects of a path, which depend on the verb or on its particle."""
        particle_objects = (
            k for j in self.words.having(i, "prt") for k in self.words.having(j, "pobj")
        )
        return [*self.words.having(i, *OBJECTS), *particle_objects]

    def _path(self, variable: str, particle: str, objects: list[int]) -> None:
        if objects and particle in SOURCES:
            self.builder.link(variable, "source", self.entity(objects[0]), particle)
            return
        node = self.builder.add(particle, particle)
        self.builder.link(variable, "path" if objects else "direction", node)
        for j in objects[:1]:
            self.builder.link(node, "op1", self.entity(j))

    def _is_passive(self, i: int) -> bool:
        if self.words.having(i, "auxpass", *PASSIVE_SUBJECTS):
            return True
        return self.tokens[i].tag == "VBN" and not self.words.having(i, "aux", *OBJECTS)

    def _argument(self, variable: str, verb: str, agent: str | None, j: int) -> None:
        token = self.tokens[j]
        if token.dep in OBJECTS:
            self.builder.link(variable, "ARG1", self.entity(j))
        elif token.dep == "dative" and token.pos != "ADP":
            self.builder.link(variable, "ARG2", self.entity(j))
        elif token.dep == "agent":
            for k in self.words.having(j, "pobj"):
                self.builder.link(variable, AGENT_ROLES.get(verb, "ARG0"), self.entity(k))
        elif token.dep in ("prep", "dative"):
            self.places.attach(Site(variable, self.tokens[self._token(variable)], verb, agent), j)
        elif token.dep in ("xcomp", "ccomp", "advcl"):
            self._clause_below(variable, verb, agent, j)
        elif token.dep in ("advmod", "npadvmod"):
            self._adverb(variable, j)
        elif token.dep in ("acomp", "oprd", "amod"):
            word = token.text.lower()
            self.builder.link(variable, "manner", self.builder.add(token.lemma, word, token=j))
        elif token.dep == "neg":
            self.builder.negate(variable)

    def _token(self, variable: str) -> int:
        return self.builder.nodes[variable].names[0].token

    def _clause_below(self, variable: str, verb: str, agent: str | None, j: int) -> None:
        marks = {self.tokens[k].lemma for k in self.words.having(j, "mark", "advmod")}
        below = self.action(j, agent)
        if marks & {"while", "as", "when", "whilst"}:
            self.builder.link(variable, "time", below)
        elif self.words.having(j, "aux"):
            self.builder.link(variable, "ARG1" if verb in CONTROL_VERBS else "purpose", below)
        elif self.tokens[j].dep != "advcl":
            self.builder.link(variable, "ARG1", below)

    def _adverb(self, variable: str, j: int) -> None:
        token = self.tokens[j]
        word = token.text.lower()
        for k in self.words.having(j, "prep"):  # "away from a dog", "next to a tree"
            head = self.tokens[self._token(variable)]
            self.places.attach(Site(variable, head, head.lemma, None), j if word == "next" else k)
        if word == "next" or word in IGNORED_ADVERBS or j in self.builder.variable_of:
            return
        role = "mod"
        if word in PLACE_ADVERBS:
            role = "location"
        elif word in DIRECTION_ADVERBS:
            role = "direction"
        elif token.lemma in TIMES:
            role = "time"
        elif word.endswith("ly") or word == "together":
            role = "manner"
        self.builder.link(variable, role, self.builder.add(word, word, token=j))

    def _copula(self, i: int, subject: str | None) -> str:
        """Parse clauses with "be": existence, an attribute, or a place."""
        subjects = self.words.having(i, *SUBJECTS, "attr")
        if self.words.having(i, "expl") and subjects:
            variable = self.entity(subjects[0])
            self._negate(variable, i)
            self._attach_to_copula(variable, i)
            return variable
        agent = self._subject(i, subject)
        for j in self.words.having(i, "acomp", "attr", "oprd"):
            conjuncts = self.phrases.conjuncts(j)
            parts = [self._predicated(k, agent) for k in (j, *conjuncts)]
            joints = self._joints(j, *conjuncts)
            # "not brown or black" is neither, "not brown but white" is one; "and" tells nothing.
            negated = parts if len(parts) == 1 or "or" in joints else parts[: int("but" in joints)]
            for part in negated:
                self._negate(part, i, j)
            self._attach_to_copula(parts[0], i)
            return self.phrases.coordinate(j, parts)
        return self._located(i, agent)

    def _negate(self, variable: str, *words: int) -> None:
        """Negate a node if one of the words has "not"."""
        for i in words:
            if self.words.negations(i):
                self.builder.negate(variable)

    def _joints(self, *words: int) -> set[str]:
        """Conjunctions that depend on words."""
        return {self.tokens[j].lemma for i in words for j in self.words.having(i, "cc")}

    def _predicated(self, j: int, agent: str | None) -> str:
        """Return the predicate's node for "the dog is brown" or "the man is a clown"."""
        lemma = self.tokens[j].lemma
        if lemma in COLOURS:
            predicate = self.builder.add(COLOURS[lemma], lemma, token=j)
            if agent is not None:
                self.builder.link(predicate, "ARG1", agent)
        else:
            predicate = self._single(j)
            if agent is not None:
                self.builder.link(agent, "mod", predicate)
        return predicate

    def _attach_to_copula(self, variable: str, i: int) -> None:
        head = self.tokens[max(self._token(variable), 0)]
        for j in self.words.having(i, "prep"):
            self.places.attach(Site(variable, head, agent=variable), j)
        for j in self.words.having(i, "acl", "advcl"):
            self.action(j, variable)

    def _located(self, i: int, agent: str | None) -> str:
        variable = self.builder.add("be-located-at-91", "be", token=i)
        if agent is not None:
            self.builder.link(variable, "ARG1", agent)
        negations = self.words.negations(i)
        of_not = [k for j in negations for k in self.words.having(j, "prep")]
        for j in (*self.words.having(i, "prep"), *of_not):
            self.places.attach(Site(variable, self.tokens[i], "be", agent, bool(negations)), j)
        for j in self.words.having(i, "advmod"):
            word = self.tokens[j].text.lower()
            if word not in IGNORED_ADVERBS:
                self.builder.link(variable, "ARG2", self.builder.add(word, word, token=j))
        if any(e.source == variable and e.role != "ARG1" for e in self.builder.edges):
            self._negate(variable, i)  # else clothes have the "not"
        return variable


# Words between a word and its root, at most, because reading and merging are recursive. A
# caption of 200 words that is all relative clauses has 100.
MAX_DEPTH = 150
NEGATIONS = NOT | {"no", "nor", "neither"}


class RuleParser:
    """Parses captions into graphs with rules.

    Args:
        parser: gives words, tags and dependencies.
    """

    name = "rules"

    def __init__(self, *, parser: AbstractParser) -> None:
        self.parser = parser

    def parse(self, captions: Sequence[str]) -> list[Graph | None]:
        """Return one graph for each caption, in order; None if `read_words` fails."""
        parses = self.parser.parse(captions)
        return [graph_of(caption, parse) for caption, parse in zip(captions, parses, strict=True)]


def graph_of(caption: str, parse: Parse) -> Graph | None:
    """Build the graph of a parsed caption, with nodes aligned to word positions.

    `Name.token` counts the words of `parsed_words`, in which hyphens join.

    Raises:
        ValueError: the parse is not of this caption.
    """
    return read_words(parsed_words(caption, parse))


def read_words(words: Words) -> Graph | None:
    """Build the graph of words; None without any node, or for parses nested too deeply."""
    if _is_too_deep(words.tokens):
        return None
    builder = Builder(words)
    clauses = Clauses(builder)
    roots = [
        variable
        for i, token in enumerate(words.tokens)
        if token.head == i and (variable := clauses.top(i)) is not None
    ]
    if not roots:
        return None
    if len(roots) == 1:
        return builder.graph(roots[0])
    root = builder.add(MULTI_SENTENCE)
    for number, variable in enumerate(roots, start=1):
        builder.link(root, f"snt{number}", variable)
    return builder.graph(root)


def loses_negation(graph: Graph, words: Words) -> bool:
    """Return whether the graph has fewer negations than the words, and so may be wrong."""
    negations = sum(token.text.lower() in NEGATIONS for token in words.tokens)
    return sum(edge.role == "polarity" for edge in graph.edges) < negations


def _is_too_deep(tokens: Parse) -> bool:
    heads = range(len(tokens))
    for _ in range(MAX_DEPTH):
        heads = [tokens[head].head for head in heads]
    return any(tokens[head].head != head for head in heads)
