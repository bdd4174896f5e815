"""Rules that correct frequent errors of the caption parser's teacher.

The teacher learned from newspapers and conversations. Captions lack verbs ("A man riding a horse"),
name objects that newspapers do not (teddy bears, frisbees) and are full of colours. Each rule
corrects exactly one kind of error that was found when captions were checked by hand.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from captioning.types import Parse, Token

COLOURS = frozenset(
    {"white", "black", "red", "blue", "green", "yellow", "brown", "grey", "gray"}
    | {"pink", "purple", "maroon", "beige", "tan"}
)
BEFORE_NOUNS = ("compound", "nmod", "amod")
PARTICIPLES = ("VBG", "VBN")
ARTICLES = ("a", "an", "another")
PLACES_OF_NOUNS = ("pobj", "dobj", "nsubj", "nsubjpass", "conj", "ROOT")


def repair(parse: Parse) -> Parse:
    """Apply all rules to a parse."""
    for rule in RULES:
        parse = rule(parse)
    return parse


def _children(parse: Parse, head: int) -> list[int]:
    return [i for i, token in enumerate(parse) if token.head == head and i != head]


def _changed(parse: Parse, changes: dict[int, Token]) -> Parse:
    return tuple(changes.get(i, token) for i, token in enumerate(parse))


def _common_names(parse: Parse) -> Parse:
    """Tag lower-case words, and "bear" in "teddy bear" in any case, as common nouns."""
    changes = {}
    for i, token in enumerate(parse):
        name = token.tag in ("NNP", "NNPS") and token.text.islower()
        teddy = token.text.lower() == "teddy" and token.dep in BEFORE_NOUNS
        if teddy:
            changes[i] = replace(token, tag="NN", pos="NOUN", dep="compound", lemma="teddy")
        elif name:
            changes[i] = replace(token, tag=token.tag.replace("NNP", "NN"), pos="NOUN")
    return _changed(parse, changes)


def _colours(parse: Parse) -> Parse:
    """Make a colour before a compound an adjective of its head, as in "red fire hydrant"."""
    changes = {}
    for i, token in enumerate(parse):
        if token.text.lower() not in COLOURS or token.dep not in BEFORE_NOUNS or token.head < i:
            continue
        head = token.head
        while parse[head].dep == "compound" and parse[head].head > head:
            head = parse[head].head
        lemma = token.text.lower()
        changes[i] = replace(token, tag="JJ", pos="ADJ", dep="amod", lemma=lemma, head=head)
    return _changed(parse, changes)


def _next_to(parse: Parse) -> Parse:
    """Tag the first word of "next to" as an adverb, the teacher's second choice."""
    neighbours = pairwise(parse)
    places = [
        i
        for i, (token, following) in enumerate(neighbours)
        if (token.text.lower(), following.text.lower()) == ("next", "to") and following.head == i
    ]
    changes = {}
    for i in places:
        token = parse[i]
        dep = "advmod" if token.dep in ("amod", "acomp", "advmod") else token.dep
        changes[i] = replace(token, tag="RB", pos="ADV", lemma="next", dep=dep)
    return _changed(parse, changes)


def _nouns(parse: Parse) -> Parse:
    """Tag a word with its own article as a noun ("a yellow fire hydrant"), except in "close up"."""
    marked = {t.head for t in parse if t.dep == "det" and t.text.lower() in ARTICLES}
    changes = {
        i: replace(parse[i], tag="NN", pos="NOUN", lemma=parse[i].text.lower())
        for i in marked
        if parse[i].tag in ("JJ", "RB") and parse[i].dep in PLACES_OF_NOUNS
        if i == len(parse) - 1 or parse[i + 1].text.lower() not in ("one", "up")
    }
    return _changed(parse, changes)


def _verbs(parse: Parse) -> Parse:
    """Tag a plural after a singular subject as a verb: "a zebra munches"."""
    changes = {}
    for i, token in enumerate(parse):
        children = _children(parse, i)
        subject = next((j for j in children if parse[j].dep == "nsubj" and j < i), None)
        if token.tag != "NNS" or token.head != i or subject is None:
            continue
        words = [parse[j].text.lower() for j in _children(parse, subject)]
        if parse[subject].tag == "NN" and any(word in ARTICLES for word in words):
            changes[i] = replace(token, tag="VBZ", pos="VERB")
    return _changed(parse, changes)


def _compounds(parse: Parse) -> Parse:
    """Join the "subject" of the following noun to that noun as a compound: "a marble sink"."""
    for i, token in enumerate(parse):
        previous = i - 1
        noun = token.tag in ("NN", "NNS") and not token.text.endswith("ing")
        if not noun or token.head != i or previous < 0:
            continue
        modifier = parse[previous]
        if (modifier.tag, modifier.dep, modifier.head) != ("NN", "nsubj", i):
            continue
        changes = {j: replace(parse[j], head=i) for j in _children(parse, previous)}
        changes[previous] = replace(modifier, dep="compound")
        parse = _changed(parse, changes)
    return parse


def _subjects_without_verbs(parse: Parse) -> Parse:
    """Attach a participle to its noun: "a man riding a horse" is a noun phrase, not a sentence."""
    for root, token in enumerate(parse):
        if token.head != root or token.tag not in PARTICIPLES:
            continue
        children = _children(parse, root)
        deps = [parse[i].dep for i in children]
        subjects = [i for i in children if parse[i].dep in ("nsubj", "nsubjpass") and i < root]
        if len(subjects) != 1 or "aux" in deps or "auxpass" in deps:
            continue
        subject = subjects[0]
        changes = {
            i: replace(parse[i], head=subject)
            for i in children
            if parse[i].dep == "punct" or (i < subject)
        }
        changes[root] = replace(token, dep="acl", head=subject)
        changes[subject] = replace(parse[subject], dep="ROOT", head=subject)
        parse = _changed(parse, changes)
    return parse


RULES = (
    _common_names,
    _colours,
    _next_to,
    _nouns,
    _verbs,
    _compounds,
    _subjects_without_verbs,
)
