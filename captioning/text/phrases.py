"""Extract nouns, noun phrases with attributes, and verbs with arguments from parsed captions.

Pure functions of a `Parse`; relations use spaCy's English (ClearNLP) labels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from captioning.types import Parse

NOUNS = ("NOUN", "PROPN")
SUBJECTS = ("nsubj", "csubj")
PASSIVE_SUBJECTS = ("nsubjpass", "csubjpass")
OBJECTS = ("dobj", "obj")
# "the dog (that is) held by a man": verbs with these relations modify their head noun.
CLAUSES_OF_NOUNS = ("acl", "relcl")
ATTRIBUTES = ("amod", "nummod")
RELATIVE_PRONOUNS = ("WDT", "WP")
# Maximum verbs between a verb and its subject, to bound the search.
MAX_STEPS_UP = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class NounPhrase:
    """A noun with its modifiers.

    Attributes:
        head: position of the noun.
        start: position of the phrase's first word; the noun is the last word.
        lemma: lemma of the noun with preceding compound nouns: ``"fire hydrant"``.
        attributes: adjectives and numbers in order, also those after "is": ``("two", "red")``.
            Lemmas, except participles, which are unchanged: ``("parked",)``.
    """

    head: int
    start: int
    lemma: str
    attributes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """A verb with its subjects and objects, as word positions in the caption.

    Attributes:
        verb: the verb.
        lemma: lemma of the verb, with its particle: ``"take off"``.
        subjects: agent nouns: the man in "a man riding a horse" and in "a horse ridden
            by a man".
        objects: nouns that the action affects.
        places: (lower-case preposition, noun position): ``("on", 5)``.
    """

    verb: int
    lemma: str
    subjects: tuple[int, ...]
    objects: tuple[int, ...]
    places: tuple[tuple[str, int], ...]


def nouns(parse: Parse, *, compounds: bool = False) -> tuple[str, ...]:
    """Return the lemmas of nouns and names in order, with repeats.

    Args:
        compounds: one lemma per phrase (``"fire hydrant"``) instead of one per word
            (``"fire"``, ``"hydrant"``).
    """
    if not compounds:
        return tuple(token.lemma for token in parse if token.pos in NOUNS)
    return tuple(phrase.lemma for phrase in noun_phrases(parse))


def noun_phrases(parse: Parse) -> tuple[NounPhrase, ...]:
    """Return the phrases of all nouns in order; nouns within a compound have no own phrase."""
    children = children_of(parse)
    return tuple(
        _phrase(parse, children, head)
        for head, token in enumerate(parse)
        if token.pos in NOUNS and not _is_compound(parse, head)
    )


def actions(parse: Parse) -> tuple[Action, ...]:
    """Return all full verbs with their arguments, in order.

    "be", auxiliary verbs and participles before a noun ("a parked car") are left out.
    """
    children = children_of(parse)
    return tuple(
        _action(parse, children, verb)
        for verb, token in enumerate(parse)
        if token.pos == "VERB" and token.dep not in ATTRIBUTES
    )


def children_of(parse: Parse) -> list[list[int]]:
    """Return, for each word, the positions of its dependents in order."""
    children: list[list[int]] = [[] for _ in parse]
    for i, token in enumerate(parse):
        if token.head != i:
            children[token.head].append(i)
    return children


def _is_compound(parse: Parse, position: int) -> bool:
    token = parse[position]
    return token.dep == "compound" and position < token.head


def _phrase(parse: Parse, children: list[list[int]], head: int) -> NounPhrase:
    compound = [i for i in _tree(children, head, parse, ("compound",)) if i < head]
    words = [parse[i].lemma for i in sorted(compound)] + [parse[head].lemma]
    return NounPhrase(
        head=head,
        start=_start(children, head),
        lemma=" ".join(words),
        attributes=tuple(_attributes(parse, children, head)),
    )


def _tree(
    children: list[list[int]], head: int, parse: Parse, deps: tuple[str, ...]
) -> Iterator[int]:
    """Return the words below ``head`` that are reached through the given relations only."""
    open_words = [head]
    while open_words:
        dependents = [i for i in children[open_words.pop()] if parse[i].dep in deps]
        yield from dependents
        open_words += dependents


def _start(children: list[list[int]], head: int) -> int:
    """Return the first word of the unbroken run before ``head`` that depends on ``head``."""
    start, open_words = head, [i for i in children[head] if i < head]
    below = set()
    while open_words:
        word = open_words.pop()
        below.add(word)
        open_words += children[word]
    while start - 1 in below:
        start -= 1
    return start


def _attributes(parse: Parse, children: list[list[int]], head: int) -> Iterator[str]:
    places = [i for i in children[head] if parse[i].dep in ATTRIBUTES]
    noun = parse[head]
    # "the hydrant is red": noun and adjective both depend on the verb
    if noun.dep in SUBJECTS and parse[noun.head].lemma == "be":
        places += [i for i in children[noun.head] if parse[i].dep == "acomp"]
    places += [j for i in places for j in _tree(children, i, parse, ("conj",))]
    for token in (parse[i] for i in sorted(places)):
        if token.pos not in NOUNS:
            yield token.text.lower() if token.pos == "VERB" else token.lemma


def _action(parse: Parse, children: list[list[int]], verb: int) -> Action:
    subjects, objects = _arguments(parse, children, verb)
    passive = _is_passive(parse, children, verb)
    if passive and not objects:
        objects = _from_above(parse, children, verb)
    elif not passive and not subjects:
        subjects = _from_above(parse, children, verb)
    particles = [parse[i].lemma for i in children[verb] if parse[i].dep == "prt"]
    return Action(
        verb=verb,
        lemma=" ".join([parse[verb].lemma, *particles]),
        subjects=_with_conjuncts(parse, children, subjects),
        objects=_with_conjuncts(parse, children, objects),
        places=tuple(_places(parse, children, verb)),
    )


def _is_passive(parse: Parse, children: list[list[int]], verb: int) -> bool:
    deps = {parse[i].dep for i in children[verb]}
    bare = parse[verb].tag == "VBN" and not deps & {"aux", *OBJECTS}
    return bool(deps & {"auxpass", *PASSIVE_SUBJECTS}) or bare


def _arguments(parse: Parse, children: list[list[int]], verb: int) -> tuple[list[int], list[int]]:
    subjects, objects = [], []
    for child in children[verb]:
        dep = parse[child].dep
        # "a dog that runs": the subject is the dog
        argument = parse[verb].head if parse[child].tag in RELATIVE_PRONOUNS else child
        if dep in SUBJECTS:
            subjects.append(argument)
        elif dep in (*OBJECTS, *PASSIVE_SUBJECTS):
            objects.append(argument)
        elif dep == "agent":
            subjects += [i for i in children[child] if parse[i].dep == "pobj"]
    return subjects, objects


def _from_above(parse: Parse, children: list[list[int]], verb: int) -> list[int]:
    """Find the subject of a verb without its own subject, through the verb's head.

    It is the noun that the verb modifies, or the subject of its head verb ("a man sits reading").
    """
    for _ in range(MAX_STEPS_UP):
        dep, verb = parse[verb].dep, parse[verb].head
        if dep in CLAUSES_OF_NOUNS:
            return [verb]
        if dep not in ("conj", "advcl", "xcomp") or parse[verb].pos != "VERB":
            return []
        subjects, objects = _arguments(parse, children, verb)
        arguments = objects if _is_passive(parse, children, verb) else subjects
        if arguments:
            return arguments
    return []


def _with_conjuncts(parse: Parse, children: list[list[int]], heads: list[int]) -> tuple[int, ...]:
    words = set(heads)
    for head in heads:
        words |= set(_tree(children, head, parse, ("conj",)))
    return tuple(sorted(i for i in words if parse[i].pos in (*NOUNS, "PRON", "NUM")))


def _places(parse: Parse, children: list[list[int]], verb: int) -> Iterator[tuple[str, int]]:
    for preposition in children[verb]:
        if parse[preposition].dep not in ("prep", "dative"):
            continue
        for noun in children[preposition]:
            if parse[noun].dep == "pobj":
                yield parse[preposition].text.lower(), noun
