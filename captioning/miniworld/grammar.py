"""The grammar of the captions: articles, counts and agreement."""

from __future__ import annotations

from captioning.text.inflection import indefinite_article, pluralise

NUMBERS = {1: "one", 2: "two", 3: "three", 4: "four"}


def for_many(verb: str) -> str:
    """A verb phrase with a plural subject: ``ride a bike`` becomes ``ride bikes``."""
    before, joint, noun = verb.partition(" a ")
    return f"{before} {pluralise(noun)}" if joint else verb


def article(words: str) -> str:
    """``words`` with the indefinite article before them."""
    return f"{indefinite_article(words.split()[0])} {words}"
