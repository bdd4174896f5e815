"""The grammar of the captions: articles, plurals, counts and agreement."""

from __future__ import annotations

IRREGULAR = {
    "man": "men", "woman": "women", "lady": "ladies", "baby": "babies", "kitty": "kitties",
    "snowman": "snowmen",
    "person": "people", "child": "children", "fish": "fish", "fighter jet": "fighter jets",
    "hippopotamus": "hippopotamuses", "mosquito": "mosquitoes", "ferry": "ferries",
    "bus": "buses", "box": "boxes", "couch": "couches", "church": "churches",
    "trophy": "trophies", "shrimp": "shrimp", "ice cream": "ice creams",
}  # fmt: skip

NUMBERS = {1: "one", 2: "two", 3: "three", 4: "four"}


def plural(noun: str) -> str:
    """The plural of a singular noun phrase: ``slice of bread`` becomes ``slices of bread``."""
    if noun in IRREGULAR:
        return IRREGULAR[noun]
    head, joint, rest = noun.partition(" of ")
    if joint:
        return f"{plural(head)} of {rest}"
    before, space, last = noun.rpartition(" ")
    if space:
        return f"{before} {plural(last)}"
    if last.endswith(("s", "x", "ch", "sh", "z")):
        return last + "es"
    if last.endswith("y") and last[-2] not in "aeiou":
        return last[:-1] + "ies"
    return last + "s"


def for_many(verb: str) -> str:
    """A verb phrase with a plural subject: ``ride a bike`` becomes ``ride bikes``."""
    before, joint, noun = verb.partition(" a ")
    return f"{before} {plural(noun)}" if joint else verb


def article(words: str) -> str:
    """``words`` with the indefinite article before them."""
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"
