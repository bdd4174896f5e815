"""Possessives and the indefinite article of English nouns and adjectives.

Plurals are in `captioning.text.plurals`.
"""

from __future__ import annotations

import re

VOWELS = "aeiou"

# Spelt with a vowel and spoken with a consonant: "a uniform", but "an uninterested cat".
SPOKEN_WITH_Y = re.compile(
    r"(?:eu|ewe|uk|ufo|u\.?s\.?a?\b|urin|usab|use|usu|util|uten|u-|uni(?!dent|mag|mp|n))"
)
SPOKEN_WITH_W = re.compile(r"(?:one|once)(?!r)")
SILENT_H = ("hour", "honest", "honor", "honour", "heir")
# Read letter by letter though captions write them in lower case, or with vowels in them.
SPELLED_OUT = re.compile(r"(?:atv|suv|mp3|rv|lcd|led|x-ray|xray|f1)\b")  # but "a ledge"
# Letters whose names begin with a vowel: "an NBA player", "a TV".
VOWEL_NAMES = "aefhilmnorsx"


def possessive_mark(noun: str, *, plural: bool) -> str:
    """What follows a possessor: ``'s``, or ``'`` after a plural that ends with s."""
    return "'" if plural and noun.endswith("s") else "'s"


def indefinite_article(word: str) -> str:
    """``a`` or ``an`` before a word, by how it is spoken.

    Args:
        word: the next word as written; capitals alone are read letter by letter.
    """
    plain = word.lower()
    capitals = word.isupper() and len(word) > 1 and not set(plain) & set(VOWELS)
    if capitals or SPELLED_OUT.match(plain):
        return "an" if plain[0] in VOWEL_NAMES else "a"
    if SPOKEN_WITH_Y.match(plain) or SPOKEN_WITH_W.match(plain):
        return "a"
    if plain[:1].isdigit():
        return "an" if re.match(r"8|1[18](?!\d)", plain) else "a"
    return "an" if plain[:1] in tuple(VOWELS) or plain.startswith(SILENT_H) else "a"
