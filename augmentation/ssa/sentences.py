"""Sentences for graphs, with the positions of the nodes' mentions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Piece:
    """Words of a caption, with the node that they name, if any."""

    text: str
    node: str = ""


@dataclass(frozen=True, slots=True)
class Caption:
    """A caption with its mentions of nodes.

    Attributes:
        text: the caption.
        mentions: ``(start, text, node)``.
        nouns: lemmas of the nouns of a sentence that a model wrote; empty for the rules, which use
            only nouns of the photo's captions.
        unmatched_nouns: those of them without a node in the graph.
    """

    text: str
    mentions: tuple[tuple[int, str, str], ...]
    nouns: tuple[str, ...] = ()
    unmatched_nouns: tuple[str, ...] = ()


def caption_of(pieces: Iterable[Piece]) -> Caption:
    """Pieces as a sentence with a capital and a full stop."""
    text, mentions = "", []
    for piece in pieces:
        if text and piece.text != ",":
            text += " "
        if piece.node:
            mentions.append((len(text), len(piece.text), piece.node))
        text += piece.text
    text = text[:1].upper() + text[1:] + "."
    named = ((start, text[start : start + n], node) for start, n, node in mentions)
    return Caption(text, tuple(named))
