"""A parser to whom every word is a noun."""

from __future__ import annotations

from collections.abc import Sequence

from captioning.interfaces import AbstractParser
from captioning.types import Parse, Token


class Plain(AbstractParser):
    """Every word is a noun."""

    name = "plain"

    def parse(self, captions: Sequence[str]) -> list[Parse]:
        return [
            tuple(
                Token(text=word, lemma=word.rstrip("s"), pos="NOUN", tag="NN", dep="x", head=0)
                for word in caption.split()
            )
            for caption in captions
        ]
