"""Alignment of a caption's words with the nodes of a graph from another parser.

Such parsers return graphs without words; grounding, sampling and writing need words. A node gets
the first unused word whose lemma is its label's: AMR keeps dictionary forms, so most nodes get one.
Nodes without a word have no boxes and are not nouns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from augmentation.ssa.builder import PLURAL_TAGS
from augmentation.ssa.graph import Edge, Graph, Name
from augmentation.ssa.lexicon import NUMBERS
from augmentation.ssa.merging import Similarity
from augmentation.ssa.phrases import ARTICLES
from augmentation.ssa.sentences import Caption
from augmentation.ssa.words import Words
from captioning.text.phrases import NOUNS

_SENSE = re.compile(r"-\d\d$")
_BEFORE_NOUNS = ("det", "amod", "nummod", "compound", "poss", "nmod")
# AMR's labels for which captions use other words.
_OTHER_WORDS = {"person": ("people",), "have": ("with",), "wear": ("in",)}


def align(graph: Graph, words: Words) -> Graph:
    """The graph whose nodes have words, and whose edges have prepositions.

    Args:
        graph: labels alone.
        words: of the caption that was parsed into it, or written for it.
    """
    used: set[int] = set()
    nodes = {}
    for variable, node in graph.nodes.items():
        position = next((i for i in _places(node.concept, words) if i not in used), -1)
        used.add(position)
        name = _name(node.concept, words, position)
        nodes[variable] = replace(node, names=(name,))
    position_of = {variable: node.names[0].token for variable, node in nodes.items()}
    edges = tuple(
        replace(edge, word=_preposition(edge, position_of, words)) for edge in graph.edges
    )
    return Graph(nodes, edges, graph.root)


def caption_by_words(
    graph: Graph, text: str, words: Words, *, similarity: Similarity, min_similarity: float
) -> Caption:
    """A sentence that a model wrote for a graph, with its mentions of nodes.

    Args:
        graph: with words and boxes.
        text: the sentence.
        words: of it.
        similarity: of two words.
        min_similarity: of another noun for an object; it must be higher.

    Raises:
        ValueError: it leaves out an object of the graph.
    """
    alignment = align(graph, words)
    position_of = {
        v: alignment.nodes[v].names[0].token
        for v, node in graph.nodes.items()
        if node.names[0].noun
    }
    tokens = words.tokens
    nouns = [i for i, t in enumerate(tokens) if t.pos in NOUNS and t.dep != "compound"]
    missing = {
        v: graph.nodes[v].names[0].word for v, position in position_of.items() if position < 0
    }
    unmatched = {i: tokens[i].lemma for i in nouns if i not in position_of.values()}
    pairs = ((similarity(a, b), v, i) for v, a in missing.items() for i, b in unmatched.items())
    position_of |= _match_words(pair for pair in pairs if pair[0] > min_similarity)
    missing = [word for v, word in missing.items() if position_of[v] < 0]
    if missing:
        raise ValueError(f"{text!r} leaves out {missing}")
    mentions = []
    for variable, position in position_of.items():
        start, end = words.spans[position]
        start = min([start, *(words.spans[i][0] for i in words.having(position, *_BEFORE_NOUNS))])
        mentions.append((start, text[start:end], variable))
    unmatched_nouns = tuple(word for i, word in unmatched.items() if i not in position_of.values())
    named = tuple(tokens[i].lemma for i in nouns)
    return Caption(text, tuple(sorted(mentions)), nouns=named, unmatched_nouns=unmatched_nouns)


def _match_words(pairs: Iterable[tuple[float, str, int]]) -> dict[str, int]:
    """Variables with words, the most similar first, each once."""
    matches: dict[str, int] = {}
    for _, variable, position in sorted(pairs, key=lambda pair: (-pair[0], *pair[1:])):
        if variable not in matches and position not in matches.values():
            matches[variable] = position
    return matches


def _places(concept: str, words: Words) -> Iterator[int]:
    """Positions of a label's words, exact ones first."""
    label = _SENSE.sub("", concept)
    phrase = label.replace("-", " ")
    verb = {label.split("-")[0]} if label != concept else set()  # "take" of "take-off-01"
    for spellings in ({label, phrase, concept}, verb, set(_OTHER_WORDS.get(label, ()))):
        for i, token in enumerate(words.tokens):
            lemma = token.lemma.lower()
            if (
                lemma in spellings
                or token.text.lower() in spellings
                or NUMBERS.get(lemma) in spellings
            ):
                yield i


def _name(concept: str, words: Words, position: int) -> Name:
    label = _SENSE.sub("", concept)
    if position < 0:
        return Name(concept, "" if _SENSE.search(concept) else label.replace("-", " "))
    token = words.tokens[position]
    determiners = [words.tokens[i].lemma for i in words.having(position, "det")]
    plural = token.tag in PLURAL_TAGS or token.lemma == "people"
    noun = token.pos in NOUNS and token.dep != "compound"
    return Name(
        concept,
        token.lemma,
        plural=plural,
        article=next((ARTICLES[word] for word in determiners if word in ARTICLES), ""),
        token=position,
        noun=noun,
        form=token.text.lower() if plural and noun else "",
    )


def _preposition(edge: Edge, position_of: dict[str, int], words: Words) -> str:
    """The preposition between an edge's words; empty where a node or another word is there."""
    position = position_of[edge.target]
    if position < 0 or words.tokens[position].dep != "pobj":
        return ""
    head = words.tokens[position].head
    if words.tokens[head].pos != "ADP" or words.tokens[head].head != position_of[edge.source]:
        return ""
    return words.tokens[head].lemma
