"""Inflect English words: plurals, possessives, articles, verb forms.

`captioning.text.lemmas` maps a form back to its dictionary form.
"""

from __future__ import annotations

import re

VOWELS = "aeiou"

# Irregular plurals. Words that end with "man", "child" and so on follow their ending.
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
# Last parts of compounds with an irregular plural: "snowman", "grandchild", "dormouse".
IRREGULAR_ENDINGS = ("man", "child", "foot", "tooth", "mouse", "person")
REGULAR_IN_MAN = ("human", "german", "roman", "shaman", "talisman", "ottoman", "caiman", "norman")
_UNCHANGED = """
    sheep deer fish moose elk bison aircraft spacecraft watercraft series species salmon trout
    shrimp swine offspring cattle police people luggage
"""
_F_TO_VES = "bookshelf calf half elf leaf loaf self sheaf shelf thief wolf scarf hoof"
_FE_TO_VES = "knife wife life housewife midwife penknife"
_O_TO_OES = "potato tomato hero mosquito buffalo mango domino echo volcano tornado"
# Words that are plural already, and uncountable nouns.
_PLURALS_ONLY = """
    binoculars clothes glasses goggles headphones jeans leggings overalls pajamas pants pliers
    pyjamas scissors shorts skis sunglasses tights tongs trousers tweezers
"""
_MASSES = """
    baggage broccoli cauliflower clothing equipment furniture jewellery jewelry machinery
    rice spaghetti traffic
"""
UNCHANGED = frozenset(_UNCHANGED.split())
PLURALS_ONLY = frozenset(_PLURALS_ONLY.split())
MASSES = frozenset(_MASSES.split())
F_TO_VES = frozenset(_F_TO_VES.split())
FE_TO_VES = frozenset(_FE_TO_VES.split())
O_TO_OES = frozenset(_O_TO_OES.split())
SIBILANTS = ("s", "x", "z", "ch", "sh")
HARD_CH = ("stomach", "loch")

# Written with a vowel but spoken with a consonant: "a uniform", but "an uninterested cat".
SPOKEN_WITH_Y = re.compile(
    r"(?:eu|ewe|uk|ufo|u\.?s\.?a?\b|urin|usab|use|usu|util|uten|u-|uni(?!dent|mag|mp|n))"
)
SPOKEN_WITH_W = re.compile(r"(?:one|once)(?!r)")
SILENT_H = ("hour", "honest", "honor", "honour", "heir")
# Abbreviations read letter by letter although in lower case or with vowels.
SPELLED_OUT = re.compile(r"(?:atv|suv|mp3|rv|lcd|led|x-ray|xray|f1)\b")  # but "a ledge"
# Letters whose names begin with a vowel: "an NBA player", "a TV".
VOWEL_NAMES = "aefhilmnorsx"

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
# Verbs that double their last letter against the syllable rule, or do not.
_DOUBLE = """
    admit babysit backflip begin commit compel control equip expel forbid forget handicap
    kidnap occur outfit outrun overrun patrol permit prefer propel refer regret reset
    submit transfer upset zigzag
"""
_DOUBLED = frozenset(_DOUBLE.split())
HISSES = ("s", "x", "z", "ch", "sh", "o")


def pluralise(noun: str) -> str:
    """Return the plural of a noun; in a phrase, of the last word or of the word before "of".

    Args:
        noun: noun in lower case, such as ``"fire hydrant"``; plurals are returned unchanged.
    """
    head, of, rest = noun.partition(" of ")
    if of:
        return f"{pluralise(head)} of {rest}"
    before, space, word = noun.rpartition(" ")
    return before + space + _plural(word)


def _plural(word: str) -> str:
    if word in UNCHANGED | PLURALS_ONLY | MASSES:
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


def possessive_mark(noun: str, *, plural: bool) -> str:
    """Return the ending of a possessor: ``'s``, or ``'`` after a plural that ends with s."""
    return "'" if plural and noun.endswith("s") else "'s"


def indefinite_article(word: str) -> str:
    """Return ``a`` or ``an`` for a word, by its pronunciation.

    Args:
        word: the next word as written; words in capitals are spelt letter by letter.
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


def third_person(verb: str) -> str:
    """Return the third person: ``"rides"`` for ``"ride"``, ``"takes off"`` for ``"take off"``."""
    before, word, particle = _parts(verb)
    if word in _THIRD:
        form = _THIRD[word]
    elif word.endswith("y") and word[-2:-1] not in VOWELS:
        form = word[:-1] + "ies"
    else:
        form = word + ("es" if word.endswith(HISSES) else "s")
    return before + form + particle


def ing(verb: str) -> str:
    """Return the -ing form: ``"riding"`` for ``"ride"``."""
    before, word, particle = _parts(verb)
    if word in _ING:
        form = _ING[word]
    elif word.endswith("e") and not word.endswith(("ee", "oe", "ye")):
        form = word[:-1] + "ing"
    else:
        form = _doubled(word) + "ing"
    return before + form + particle


def participle(verb: str) -> str:
    """Return the past participle: ``"ridden"`` for ``"ride"``."""
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
    """Split a verb into the text before the inflected word, that word, and its particle."""
    words, blank, particle = verb.partition(" ")
    before, hyphen, word = words.rpartition("-")
    return before + hyphen, word, blank + particle


def _doubled(word: str) -> str:
    """Double the last consonant after one short vowel; add "k" after "ic"."""
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
