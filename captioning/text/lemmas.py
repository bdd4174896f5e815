"""Dictionary forms of English words, and universal parts of speech, from Penn Treebank tags.

A tagger has said whether "saw" is a tool or a past tense, so a lemma needs no more than the word
and its tag: words that the rules below get wrong stand in a table that was learned from parsed
captions (`learn_lemmas`), and all other words go by the rules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from captioning.files import read_json, write_json

# Tags whose words are inflected, and what they are in the dictionary.
INFLECTED = {
    "NNS": "noun",
    "NNPS": "noun",
    "VBZ": "verb",
    "VBG": "verb",
    "VBD": "verb",
    "VBN": "verb",
    "VBP": "verb",
    "VB": "verb",
    "MD": "verb",
    "JJR": "adjective",
    "JJS": "adjective",
    "RBR": "adverb",
    "RBS": "adverb",
}
# Tags of words that are as they stand in the dictionary.
PLAIN_FORMS = {"NN": "noun", "VB": "verb", "VBP": "verb", "JJ": "adjective", "RB": "adverb"}
# Endings by tag, the first that leads to a known word wins: "boxes" is no form of "boxe".
# A past tense in "s" is a present that was mistaken for one: "windsurfs".
_S = (("ies", "y"), ("s", ""), ("es", ""), ("ves", "f"), ("ves", "fe"), ("men", "man"))
_ED = (("ied", "y"), ("ed", "e"), ("ed", ""), *_S[:3])
_ER = (("ier", "y"), ("er", ""), ("er", "e"))
_EST = (("iest", "y"), ("est", ""), ("est", "e"))
ENDINGS = {
    "NNS": _S,
    "NNPS": _S,
    "VBZ": _S[:3],
    "VBG": (("ing", ""), ("ing", "e")),
    "VBD": _ED,
    "VBN": _ED,
    "JJR": _ER,
    "RBR": _ER,
    "JJS": _EST,
    "RBS": _EST,
}
VOWELS = "aeiou"
# After these sounds, and o, a plural adds an e: "boxes", "tomatoes".
HISSES = ("s", "x", "z", "ch", "sh", "o")
# Letters whose double is usual at the end of a stem: "fall-ing", but "sit-ting" is not.
# Words without a singular of the same meaning.
PLURALS_ONLY = ("clothes", "scissors", "sunglasses")
FAR_MORE = 5
LASTING_DOUBLES = "lsz"
UNSTRESSED = ("er", "en", "on", "it", "et", "el")

_POS_BY_TAG = {
    "NOUN": "NN NNS",
    "PROPN": "NNP NNPS",
    "VERB": "VB VBD VBG VBN VBP VBZ",
    "AUX": "MD",
    "ADJ": "JJ JJR JJS AFX",
    "ADV": "RB RBR RBS WRB",
    "ADP": "IN RP",
    "DET": "DT PDT WDT",
    "PRON": "PRP PRP$ WP WP$ EX",
    "NUM": "CD",
    "CCONJ": "CC",
    "PART": "TO POS",
    "PUNCT": ". , : `` '' -LRB- -RRB- HYPH NFP",
    "SYM": "SYM $ #",
    "INTJ": "UH",
    "SPACE": "_SP",
}
POS_BY_TAG = {tag: pos for pos, tags in _POS_BY_TAG.items() for tag in tags.split()}
NEGATIONS = ("not", "n't", "nt")


def universal_pos(*, tag: str, dep: str, lemma: str) -> str:
    """The universal part of speech, as spaCy's English pipelines give it; ``"X"`` if unknown.

    Args:
        tag: Penn Treebank tag.
        dep: relation to the head; tells a conjunction ("while he sleeps") from a preposition, and
            a helping verb from a full one.
        lemma: dictionary form; all forms of "be" count as helping verbs.
    """
    pos = POS_BY_TAG.get(tag, "X")
    if pos == "VERB" and (dep in ("aux", "auxpass") or lemma == "be"):
        return "AUX"
    if tag == "IN" and dep == "mark":
        return "SCONJ"
    if tag == "TO" and dep in ("prep", "dative"):
        return "ADP"
    if pos == "ADV" and dep == "neg" and lemma in NEGATIONS:
        return "PART"
    if tag in ("DT", "WDT") and dep in ("nsubj", "nsubjpass", "dobj", "pobj", "attr"):
        return "PRON"
    return pos


class Lemmatizer:
    """Lemmas by table, then by rule.

    Args:
        exceptions: by tag, forms in lower case and their lemmas, where the rules are wrong.
        known: by ``"noun"``, ``"verb"``, ``"adjective"`` and ``"adverb"``, dictionary forms.
    """

    def __init__(self, *, exceptions: dict[str, dict[str, str]], known: dict[str, list[str]]):
        self.exceptions = exceptions
        self.known = {kind: frozenset(words) for kind, words in known.items()}
        self._seen: dict[tuple[str, str], str] = {}

    def __call__(self, word: str, tag: str) -> str:
        """The lemma, in lower case."""
        key = (word, tag)
        if key not in self._seen:
            form = word.lower()
            self._seen[key] = self.exceptions.get(tag, {}).get(form) or self._by_rule(form, tag)
        return self._seen[key]

    def _by_rule(self, form: str, tag: str) -> str:
        if form in PLURALS_ONLY:
            return form
        known = self.known.get(INFLECTED.get(tag, ""), frozenset())
        candidates = list(_stems(form, tag))
        found = next((stem for stem in candidates if stem in known), None)
        if found is not None:
            return found
        # A word without one of the endings, such as a past participle "cut", is its own lemma.
        return form if form in known or not candidates else _likeliest(form, candidates)


def _stems(form: str, tag: str) -> Iterator[str]:
    for ending, instead in ENDINGS.get(tag, ()):
        stem = form.removesuffix(ending)
        if stem == form or len(stem) < 2 or (ending == "es" and not stem.endswith(HISSES)):
            continue
        # a verb has a vowel before its ending: "sled" is none of "sle", nor "sling"
        if ending in ("ed", "ing") and not set(stem) & set(VOWELS + "y"):
            continue
        if not instead and ending != "s" and stem[-1] == stem[-2] and stem[-1] not in VOWELS:
            yield stem[:-1]
        yield stem + instead


def _likeliest(form: str, candidates: list[str]) -> str:
    """The lemma of a word never met, by how English spells its forms."""
    if form.endswith(("sses", "shes", "ches", "xes", "zzes")):
        return form.removesuffix("es")
    if form.endswith("men"):
        return form.removesuffix("men") + "man"
    if form.endswith(("ss", "us")):
        return form
    if form.endswith(("ied", "ier", "iest")):
        return candidates[0]
    for ending in ("ing", "ed", "er", "est"):
        stem = form.removesuffix(ending)
        if stem != form and len(stem) > 1:
            return _spelled_out(stem, candidates)
    return candidates[0]


def _spelled_out(stem: str, candidates: list[str]) -> str:
    if stem[-1] == stem[-2] and stem[-1] not in VOWELS:
        return stem if stem[-1] in LASTING_DOUBLES else stem[:-1]
    # "discover-ing" and "visit-ed" end on a syllable without stress: no e was dropped.
    if len(stem) > 4 and stem.endswith(UNSTRESSED):
        return stem
    # "skat-ing" and "cradl-ing" lack their e, "paint-ing" does not.
    short = len(stem) > 2 and stem[-1] not in VOWELS + "wxy" and stem[-2] in VOWELS
    if (short and stem[-3] not in VOWELS) or stem[-1] in "cuvz":
        return stem + "e"
    if stem[-1] == "l" and stem[-2] not in VOWELS:
        return stem + "e"
    return stem if stem in candidates else candidates[0]


def learn_lemmas(words: Iterable[tuple[str, str, str]], *, least: int = 2) -> Lemmatizer:
    """A lemmatizer that agrees with (word, tag, lemma) examples, by majority.

    Who made the examples may have met some words as little as spelling rules have, and then says
    that "singing" is of "singe" or that "zebras" has no singular. So where a lemma is hardly ever
    seen as a word of its own, and another that the rules allow is, the other is taken.

    Args:
        words: examples; upper case is ignored.
        least: words and exceptions seen less often are left out: they are mostly misspelt.
    """
    counts = Counter((tag, word.lower(), lemma.lower()) for word, tag, lemma in words)
    uses: dict[str, Counter[str]] = {kind: Counter() for kind in sorted(set(INFLECTED.values()))}
    best: dict[tuple[str, str], tuple[int, str]] = {}
    for (tag, form, lemma), count in sorted(counts.items()):
        best[tag, form] = max(best.get((tag, form), (0, "")), (count, lemma))
        if tag in PLAIN_FORMS:
            uses[PLAIN_FORMS[tag]][form] += count
    known = {k: sorted(w for w, n in c.items() if n >= least) for k, c in uses.items()}
    rules = Lemmatizer(exceptions={}, known=known)
    exceptions: dict[str, dict[str, str]] = {}
    for (tag, form), (count, lemma) in best.items():
        if count < least or tag not in (*INFLECTED, "RB"):  # RB for "n't", which is "not"
            continue
        better = _better(lemma, form, tag, uses[INFLECTED.get(tag, "adverb")])
        if rules(form, tag) != better:
            exceptions.setdefault(tag, {})[form] = better
    return Lemmatizer(exceptions=exceptions, known=known)


def _better(lemma: str, form: str, tag: str, uses: Counter[str]) -> str:
    """The lemma, or one that the spelling allows too and that is far more often used as a word."""
    if form in PLURALS_ONLY:
        return form
    most = max(_stems(form, tag), key=lambda stem: uses[stem], default=lemma)
    return most if uses[most] > FAR_MORE * uses[lemma] else lemma


def save_lemmas(lemmatizer: Lemmatizer, path: str | Path) -> None:
    """Write the tables as JSON."""
    known = {kind: sorted(words) for kind, words in lemmatizer.known.items()}
    write_json(path, {"exceptions": lemmatizer.exceptions, "known": known}, indent=None)


def load_lemmas(path: str | Path) -> Lemmatizer:
    """Read what `save_lemmas` wrote.

    Raises:
        FileNotFoundError, ValueError: no such file, or not such tables.
    """
    tables = read_json(path)
    if not isinstance(tables, dict) or set(tables) != {"exceptions", "known"}:
        raise ValueError(f"{path}: wanted a lemmatizer's tables 'exceptions' and 'known'")
    return Lemmatizer(**tables)
