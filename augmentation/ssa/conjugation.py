"""Forms of English verbs: "rides", "riding", "ridden"; nouns are in `captioning.text.plurals`."""

from __future__ import annotations

VOWELS = "aeiou"
_THIRD = {"have": "has", "do": "does", "go": "goes", "be": "is", "quiz": "quizzes"}
_ING = {
    "lie": "lying", "tie": "tying", "die": "dying", "see": "seeing", "flee": "fleeing",
    "vie": "vying", "untie": "untying", "underlie": "underlying",
    "be": "being", "ski": "skiing", "canoe": "canoeing", "dye": "dyeing", "singe": "singeing",
}  # fmt: skip
_PARTICIPLES = """
    arise-arisen awake-awoken babysit-babysat be-been bear-borne beat-beaten become-become
    begin-begun behold-beheld bend-bent beset-beset bet-bet bid-bid bind-bound bite-bitten
    bleed-bled blow-blown break-broken breastfeed-breastfed breed-bred bring-brought
    broadcast-broadcast build-built burst-burst buy-bought cast-cast catch-caught choose-chosen
    cling-clung come-come cost-cost creep-crept cut-cut deal-dealt dig-dug do-done draw-drawn
    drink-drunk drive-driven dwell-dwelt eat-eaten fall-fallen feed-fed feel-felt fight-fought
    find-found flee-fled fling-flung fly-flown forbid-forbidden foresee-foreseen
    forget-forgotten forgive-forgiven forsake-forsaken freeze-frozen get-gotten give-given
    go-gone grind-ground grow-grown hang-hung have-had hear-heard hew-hewn hide-hidden hit-hit
    hold-held hurt-hurt inlay-inlaid interweave-interwoven keep-kept kneel-knelt know-known
    lay-laid lead-led leap-leapt leave-left lend-lent let-let lie-lain light-lit lose-lost
    make-made mean-meant meet-met mislead-misled mistake-mistaken mow-mown outdo-outdone
    outgrow-outgrown outrun-outrun overcome-overcome overeat-overeaten overhang-overhung
    overhear-overheard overlay-overlaid override-overridden overrun-overrun oversee-overseen
    oversleep-overslept overtake-overtaken overthrow-overthrown partake-partaken pay-paid
    prove-proven put-put quit-quit read-read rebuild-rebuilt redo-redone remake-remade
    repay-repaid reset-reset retell-retold rewind-rewound rewrite-rewritten rid-rid ride-ridden
    ring-rung rise-risen run-run saw-sawn say-said see-seen seek-sought sell-sold send-sent
    set-set sew-sewn shake-shaken shave-shaven shear-shorn shed-shed shine-shone shoot-shot
    show-shown shrink-shrunk shut-shut sing-sung sink-sunk sit-sat slay-slain sleep-slept
    slide-slid sling-slung slit-slit sow-sown speak-spoken spend-spent spin-spun spit-spat
    split-split spread-spread spring-sprung stand-stood steal-stolen stick-stuck sting-stung
    stink-stunk strew-strewn stride-stridden strike-struck string-strung strive-striven
    swear-sworn sweep-swept swell-swollen swim-swum swing-swung take-taken teach-taught
    tear-torn tell-told think-thought throw-thrown thrust-thrust tread-trodden undergo-undergone
    underlie-underlain understand-understood undertake-undertaken undo-undone unwind-unwound
    uphold-upheld upset-upset wake-woken waylay-waylaid wear-worn weave-woven weep-wept wet-wet
    win-won wind-wound withdraw-withdrawn withhold-withheld withstand-withstood wring-wrung
    write-written
"""
PARTICIPLES: dict[str, str] = {
    verb: participle for verb, _, participle in (w.partition("-") for w in _PARTICIPLES.split())
}
# Verbs of two syllables that double their last letter all the same, or of one that do not.
_DOUBLE = """
    admit babysit backflip begin commit compel control equip expel forbid forget handicap
    kidnap occur outfit outrun overrun patrol permit prefer propel refer regret reset
    submit transfer upset zigzag
"""
_DOUBLED = frozenset(_DOUBLE.split())
HISSES = ("s", "x", "z", "ch", "sh", "o")


def third_person(verb: str) -> str:
    """``"rides"`` of ``"ride"``; a particle stays behind: ``"takes off"``, ``"water-skis"``."""
    before, word, particle = _parts(verb)
    if word in _THIRD:
        form = _THIRD[word]
    elif word.endswith("y") and word[-2:-1] not in VOWELS:
        form = word[:-1] + "ies"
    else:
        form = word + ("es" if word.endswith(HISSES) else "s")
    return before + form + particle


def ing(verb: str) -> str:
    """``"riding"`` of ``"ride"``."""
    before, word, particle = _parts(verb)
    if word in _ING:
        form = _ING[word]
    elif word.endswith("e") and not word.endswith(("ee", "oe", "ye")):
        form = word[:-1] + "ing"
    else:
        form = _doubled(word) + "ing"
    return before + form + particle


def participle(verb: str) -> str:
    """``"ridden"`` of ``"ride"``."""
    before, word, particle = _parts(verb)
    if word in PARTICIPLES:
        form = PARTICIPLES[word]
    elif word.endswith("e"):
        form = word + "d"
    elif word.endswith("y") and word[-2:-1] not in VOWELS:
        form = word[:-1] + "ied"
    else:
        form = _doubled(word) + "ed"
    return before + form + particle


def _parts(verb: str) -> tuple[str, str, str]:
    """What stands before the word that is inflected, that word, and its particle."""
    words, blank, particle = verb.partition(" ")
    before, hyphen, word = words.rpartition("-")
    return before + hyphen, word, blank + particle


def _doubled(word: str) -> str:
    """The last consonant twice, where one short vowel stands before it; "k" behind "ic"."""
    if word.endswith("ic"):
        return word + "k"
    heard = word.replace("qu", "qw")  # its "u" is none
    syllables = sum(
        char in VOWELS and (n == 0 or heard[n - 1] not in VOWELS) for n, char in enumerate(heard)
    )
    ends = len(word) > 2 and heard[-1] not in VOWELS + "wxy" and heard[-2] in VOWELS
    short = ends and heard[-3] not in VOWELS
    if short and (syllables == 1 or word in _DOUBLED):
        return word + word[-1]
    return word
