"""Plurals of English nouns; `captioning.text.lemmas` gives the singular of a plural."""

from __future__ import annotations

# Words with an irregular plural. Words that end with "man", "child" and so on go by their ending.
IRREGULAR = {
    "person": "people",
    "child": "children",
    "man": "men",
    "foot": "feet",
    "tooth": "teeth",
    "goose": "geese",
    "mouse": "mice",
    "louse": "lice",
    "ox": "oxen",
    "die": "dice",
    "cactus": "cacti",
    "bus": "buses",
    "gas": "gases",
    "quiz": "quizzes",
    "lens": "lenses",
    "passerby": "passersby",
}
# Endings of compounds with the plural of the ending: "snowman", "grandchild", "dormouse".
IRREGULAR_ENDINGS = ("man", "child", "foot", "tooth", "mouse", "person")
REGULAR_IN_MAN = ("human", "german", "roman", "shaman", "talisman", "ottoman", "caiman", "norman")
_UNCHANGED = """
    sheep deer fish moose elk bison aircraft spacecraft watercraft series species salmon trout
    shrimp swine offspring cattle police people luggage
"""
_F_TO_VES = "bookshelf calf half elf leaf loaf self sheaf shelf thief wolf scarf hoof"
_FE_TO_VES = "knife wife life housewife midwife penknife"
_O_TO_OES = "potato tomato hero mosquito buffalo mango domino echo volcano tornado"
UNCHANGED = frozenset(_UNCHANGED.split())
F_TO_VES = frozenset(_F_TO_VES.split())
FE_TO_VES = frozenset(_FE_TO_VES.split())
O_TO_OES = frozenset(_O_TO_OES.split())
SIBILANTS = ("s", "x", "z", "ch", "sh")
HARD_CH = ("stomach", "loch")
VOWELS = "aeiou"


def pluralise(noun: str) -> str:
    """The plural of a noun in the singular; of several words the last is changed.

    Args:
        noun: lower case, such as ``"fire hydrant"``.
    """
    before, space, word = noun.rpartition(" ")
    return before + space + _plural(word)


def _plural(word: str) -> str:
    if word in UNCHANGED:
        return word
    if word in IRREGULAR:
        return IRREGULAR[word]
    ending = next((e for e in IRREGULAR_ENDINGS if word.endswith(e)), "")
    if ending and not word.endswith(REGULAR_IN_MAN):
        return word.removesuffix(ending) + IRREGULAR[ending]
    if word in F_TO_VES:
        return word[:-1] + "ves"
    if word in FE_TO_VES:
        return word[:-2] + "ves"
    if word in O_TO_OES or (word.endswith(SIBILANTS) and not word.endswith(HARD_CH)):
        return word + "es"
    if word.endswith("y") and word[-2:-1] not in VOWELS:
        return word[:-1] + "ies"
    return word + "s"
