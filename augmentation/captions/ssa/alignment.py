"""Which word of a caption each node of a graph from elsewhere stands for.

Parsers of other people give graphs without words; grounding, sampling and writing need them. A node
stands for the first word with its label's lemma that no node before it has taken: AMR keeps
dictionary forms, so most nodes find theirs. Nodes without a word have no boxes and are not nouns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from augmentation.captions.ssa.builder import PLURAL_TAGS
from augmentation.captions.ssa.graph import Edge, Graph, Name
from augmentation.captions.ssa.lexicon import NUMBERS
from augmentation.captions.ssa.merging import Similarity
from augmentation.captions.ssa.phrases import ARTICLES
from augmentation.captions.ssa.sentences import Caption
from augmentation.captions.ssa.words import Words
from captioning.text.parts import NOUNS

_SENSE = re.compile(r"-\d\d$")
_BEFORE_NOUNS = ("det", "amod", "nummod", "compound", "poss", "nmod")
# AMR's labels of what captions say by other words.
_SAID_OTHERWISE = {"person": ("people",), "have": ("with",), "wear": ("in",)}


def aligned(graph: Graph, words: Words) -> Graph:
    """The graph whose nodes know their words, and whose edges know their prepositions.

    Args:
        graph: labels alone.
        words: of the caption that it was made of, or that was made of it.
    """
    taken: set[int] = set()
    nodes = {}
    for variable, node in graph.nodes.items():
        place = next((i for i in _places(node.concept, words) if i not in taken), -1)
        taken.add(place)
        name = _name(node.concept, words, place)
        nodes[variable] = replace(node, names=(name,))
    at = {variable: node.names[0].token for variable, node in nodes.items()}
    edges = tuple(replace(edge, word=_preposition(edge, at, words)) for edge in graph.edges)
    return Graph(nodes, edges, graph.root)


def caption_by_words(
    graph: Graph, text: str, words: Words, *, similarity: Similarity, least: float
) -> Caption:
    """A sentence that somebody else wrote for a graph, and where it names what.

    Args:
        graph: with words and boxes.
        text: the sentence.
        words: of it.
        similarity: of two words.
        least: above which a thing may be called by another noun than its own.

    Raises:
        ValueError: it leaves out a thing of the graph.
    """
    alignment = aligned(graph, words)
    at = {
        v: alignment.nodes[v].names[0].token
        for v, node in graph.nodes.items()
        if node.names[0].noun
    }
    tokens = words.tokens
    nouns = [i for i, t in enumerate(tokens) if t.pos in NOUNS and t.dep != "compound"]
    lost = {v: graph.nodes[v].names[0].word for v, place in at.items() if place < 0}
    spare = {i: tokens[i].lemma for i in nouns if i not in at.values()}
    pairs = ((similarity(a, b), v, i) for v, a in lost.items() for i, b in spare.items())
    at |= _matched(pair for pair in pairs if pair[0] > least)
    lost = [word for v, word in lost.items() if at[v] < 0]
    if lost:
        raise ValueError(f"{text!r} leaves out {lost}")
    mentions = []
    for variable, place in at.items():
        start, end = words.spans[place]
        start = min([start, *(words.spans[i][0] for i in words.having(place, *_BEFORE_NOUNS))])
        mentions.append((start, text[start:end], variable))
    besides = tuple(word for i, word in spare.items() if i not in at.values())
    named = tuple(tokens[i].lemma for i in nouns)
    return Caption(text, tuple(sorted(mentions)), nouns=named, besides=besides)


def _matched(pairs: Iterable[tuple[float, str, int]]) -> dict[str, int]:
    """Variables with words, the likest first, each once."""
    matches: dict[str, int] = {}
    for _, variable, place in sorted(pairs, key=lambda pair: (-pair[0], *pair[1:])):
        if variable not in matches and place not in matches.values():
            matches[variable] = place
    return matches


def _places(concept: str, words: Words) -> Iterator[int]:
    """Where a label's words stand, those that say it as it is first."""
    label = _SENSE.sub("", concept)
    phrase = label.replace("-", " ")
    verb = {label.split("-")[0]} if label != concept else set()  # "take" of "take-off-01"
    for some in ({label, phrase, concept}, verb, set(_SAID_OTHERWISE.get(label, ()))):
        for i, token in enumerate(words.tokens):
            lemma = token.lemma.lower()
            if lemma in some or token.text.lower() in some or NUMBERS.get(lemma) in some:
                yield i


def _name(concept: str, words: Words, place: int) -> Name:
    label = _SENSE.sub("", concept)
    if place < 0:
        return Name(concept, "" if _SENSE.search(concept) else label.replace("-", " "))
    token = words.tokens[place]
    determiners = [words.tokens[i].lemma for i in words.having(place, "det")]
    plural = token.tag in PLURAL_TAGS or token.lemma == "people"
    noun = token.pos in NOUNS and token.dep != "compound"
    return Name(
        concept,
        token.lemma,
        plural=plural,
        article=next((ARTICLES[word] for word in determiners if word in ARTICLES), ""),
        token=place,
        noun=noun,
        form=token.text.lower() if plural and noun else "",
    )


def _preposition(edge: Edge, at: dict[str, int], words: Words) -> str:
    """The preposition between an edge's words; none where a node is it, or another word."""
    place = at[edge.target]
    if place < 0 or words.tokens[place].dep != "pobj":
        return ""
    head = words.tokens[place].head
    if words.tokens[head].pos != "ADP" or words.tokens[head].head != at[edge.source]:
        return ""
    return words.tokens[head].lemma
