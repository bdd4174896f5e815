"""Words that the tagger has cut, whole again: "t-shirt", "can't", "cannot".

Lexical words must be such as a language model writes, for it is asked to write them.
"""

from __future__ import annotations

from itertools import accumulate

from augmentation.captions.hyphens import hyphen_groups
from augmentation.captions.toca.templates import SLOT_OF_TAG
from captioning.text.tagger import Tagged

NOT = ("n't", "n’t")  # noqa: RUF001


def whole_words(caption: str, tagged: Tagged) -> Tagged:
    """The words of a tagged caption, those with hyphens and contractions as one.

    A contraction has the tag of its first part; a word with hyphens that of its last part that is
    a lexical word, if any is ("close-up" is a noun). A possessive 's stays by itself.

    Args:
        caption: the words' own.
        tagged: what the tagger says of it.
    """
    words = _with_contractions(_touching(caption, tagged))
    joined = []
    for group in hyphen_groups([text for text, _, _ in words], [near for *_, near in words]):
        tags = [words[i][1] for i in group]
        lexical = [tag for tag in tags if tag in SLOT_OF_TAG]
        text = "".join(words[i][0] for i in group)
        text = text.strip("-") or text  # a dash that only touches a word is not of it
        joined.append((text, (lexical or tags)[-1]))
    return tuple(joined)


def _touching(caption: str, tagged: Tagged) -> list[tuple[str, str, bool]]:
    """Each word with its tag, and whether no blank is before it; the first one has one."""
    begins = {0, *accumulate(map(len, caption.split()))}
    places = accumulate((len(text) for text, _ in tagged), initial=0)
    return [
        (text, tag, place not in begins) for (text, tag), place in zip(tagged, places, strict=False)
    ]


def _with_contractions(words: list[tuple[str, str, bool]]) -> list[tuple[str, str, bool]]:
    """With "can" and "not" of "cannot" as one, and the like; "do n't" may have a blank."""
    joined: list[tuple[str, str, bool]] = []
    for text, tag, near in words:
        letters = near and text.isalpha() and joined[-1][0].isalpha()
        if joined and (letters or text.lower() in NOT):
            before, tag_before, near_before = joined.pop()
            joined.append((before + text, tag_before, near_before))
        else:
            joined.append((text, tag, near))
    return joined
