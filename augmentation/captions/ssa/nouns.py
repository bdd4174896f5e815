"""Which nouns take an article, and their plurals, as the captions themselves have them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from augmentation.captions.ssa.graph import Graph, Name
from augmentation.captions.ssa.lexicon import PEOPLE_WORDS
from captioning.text.lemmas import PLURALS_ONLY
from captioning.text.plurals import pluralise

# Nouns whose lemma the tagger gives in the singular and that are said in the plural alone.
_ALWAYS_PLURAL = {
    "pant": "pants", "short": "shorts", "jean": "jeans", "glass": "glasses", "goggle": "goggles",
    "trouser": "trousers", "clothe": "clothes",
}  # fmt: skip


class NounForms:
    """Counts of articles and plurals by noun.

    Args:
        graphs: of captions; their nouns' articles and plurals are counted.
    """

    def __init__(self, graphs: Iterable[Graph] = ()) -> None:
        self._counts: dict[str, Counter[str]] = defaultdict(Counter)
        self._plurals: dict[str, Counter[str]] = defaultdict(Counter)
        self._all_plurals: set[str] = set()
        for graph in graphs:
            for variable, node in graph.nodes.items():
                name = node.names[0]
                if name.noun and not name.plural and not graph.children(variable, "poss"):
                    self._counts[name.word][name.article] += 1
                if name.form:
                    self._plurals[name.word][name.form] += 1
                    self._all_plurals.add(name.form)

    def article(self, name: Name) -> str:
        """``"a"``, ``"the"`` or ``""`` before a singular: its own where that is usual.

        Captions leave articles out ("Woman in black") and say "the" of what nobody has named; a
        noun takes "the" or none if it does so in most captions.
        """
        counts = self._counts.get(name.word)
        if name.article == "a" or not counts:
            return name.article or "a"
        usual = max(("a", "the", ""), key=lambda article: counts[article])
        if name.article == "the":
            return "the" if counts["the"] >= counts["a"] else "a"
        return "" if usual == "" else usual

    def plural(self, word: str) -> str:
        """The plural of a noun: what most captions have, else by rule."""
        if word in PLURALS_ONLY:
            return word
        if counts := self._plurals.get(word):
            return max(sorted(counts), key=lambda form: counts[form])
        if word in self._all_plurals:  # "jockeys" of "jockeys race horses"
            return word
        return _ALWAYS_PLURAL.get(word) or pluralise(word)

    def is_person(self, word: str) -> bool:
        """Whether "they" is said of one."""
        return word in PEOPLE_WORDS
