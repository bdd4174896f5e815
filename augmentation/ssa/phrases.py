"""Turn noun phrases into graph nodes: noun, attributes, number, owner, and containing whole."""

from __future__ import annotations

from augmentation.regions.closed_classes import BOUND_ADJECTIVES
from augmentation.ssa.builder import PLURAL_TAGS, Builder
from augmentation.ssa.lexicon import (
    BODY_PARTS,
    COLOURS,
    NUMBERS,
    POINTERS,
    POSSESSIVES,
    QUANTIFIERS,
    QUANTITIES,
    concept_of,
    subject_role,
)
from captioning.text.phrases import NOUNS

ARTICLES = {"a": "a", "an": "a", "the": "the"}


class Phrases:
    """Adds nouns with their modifiers to a graph builder.

    Args:
        builder: builder that receives the nodes.
    """

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self.words = builder.words
        self.tokens = builder.words.tokens
        self._joints: dict[int, str] = {}

    def conjuncts(self, i: int) -> list[int]:
        """Words that "and" joins to a word, in order, without the word itself."""
        conjuncts = []
        for j in self.words.having(i, "conj"):
            conjuncts += [j, *self.conjuncts(j)]
        return conjuncts

    def coordinate(self, i: int, parts: list[str]) -> str:
        """Join several nodes under "and" or "or", and return one variable; keep a single node."""
        if len(parts) == 1:
            return parts[0]
        if i not in self._joints:
            lemmas = {self.tokens[j].lemma for k in (i, *self.conjuncts(i)) for j in
                    self.words.having(k, "cc")}  # fmt: skip
            self._joints[i] = self.builder.add("or" if "or" in lemmas else "and")
            for number, part in enumerate(parts, start=1):
                self.builder.link(self._joints[i], f"op{number}", part)
        return self._joints[i]

    def quantity_of(self, i: int) -> int:
        """The noun "dogs" of "a couple of dogs"; other nouns are returned unchanged."""
        if self.tokens[i].lemma in QUANTITIES:
            for j in self.words.having(i, "prep"):
                if self.tokens[j].lemma == "of" and self.words.having(j, "pobj"):
                    return self.words.having(j, "pobj")[0]
        return i

    def noun(self, i: int) -> str:
        """Return the node of a noun without modifiers; create it if necessary."""
        if i not in self.builder.variable_of:
            token = self.tokens[i]
            lemma = "person" if token.lemma == "people" else self.spelt(i)
            determiners = [self.tokens[j].lemma for j in self.words.having(i, "det")]
            article = next((ARTICLES[word] for word in determiners if word in ARTICLES), "")
            plural = token.tag in PLURAL_TAGS or token.lemma == "people" or self._has_number(i)
            self.builder.add(
                lemma,
                lemma,
                token=i,
                plural=plural,
                article=article,
                noun=token.pos in NOUNS or lemma in COLOURS,
                form=token.text.lower() if plural else "",
            )
        return self.builder.variable_of[i]

    def _has_number(self, i: int) -> bool:
        """Return whether a noun has a number above one: "fish" in "two fish", whatever its tag."""
        numerals = (self.tokens[j].lemma for j in self.words.having(i, "nummod"))
        numbers = (NUMBERS.get(lemma, lemma) for lemma in numerals)
        return any(number.isdigit() and int(number) > 1 for number in numbers)

    def spelt(self, i: int) -> str:
        """Dictionary form of a word; names keep their capital within a sentence."""
        token = self.tokens[i]
        name = token.tag == "NNP" and i > 0 and token.text.lower() == token.lemma
        return token.text if name else token.lemma

    def describe(self, variable: str, i: int) -> None:
        """Add the words before a noun, such as adjectives and numbers, to its node."""
        # from the right: the words before "haired" belong to it
        for j in reversed(self.words.children[i]):
            token = self.tokens[j]
            if j in self.builder.variable_of:
                continue
            if token.dep == "det":
                self._determiner(variable, token.lemma, j)
            elif token.dep in ("amod", "nmod") and token.pos != "NUM":
                self.attribute(variable, j)
            elif token.dep in ("nummod", "amod") or (
                token.dep == "compound" and token.pos == "NUM"
            ):
                self._number(variable, j)
            elif token.dep == "compound":
                self._compound(variable, j)
            elif token.dep == "poss":
                self._owner(variable, i, j)

    def _determiner(self, variable: str, lemma: str, j: int) -> None:
        if lemma in QUANTIFIERS:
            self.builder.link(variable, "quant", self.builder.add(lemma, lemma, token=j))
        elif lemma in POINTERS:
            self.builder.link(variable, "mod", self.builder.add(lemma, lemma, token=j))
        elif lemma == "no":
            self.builder.negate(variable)

    def _number(self, variable: str, j: int) -> None:
        lemma = self.tokens[j].lemma
        value = NUMBERS.get(lemma, lemma)
        self.builder.link(variable, "quant", self.builder.add(value, lemma, token=j))

    def _compound(self, variable: str, j: int) -> None:
        """Add a compound such as "dirt bike": a bike of the kind "dirt"."""
        lemma = self.tokens[j].lemma
        if lemma in COLOURS or self.tokens[j].pos == "VERB":
            self.attribute(variable, j)
            return
        word = self.spelt(j) if self.tokens[j].tag == "NNP" else self.tokens[j].text.lower()
        kind = self.builder.add(lemma, word, token=j)
        self.builder.link(variable, "mod", kind)
        self.describe(kind, j)

    def _owner(self, variable: str, i: int, j: int) -> None:
        if self.tokens[j].pos in NOUNS:
            owner = self.noun(j)
            self.describe(owner, j)
        else:
            antecedent = self.builder.antecedent(j)
            pronouns = {possessive: pronoun for pronoun, possessive in POSSESSIVES.items()}
            word = self.tokens[j].lemma
            word = pronouns.get(self.tokens[j].text.lower(), word)
            owner = antecedent or self.builder.add(word, word, token=j)
        is_part = self.tokens[i].lemma in BODY_PARTS
        if is_part:
            self.builder.link(owner, "part", variable)
        else:
            self.builder.link(variable, "poss", owner)

    def attribute(self, variable: str, j: int) -> None:
        """Add an adjective or participle before a noun, and its conjuncts."""
        token = self.tokens[j]
        if token.lemma in QUANTIFIERS:
            self._determiner(variable, token.lemma, j)
        elif token.text.lower() not in BOUND_ADJECTIVES or not self._bound_adjective(variable, j):
            self._plain_attribute(variable, j)
        for other in self.words.having(j, "conj"):
            self.attribute(variable, other)

    def _plain_attribute(self, variable: str, j: int) -> None:
        token = self.tokens[j]
        word = token.text.lower()
        if token.tag in ("VBG", "VBN") and token.lemma != word:
            node = self.builder.add(concept_of(token.lemma), word, token=j)
            active = token.tag == "VBG"
            self.builder.link(node, subject_role(token.lemma) if active else "ARG1", variable)
        elif token.lemma in COLOURS:
            node = self.builder.add(COLOURS[token.lemma], word, token=j)
            self.builder.link(node, "ARG1", variable)
        else:
            node = self.builder.add(token.lemma, word, token=j)
            self.builder.link(variable, "mod", node)
        for k in self.words.having(j, "amod", "advmod", "compound", "npadvmod", "nmod"):
            text = self.tokens[k].text.lower()
            role = "degree" if text in ("very", "really", "so", "too") else "mod"
            self.builder.link(node, role, self.builder.add(self.tokens[k].lemma, text, token=k))

    def _bound_adjective(self, variable: str, j: int) -> bool:
        """Add "blond haired" as one node for two words, if the first precedes the second."""
        before = j - 1
        if before < 0 or self.tokens[before].pos not in ("ADJ", "NOUN", "ADV", "NUM", "PROPN"):
            return False
        first, second = self.tokens[before].text.lower(), self.tokens[j].text.lower()
        node = self.builder.variable_of.get(before)
        if node is not None:
            return False  # it was read as an attribute of its own
        node = self.builder.add(f"{first}-{second}", f"{first} {second}", token=j)
        self.builder.variable_of[before] = node
        self.builder.link(variable, "mod", node)
        return True
