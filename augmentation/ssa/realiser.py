"""Write captions from graphs with rules: word order, agreement, articles, pronouns.

Nodes of a sample have words (`Name`); a graph from another parser is written with its labels. Edges
have the preposition of their caption; without one, the role's usual preposition is taken.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from augmentation.ssa.event_sampling import POSSESSION_CONCEPTS, is_attribute, is_colour
from augmentation.ssa.graph import COORDINATORS, Edge, Graph
from augmentation.ssa.lexicon import (
    ADVERB_ROLES,
    BODY_PARTS,
    NUMBERS,
    POINTERS,
    POSSESSIVES,
    ROLE_PREPOSITIONS,
    SUBJECT_IS_ARG1,
    concept_of,
    is_living,
)
from augmentation.ssa.word_usage import NounForms
from augmentation.ssa.written_captions import Piece
from captioning.text.inflection import (
    indefinite_article,
    ing,
    participle,
    possessive_mark,
    third_person,
)

STYLES = ("progressive", "simple", "phrase")
LIST_STYLES = STYLES[:2]
# Verbs that rarely stand in the progressive.
_STATIVE_VERBS = "have wear overlook surround resemble belong contain cover"
STATIVE_VERBS = frozenset(_STATIVE_VERBS.split())
_NUMBER_WORDS = {number: word for word, number in NUMBERS.items()}


@dataclass(kw_only=True)
class Realiser:
    """Writes an AMR graph as an English sentence.

    Attributes:
        graph: graph to write; each node by its first name.
        style: ``"progressive"`` ("a man is riding a horse"), ``"simple"`` ("a man rides a horse")
            or ``"phrase"`` ("a man riding a horse").
        nouns: articles and plurals of nouns.
    """

    graph: Graph
    style: str
    nouns: NounForms
    _realised: set[str] = field(default_factory=set)
    _subject: str = ""

    def pieces(self) -> list[Piece]:
        """Words of the sentence in order.

        Raises:
            ValueError: the root cannot be written as a sentence.
        """
        root = self.graph.root
        node = self.graph.nodes[root]
        if node.is_predicate:
            return self.clause(root)
        parts = [e.target for e in self.graph.out[root] if e.role.startswith("op")]
        self._refuse_not(root)
        if parts and all(self.graph.nodes[part].is_predicate for part in parts):
            return self._events(parts)
        return self.noun_phrase(root)

    # -- clauses -----------------------------------------------------------------------------

    def clause(self, variable: str) -> list[Piece]:
        """Words of a sentence, or of a noun with a participle."""
        self._realised.add(variable)
        subject, arguments, passive = self._arguments(variable)
        if subject is None:
            raise ValueError(f"{self._verb(variable)!r} has no subject")
        if is_attribute(self.graph, variable):
            return self._attributed(variable, subject.target)
        self._subject = subject.target
        agent = self.noun_phrase(subject.target)
        plural = self.is_plural(subject.target)
        return [*agent, *self._verb_form(variable, plural, passive), *self._tail(arguments)]

    def _events(self, events: list[str]) -> list[Piece]:
        """Join events, as in "a man rides a bike and waves while two girls watch"."""
        by_subject: dict[str, list[str]] = {}
        self._realised.update(events)
        for event in events:
            subject, verb = self._arguments(event)[0], self._verb(event)
            if subject is None or verb in (*STATIVE_VERBS, "be") or is_attribute(self.graph, event):
                raise ValueError("joined events need a subject and a verb of action")
            by_subject.setdefault(subject.target, []).append(event)
        pieces: list[Piece] = []
        for first, *others in by_subject.values():
            pieces += [*_words("while" if pieces else ""), *self.clause(first)]
            for event in others:
                pieces += [*_words("and" if event == others[-1] else ","), *self._event(event)]
        return pieces

    def _event(self, variable: str) -> list[Piece]:
        """Add another event of the last clause's subject."""
        _, arguments, passive = self._arguments(variable)
        style = self.style
        self.style = "phrase" if style == "progressive" else style  # "is riding a bike and waving"
        form = self._verb_form(variable, self.is_plural(self._subject), passive)
        self.style = style
        return [*form, *self._tail(arguments)]

    def _attributed(self, variable: str, noun: str) -> list[Piece]:
        """Write attributes as predicates: "the dog is black and white", "the dog is not black"."""
        predicates = [variable]
        if self._is_colour(variable) and not self.graph.is_negated(variable):
            predicates += [v for v in self._attributes(noun) if self._is_colour(v)]
        self._realised.update(predicates)
        words = [self._word(v) for v in sorted(predicates, key=self._place)]
        be = "are" if self.is_plural(noun) else "is"
        return [*self.noun_phrase(noun), *_words(be, " and ".join(words))]

    def _is_colour(self, variable: str) -> bool:
        return is_colour(self.graph.nodes[variable].concept)

    def _arguments(self, variable: str) -> tuple[Edge | None, list[Edge], bool]:
        """Subject, other edges in sentence order, and whether the sentence is passive."""
        edges = [e for e in self.graph.out[variable] if e.role != "polarity"]
        by_role = {edge.role: edge for edge in edges}
        verb = self._verb(variable)
        passive = False
        subject = by_role.get("ARG0")
        if subject is None:
            subject = by_role.get("ARG1")
            is_active = verb in SUBJECT_IS_ARG1 or verb == "be"
            passive = subject is not None and not is_active and not subject.word
        remaining = [edge for edge in edges if edge is not subject]
        objects = [edge for edge in remaining if edge.role == "ARG1"]
        other_edges = [edge for edge in remaining if edge.role != "ARG1"]
        order = list(ROLE_PREPOSITIONS)
        other_edges.sort(key=lambda e: order.index(e.role) if e.role in order else len(order))
        return subject, [*objects, *other_edges], passive

    def _verb(self, variable: str) -> str:
        """Dictionary form of a verb, followed by its particle."""
        node = self.graph.nodes[variable]
        word = node.names[0].word
        if concept_of(word) == node.concept:
            return word  # the label has "-" both in "take-off-08" and in "water-ski-01"
        verb = node.concept.rsplit("-", 1)[0].replace("-", " ")
        return "be" if verb == "be located at" else verb

    def _verb_form(self, variable: str, plural: bool, passive: bool) -> list[Piece]:
        verb = self._verb(variable)
        negation = ["not"] if self.graph.is_negated(variable) else []
        be = "are" if plural else "is"
        if verb == "be":
            return _words(*([be] if self.style != "phrase" else []), *negation)
        if passive:
            return _words(*([be] if self.style != "phrase" else []), *negation, participle(verb))
        if self.style == "phrase":
            is_possession = self.graph.nodes[variable].concept == "have-03" and not negation
            return _words("with") if is_possession else _words(*negation, ing(verb))
        if self.style == "simple" or verb in STATIVE_VERBS:
            if negation:
                return _words("do" if plural else "does", "not", verb)
            return _words(verb if plural else third_person(verb))
        return _words(be, *negation, ing(verb))

    def _tail(self, edges: Iterable[Edge]) -> list[Piece]:
        """Words of the arguments after a verb."""
        return [piece for edge in edges for piece in self._role(edge)]

    def _role(self, edge: Edge) -> list[Piece]:
        node = self.graph.nodes[edge.target]
        if node.is_predicate:
            return self._subordinate_clause(edge)
        if self.graph.children(edge.target, "op1") and node.concept not in COORDINATORS:
            return self._relative(edge.target)
        name = node.names[0]
        if not name.noun and edge.role in ADVERB_ROLES:
            return _words(self._word(edge.target)) if not edge.word else self._with_word(edge)
        return self._with_word(edge)

    def _with_word(self, edge: Edge) -> list[Piece]:
        word = edge.word or ROLE_PREPOSITIONS.get(edge.role, "")
        if edge.role == "ARG1" and self.graph.nodes[edge.source].concept in POSSESSION_CONCEPTS:
            word = ""  # "in a hat", but "wears a hat"
        if edge.role.startswith("prep-"):
            word = edge.role.removeprefix("prep-").replace("-", " ")
        return [*_words(word), *self.noun_phrase(edge.target)]

    def _relative(self, variable: str) -> list[Piece]:
        """Words of a relative place, such as "behind a tree"."""
        words = _words(self._word(variable))
        for edge in self.graph.out[variable]:
            if edge.role == "op1":
                words += self.noun_phrase(edge.target)
        return words

    def _subordinate_clause(self, edge: Edge) -> list[Piece]:
        """Words of a clause within a clause: "to catch a ball", "while holding a cup"."""
        variable = edge.target
        if variable in self._realised:
            return []
        self._realised.add(variable)
        subject, arguments, passive = self._arguments(variable)
        verb = self._verb(variable)
        if subject is not None and subject.target not in self._realised:
            if edge.role != "time":
                raise ValueError("a clause with another subject needs 'while'")
            agent = self.noun_phrase(subject.target)
            style, self.style = self.style, "progressive"
            form = self._verb_form(variable, self.is_plural(subject.target), passive)
            self.style = style
            return [*_words("while"), *agent, *form, *self._tail(arguments)]
        if edge.role == "time":
            form = ["while", *(["being", participle(verb)] if passive else [ing(verb)])]
        elif edge.role == "purpose" or edge.role == "ARG1":
            form = ["to", *(["be", participle(verb)] if passive else [verb])]
        else:
            form = [ing(verb)]
        if self.graph.is_negated(variable):  # "not to catch a ball", "while not holding a cup"
            form.insert(int(edge.role == "time"), "not")
        return [*_words(*form), *self._tail(arguments)]

    # -- noun phrases ------------------------------------------------------------------------

    def noun_phrase(self, variable: str) -> list[Piece]:
        """Noun with article, attributes and postmodifiers; a pronoun on later mentions."""
        node = self.graph.nodes[variable]
        if node.concept in COORDINATORS:
            self._refuse_not(variable)
            return self._list(variable)
        if variable in self._realised:
            return _words(self._repeated(variable))
        if self.graph.nodes[variable].names[0].word in POSSESSIVES:
            raise ValueError("a pronoun has no known referent")
        self._realised.add(variable)
        before, owner = self._premodifiers(variable)
        if owner:
            self._refuse_not(variable)
        noun = self._noun(variable)
        text = " ".join([*before, noun])
        article = "" if owner else self._article(variable, text)
        core = " ".join(filter(None, (owner, article, text)))
        return [Piece(core, variable), *self._postmodifiers(variable)]

    def _refuse_not(self, variable: str) -> None:
        if self.graph.is_negated(variable):
            raise ValueError("a negated list or possession has no wording")

    def _repeated(self, variable: str) -> str:
        """Pronoun for a repeated object: "it", or "itself" if it is also the subject."""
        word = self._pronoun(variable, object_form=True)
        if word == "them" and not self.is_plural(variable):
            raise ValueError("the pronoun of a person is unknown")
        reflexives = {"them": "themselves", "him": "himself", "her": "herself", "it": "itself"}
        return reflexives[word] if variable == self._subject else word

    def _list(self, variable: str) -> list[Piece]:
        parts = [e for e in self.graph.out[variable] if e.role.startswith("op")]
        pieces: list[Piece] = []
        for number, edge in enumerate(parts):
            last = number == len(parts) - 1
            if edge.target in self._realised:
                raise ValueError("a list contains an object that was named before")
            if number:
                pieces += _words(self.graph.nodes[variable].concept if last else ",")
            pieces += self.noun_phrase(edge.target)
        return pieces

    def is_plural(self, variable: str) -> bool:
        """Return whether a subject needs the plural form of the verb."""
        node = self.graph.nodes[variable]
        numbers = (self.graph.nodes[v].concept for v in self.graph.children(variable, "quant"))
        has_number = any(number.isdigit() and number != "1" for number in numbers)
        return node.concept == "and" or node.names[0].plural or has_number

    def _noun(self, variable: str) -> str:
        name = self.graph.nodes[variable].names[0]
        word = name.word or name.concept
        return self.nouns.plural(word) if self.is_plural(variable) else word

    def _word(self, variable: str) -> str:
        node = self.graph.nodes[variable]
        name = node.names[0]
        if node.concept in _NUMBER_WORDS:
            return _NUMBER_WORDS[node.concept]
        word = name.word or name.concept.replace("-", " ")
        return f"not {word}" if self.graph.is_negated(variable) else word

    def _attributes(self, variable: str) -> list[str]:
        """Attributes in the order of their captions."""
        out = [e.target for e in self.graph.out[variable] if e.role in ("mod", "quant")]
        into = [
            e.source
            for e in self.graph.into[variable]
            if e.source not in self._realised and is_attribute(self.graph, e.source)
        ]
        attributes = [v for v in out if not self.graph.nodes[v].names[0].noun] + into
        attributes = [v for v in attributes if not self.graph.is_negated(v)]
        spoken = [v for v in attributes if self.graph.nodes[v].concept not in POINTERS]
        return sorted(spoken, key=lambda v: (not self._is_number(variable, v), self._place(v)))

    def _is_number(self, variable: str, other: str) -> bool:
        return other in self.graph.children(variable, "quant")

    def _place(self, variable: str) -> int:
        return self.graph.nodes[variable].names[0].token

    def _premodifiers(self, variable: str) -> tuple[list[str], str]:
        """Attributes before a noun, and its owner."""
        words: list[str] = []
        after_colour = False
        for attribute in self._attributes(variable):
            colour = self._is_colour(attribute)
            if colour and after_colour:
                words.append("and")
            self._realised.add(attribute)
            modifiers = sorted(self.graph.children(attribute, "mod", "degree"), key=self._place)
            words += [*(self._word(v) for v in modifiers), self._word(attribute)]
            if self._word(attribute) in ("couple", "lot"):
                words[-1:] = ["a", words[-1], "of"]
            after_colour = colour
        owners = self.graph.children(variable, "poss")
        owners += [e.source for e in self.graph.into[variable] if e.role == "part"]
        owner = next((v for v in owners if v in self.graph.nodes), None)
        return words, "" if owner is None else self._owner(owner)

    def _owner(self, owner: str) -> str:
        if owner in self._realised:
            return self._pronoun(owner)
        word = self.graph.nodes[owner].names[0].word
        if word in POSSESSIVES:  # somebody not named before: "a boy with his bow" without the boy
            self._realised.add(owner)
            return POSSESSIVES[word]
        pieces = self.noun_phrase(owner)
        text = " ".join(piece.text for piece in pieces[:1])
        return text + possessive_mark(text, plural=self.is_plural(owner))

    def _pronoun(self, variable: str, *, object_form: bool = False) -> str:
        name = self.graph.nodes[variable].names[0]
        return self.nouns.pronoun(name, plural=self.is_plural(variable), object_form=object_form)

    def _article(self, variable: str, text: str) -> str:
        if self.graph.is_negated(variable):
            return "no"
        name = self.graph.nodes[variable].names[0]
        first = text.split(" ")[0]
        if first == "a" or self.graph.children(variable, "quant"):
            return ""
        if name.plural:
            return "the" if name.article == "the" and not is_living(name.word) else ""
        kind = self.nouns.article(name)
        return indefinite_article(text) if kind == "a" else kind

    def _postmodifiers(self, variable: str) -> list[Piece]:
        """Words after a noun: its material, parts, place and clothes."""
        pieces: list[Piece] = []
        for edge in self.graph.out[variable]:
            if edge.role in ("consist-of", "part-of", "topic"):
                pieces += [*_words("of"), *self.noun_phrase(edge.target)]
        for edge in self.graph.out[variable]:
            is_part = edge.role == "part" and edge.target not in self._realised
            if is_part and edge.word and self.graph.nodes[edge.target].concept in BODY_PARTS:
                pieces += [*_words("with"), *self._own_part(edge.target)]
        for edge in self.graph.into[variable]:
            node = self.graph.nodes[edge.source]
            new = edge.role == "ARG0" and edge.source not in self._realised and node.is_predicate
            negated = self.graph.is_negated(edge.source)  # not "without a dog": "not looking at it"
            if new and (not negated or node.concept in POSSESSION_CONCEPTS):
                pieces += self._possession(edge.source)
        for edge in self.graph.out[variable]:
            if edge.role == "location":
                pieces += self._role(edge)
        return pieces

    def _own_part(self, variable: str) -> list[Piece]:
        """Part without a pronoun: "a beard" in "a man with a beard", not "his beard"."""
        self._realised.add(variable)
        attributes = (self._word(v) for v in self._attributes(variable))
        text = " ".join([*attributes, self._noun(variable)])
        article = self._article(variable, text)
        return [Piece(f"{article} {text}".strip(), variable)]

    def _possession(self, variable: str) -> list[Piece]:
        """Phrase of possession: "in a red shirt", "with a stick" or "without a hat"."""
        self._realised.add(variable)
        pieces: list[Piece] = []
        for edge in self.graph.out[variable]:
            if edge.role == "ARG1":
                wears = self.graph.nodes[variable].concept == "wear-01"
                word = edge.word or ("wearing" if wears else "with")
                if self.graph.is_negated(variable):
                    word = "not wearing" if wears else "without"
                pieces += [*_words(word), *self.noun_phrase(edge.target)]
        return pieces


def _words(*words: str) -> list[Piece]:
    return [Piece(word) for word in words if word]
