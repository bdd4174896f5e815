"""Lemmas of English words and universal parts of speech, from Penn Treebank tags.

The tag distinguishes "saw" the tool from "saw" the past tense, so a lemma depends only on the word
and its tag. A table learned from parsed captions (`learn_lemmas`) holds the exceptions to the
rules below.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from captioning.runtime.files import read_json, write_json

# Tags of inflected words, with their part of speech.
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
# Tags of words in their dictionary form.
PLAIN_FORMS = {"NN": "noun", "VB": "verb", "VBP": "verb", "JJ": "adjective", "RB": "adverb"}
# Endings by tag; the first that gives a known word wins: "boxes" is no form of "boxe".
# A past tense in "s" is a wrongly tagged present: "windsurfs".
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
# After these sounds and o the plural ends with "es": "boxes", "tomatoes".
SIBILANTS = ("s", "x", "z", "ch", "sh", "o")
# Words without a singular of the same meaning, used when the packaged tables were learned;
# `captioning.text.inflection` knows more.
PLURALS_ONLY = ("clothes", "scissors", "sunglasses")
# A learned lemma is replaced by a word that is this many times as frequent.
MIN_RATIO = 5
# Letters that may be double at the end of a stem: "fall-ing", but not "sitt-ing".
KEPT_DOUBLES = "lsz"
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
    """Return the universal part of speech, as spaCy's English pipelines do; ``"X"`` if unknown.

    Args:
        tag: Penn Treebank tag.
        dep: dependency relation, which distinguishes conjunctions ("while he sleeps") from
            prepositions, and auxiliary verbs from full verbs.
        lemma: dictionary form; all forms of "be" count as auxiliary verbs.
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
    """Lemmatizer that uses a table of exceptions, then rules.

    Args:
        exceptions: by tag, lower-case forms with lemmas that the rules would get wrong.
        known: dictionary forms by ``"noun"``, ``"verb"``, ``"adjective"`` and ``"adverb"``.
    """

    def __init__(self, *, exceptions: dict[str, dict[str, str]], known: dict[str, list[str]]):
        self.exceptions = exceptions
        self.known = {kind: frozenset(words) for kind, words in known.items()}
        self._cache: dict[tuple[str, str], str] = {}

    def __call__(self, word: str, tag: str) -> str:
        """Return the lemma of a word, in lower case."""
        key = (word, tag)
        if key not in self._cache:
            form = word.lower()
            self._cache[key] = self.exceptions.get(tag, {}).get(form) or self._by_rule(form, tag)
        return self._cache[key]

    def _by_rule(self, form: str, tag: str) -> str:
        if form in PLURALS_ONLY:
            return form
        known = self.known.get(INFLECTED.get(tag, ""), frozenset())
        candidates = list(_stems(form, tag))
        known_stem = next((stem for stem in candidates if stem in known), None)
        if known_stem is not None:
            return known_stem
        # A word without a listed ending, such as the past participle "cut", is its own lemma.
        return form if form in known or not candidates else _likeliest(form, candidates)


def _stems(form: str, tag: str) -> Iterator[str]:
    for ending, replacement in ENDINGS.get(tag, ()):
        stem = form.removesuffix(ending)
        if stem == form or len(stem) < 2 or (ending == "es" and not stem.endswith(SIBILANTS)):
            continue
        # a verb has a vowel before its ending, so "sled" and "sling" are no verb forms
        if ending in ("ed", "ing") and not set(stem) & set(VOWELS + "y"):
            continue
        if not replacement and ending != "s" and stem[-1] == stem[-2] and stem[-1] not in VOWELS:
            yield stem[:-1]
        yield stem + replacement


def _likeliest(form: str, candidates: list[str]) -> str:
    """Choose the lemma of an unknown word by the rules of English spelling."""
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
        return stem if stem[-1] in KEPT_DOUBLES else stem[:-1]
    # "discover-ing" and "visit-ed" end with an unstressed syllable: no e was dropped.
    if len(stem) > 4 and stem.endswith(UNSTRESSED):
        return stem
    # "skat-ing" and "cradl-ing" lack their e, "paint-ing" does not.
    short = len(stem) > 2 and stem[-1] not in VOWELS + "wxy" and stem[-2] in VOWELS
    if (short and stem[-3] not in VOWELS) or stem[-1] in "cuvz":
        return stem + "e"
    if stem[-1] == "l" and stem[-2] not in VOWELS:
        return stem + "e"
    return stem if stem in candidates else candidates[0]


def learn_lemmas(words: Iterable[tuple[str, str, str]], *, min_count: int = 2) -> Lemmatizer:
    """Learn a lemmatizer from (word, tag, lemma) examples, by majority.

    Examples of rare words may be wrong: "singe" for "singing", or no singular
    for "zebras". If a lemma hardly occurs as a word, and another lemma that the rules allow
    does, the learned lemma is replaced by the other.

    Args:
        words: examples; letter case is ignored.
        min_count: words and exceptions with fewer occurrences are dropped, because most are typos.
    """
    counts = Counter((tag, word.lower(), lemma.lower()) for word, tag, lemma in words)
    uses: dict[str, Counter[str]] = {kind: Counter() for kind in sorted(set(INFLECTED.values()))}
    best: dict[tuple[str, str], tuple[int, str]] = {}
    for (tag, form, lemma), count in sorted(counts.items()):
        best[tag, form] = max(best.get((tag, form), (0, "")), (count, lemma))
        if tag in PLAIN_FORMS:
            uses[PLAIN_FORMS[tag]][form] += count
    known = {k: sorted(w for w, n in c.items() if n >= min_count) for k, c in uses.items()}
    rules = Lemmatizer(exceptions={}, known=known)
    exceptions: dict[str, dict[str, str]] = {}
    for (tag, form), (count, lemma) in best.items():
        if count < min_count or tag not in (*INFLECTED, "RB"):  # RB for "n't", which is "not"
            continue
        likelier = _more_frequent(lemma, form, tag, uses[INFLECTED.get(tag, "adverb")])
        if rules(form, tag) != likelier:
            exceptions.setdefault(tag, {})[form] = likelier
    return Lemmatizer(exceptions=exceptions, known=known)


def _more_frequent(lemma: str, form: str, tag: str, uses: Counter[str]) -> str:
    """Return the lemma, or a far more frequent lemma that the rules also allow."""
    if form in PLURALS_ONLY:
        return form
    best = max(_stems(form, tag), key=lambda stem: uses[stem], default=lemma)
    return best if uses[best] > MIN_RATIO * uses[lemma] else lemma


def save_lemmas(lemmatizer: Lemmatizer, path: str | Path) -> None:
    """Write a lemmatizer's tables as JSON."""
    known = {kind: sorted(words) for kind, words in lemmatizer.known.items()}
    write_json(path, {"exceptions": lemmatizer.exceptions, "known": known}, indent=None)


def load_lemmas(path: str | Path) -> Lemmatizer:
    """Read a lemmatizer that `save_lemmas` wrote.

    Raises:
        FileNotFoundError, ValueError: the file is missing or has another format.
    """
    tables = read_json(path)
    if not isinstance(tables, dict) or set(tables) != {"exceptions", "known"}:
        raise ValueError(f"{path} must hold a lemmatizer's tables 'exceptions' and 'known'")
    return Lemmatizer(**tables)
