"""Split captions into a structure and its lexical words (ToCa, section 3.2, Eq. 2 and 3).

A structure is written as one text, such as ``"[N] [VBG] [N] on [N] ."``: slots for lexical words by
their part of speech, and function words as they stand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from augmentation.writing.acceptance import WORD
from captioning.text.tagger import Tagged

# Table 1: the parts of speech of lexical words, by the tags of the Penn Treebank.
SLOTS = ("J", "N", "R", "VB", "VBD", "VBG", "VBN", "VBP", "VBZ")
_SLOT_TAGS = {"N": "NN NNS NNP NNPS", "J": "JJ JJR JJS", "R": "RB RBR RBS"}
SLOT_OF_TAG = {tag: slot for slot in SLOTS for tag in _SLOT_TAGS.get(slot, slot).split()}
FUNCTION_TAGS = frozenset(("CC", "EX", "IN", "MD", "WDT", "WP", "WP$", "WRB", ",", "."))
# Table 1 lacks TO, which is every "to" for NLTK's tagger; for this package's some are IN.
DROPPED_WORDS = ("to",)
GAP = "[ ]"
END = "."
MARKS = (",", END, "!", "?")
MAX_TOKENS = 60  # of a caption; structures of longer texts are of no use
MAX_LETTERS = 30

# Why a caption is left out of the statistics.
NO_LEXICAL_WORD = "no lexical word"
TOO_LONG = f"more than {MAX_TOKENS} words"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deconstructed:
    """Structure and lexical words of a caption.

    Attributes:
        structure: G_s, ends with a full stop.
        words: ``(word, slot)`` of the lexical words in order, in lower case.
        problem: why it is not counted; empty where it is.
    """

    structure: str = ""
    words: tuple[tuple[str, str], ...] = ()
    problem: str = ""


def deconstruct(tagged: Tagged) -> Deconstructed:
    """Split a tagged caption into structure and lexical words, after `join_word_parts`.

    A final mark is read as a full stop, which is added where there is none, so that the same
    structure is not counted twice.
    """
    if len(tagged) > MAX_TOKENS:
        return Deconstructed(problem=TOO_LONG)
    parts, words = [], []
    for token, tag in tagged:
        word = token.lower()
        plain = len(word) <= MAX_LETTERS and WORD.fullmatch(word) is not None
        if tag in SLOT_OF_TAG and plain:
            words.append((word, SLOT_OF_TAG[tag]))
            parts.append(f"[{SLOT_OF_TAG[tag]}]")
        elif tag in FUNCTION_TAGS and word not in DROPPED_WORDS and (plain or word in MARKS):
            parts.append(word)
    if not words:
        return Deconstructed(problem=NO_LEXICAL_WORD)
    while parts[-1] in MARKS:
        parts.pop()
    return Deconstructed(structure=" ".join([*parts, END]), words=tuple(words))


def slots_of(structure: str) -> str:
    """Slots of a structure without function words: ``"[N] [VBG] [N] [N]"``."""
    return " ".join(part for part in structure.split(" ") if part.startswith("["))


def sentence_template(tokens: Sequence[str]) -> str:
    """Sentence template s', with a gap for each other word: ``"[ ] horse [ ] on [ ] field [ ] ."``.

    The language model completes it.
    """
    return " ".join(f"{GAP} {token}" for token in tokens)


def fill_structure(structure: str, words: Sequence[str]) -> Iterator[str]:
    """Tokens of a structure with words in its slots, in order."""
    remaining = iter(words)
    for part in structure.split(" "):
        yield next(remaining) if part.startswith("[") else part
