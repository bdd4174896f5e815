"""Rejoin words that the tagger has split: "t-shirt", "can't", "cannot".

A language model is asked to write the lexical words, so they must be words as it writes them.
"""

from __future__ import annotations

from itertools import accumulate

from augmentation.captions.hyphens import hyphen_groups
from augmentation.toca.templates import SLOT_OF_TAG
from captioning.text.tagger import Tagged

NEGATIONS = ("n't", "n’t")  # noqa: RUF001


def join_word_parts(caption: str, tagged: Tagged) -> Tagged:
    """Words of a tagged caption; hyphenated words and contractions become one word.

    A contraction has the tag of its first part. A word with hyphens has the tag of its last part
    that is a lexical word, if there is one ("close-up" is a noun). A possessive 's stays separate.

    Args:
        caption: caption of the words.
        tagged: words and tags of the caption.
    """
    words = _with_contractions(_touching(caption, tagged))
    joined = []
    for group in hyphen_groups(
        [text for text, _, _ in words], [touching for *_, touching in words]
    ):
        tags = [words[i][1] for i in group]
        lexical = [tag for tag in tags if tag in SLOT_OF_TAG]
        text = "".join(words[i][0] for i in group)
        text = text.strip("-") or text  # a dash that only touches a word is not part of it
        joined.append((text, (lexical or tags)[-1]))
    return tuple(joined)


def _touching(caption: str, tagged: Tagged) -> list[tuple[str, str, bool]]:
    """Each word with its tag, and whether no space separates it from the word before."""
    begins = {0, *accumulate(map(len, caption.split()))}
    places = accumulate((len(text) for text, _ in tagged), initial=0)
    return [
        (text, tag, place not in begins) for (text, tag), place in zip(tagged, places, strict=False)
    ]


def _with_contractions(words: list[tuple[str, str, bool]]) -> list[tuple[str, str, bool]]:
    """Join contractions such as "can" and "not" of "cannot"; "do n't" may contain a space."""
    joined: list[tuple[str, str, bool]] = []
    for text, tag, touches in words:
        letters = touches and text.isalpha() and joined[-1][0].isalpha()
        if joined and (letters or text.lower() in NEGATIONS):
            before, tag_before, touched_before = joined.pop()
            joined.append((before + text, tag_before, touched_before))
        else:
            joined.append((text, tag, touches))
    return joined
