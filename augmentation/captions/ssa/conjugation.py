"""Forms of English verbs: "rides", "riding", "ridden"; nouns are in `regions.inflection`."""

from __future__ import annotations

VOWELS = "aeiou"
_THIRD = {"have": "has", "do": "does", "go": "goes", "be": "is"}
_ING = {
    "lie": "lying", "tie": "tying", "die": "dying", "see": "seeing", "flee": "fleeing",
    "be": "being", "ski": "skiing", "canoe": "canoeing", "dye": "dyeing", "singe": "singeing",
}  # fmt: skip
_PARTICIPLES = """
    ride-ridden wear-worn run-run hold-held stand-stood sit-sat throw-thrown catch-caught take-taken
    eat-eaten drink-drunk bite-bitten swim-swum fly-flown fall-fallen hang-hung hit-hit swing-swung
    drive-driven give-given go-gone get-gotten make-made do-done see-seen lead-led leave-left
    lie-lain lay-laid put-put set-set read-read show-shown shake-shaken blow-blown write-written
    fight-fought sing-sung speak-spoken spin-spun spread-spread dig-dug hide-hidden tear-torn
    break-broken build-built feed-fed sell-sold sleep-slept sweep-swept shoot-shot slide-slid
    stick-stuck strike-struck teach-taught tell-told think-thought draw-drawn grow-grown bend-bent
    bind-bound grind-ground hurt-hurt keep-kept kneel-knelt leap-leapt light-lit lose-lost meet-met
    pay-paid say-said send-sent shine-shone shut-shut split-split stride-stridden wind-wound
    come-come become-become begin-begun ring-rung sink-sunk win-won have-had be-been bring-brought
    buy-bought cut-cut cast-cast let-let tread-trodden weave-woven freeze-frozen choose-chosen
"""
PARTICIPLES = dict(word.split("-") for word in _PARTICIPLES.split())
# Verbs of two syllables that double their last letter all the same, or of one that do not.
_DOUBLED = frozenset(("begin", "refer", "prefer", "kidnap", "propel", "compel", "commit", "forget"))
HISSES = ("s", "x", "z", "ch", "sh", "o")


def third_person(verb: str) -> str:
    """``"rides"`` of ``"ride"``; a particle stays behind: ``"takes off"``, ``"water-skis"``."""
    before, word, behind = _parts(verb)
    if word in _THIRD:
        form = _THIRD[word]
    elif word.endswith("y") and word[-2:-1] not in VOWELS:
        form = word[:-1] + "ies"
    else:
        form = word + ("es" if word.endswith(HISSES) else "s")
    return before + form + behind


def ing(verb: str) -> str:
    """``"riding"`` of ``"ride"``."""
    before, word, behind = _parts(verb)
    if word in _ING:
        form = _ING[word]
    elif word.endswith("e") and not word.endswith(("ee", "oe", "ye")):
        form = word[:-1] + "ing"
    else:
        form = _doubled(word) + "ing"
    return before + form + behind


def participle(verb: str) -> str:
    """``"ridden"`` of ``"ride"``."""
    before, word, behind = _parts(verb)
    if word in PARTICIPLES:
        form = PARTICIPLES[word]
    elif word.endswith("e"):
        form = word + "d"
    elif word.endswith("y") and word[-2:-1] not in VOWELS:
        form = word[:-1] + "ied"
    else:
        form = _doubled(word) + "ed"
    return before + form + behind


def _parts(verb: str) -> tuple[str, str, str]:
    """What stands before the word that is inflected, that word, and its particle."""
    words, blank, particle = verb.partition(" ")
    before, hyphen, word = words.rpartition("-")
    return before + hyphen, word, blank + particle


def _doubled(word: str) -> str:
    """The last consonant twice, where one short vowel stands before it."""
    syllables = sum(
        char in VOWELS and (n == 0 or word[n - 1] not in VOWELS) for n, char in enumerate(word)
    )
    ends = len(word) > 2 and word[-1] not in VOWELS + "wxy" and word[-2] in VOWELS
    short = (ends and word[-3] not in VOWELS) or word[-3:-1] in ("qu",)
    if short and (syllables == 1 or word in _DOUBLED):
        return word + word[-1]
    return word
