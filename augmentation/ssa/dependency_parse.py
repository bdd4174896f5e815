"""Prepare a dependency parse for the AMR parser: join hyphenated words and prepositions.

`repair` mends, by rule, the caption parser's errors about auxiliary and hyphenated verbs. Such
parses have a verb without a subject, so that no new caption can be made of them: "Two girls are
roller-skating", where "girls" depends on "are"; "A man is rock-climbing" or "is hula hooping",
where the verb is parsed as a noun; "A girl roller-skating", where "girl" is a compound of
"skating". Each rule changes nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise

from augmentation.captions.hyphens import hyphen_groups
from augmentation.regions.mentions import offsets
from augmentation.ssa.lexicon import COMPOUND_PREPOSITIONS, is_living
from captioning.text.lemmas import Lemmatizer, load_lemmas
from captioning.text.parser import LEMMAS_FILE, PACKAGED
from captioning.text.phrases import NOUNS, PASSIVE_SUBJECTS, SUBJECTS, children_of
from captioning.types import Parse, Token

# Words of a preposition, such as "in front of", at most.
_MAX_PREPOSITION_WORDS = 4
NOT = frozenset(("not", "n't", "never"))
AUXILIARY_RELATIONS = ("aux", "auxpass")
AUXILIARY_VERBS = ("be", "have", "do", "get")
ALL_SUBJECTS = (*SUBJECTS, *PASSIVE_SUBJECTS)
# Relations of a verb to the "be" before it where the parser takes "be" as the main verb.
COPULA_RELATIONS = ("attr", "acomp", "advcl", "xcomp", "conj", "dep", "oprd")
MODIFIER_RELATIONS = ("compound", "npadvmod", "nmod")
# First words of verbs that are not nouns: "hula hooping", "free falling".
VERB_FIRST_WORDS = ("hula", "free")
NOUN_RELATIONS = ("det", "poss", "nummod", "predet")
NON_VERBS = ("something", "nothing", "anything", "everything")
# "A player mid-swing", "a batter-in-training": no verbs.
NON_VERB_PREFIXES = ("mid-", "in-")


@dataclass(frozen=True, slots=True)
class Words:
    """Words of a caption with their parse.

    Attributes:
        tokens: tokens with hyphenated words as one, after `augmentation.ssa.dependency_parse`.
        spans: characters ``(start, end)`` of each in the caption with single blanks.
        children: children of each, in order.
    """

    tokens: Parse
    spans: tuple[tuple[int, int], ...]
    children: tuple[tuple[int, ...], ...]

    def having(self, position: int, *deps: str) -> list[int]:
        """Children of a word in the given relations."""
        return [i for i in self.children[position] if self.tokens[i].dep in deps]

    def negations(self, position: int) -> list[int]:
        """Negating children of a word, in any relation."""
        return [
            i
            for i in self.children[position]
            if self.tokens[i].dep == "neg" or self.tokens[i].text.lower() in NOT
        ]

    def preposition(self, position: int) -> tuple[str, list[int]]:
        """Name of a preposition, and its objects.

        ``("in-front-of", [n])`` of "in" in "in front of a dog".
        """
        path, name = position, [self.tokens[position].lemma]
        result: tuple[str, list[int]] = (name[0], self.having(position, "pobj", "pcomp"))
        while len(name) < _MAX_PREPOSITION_WORDS:
            inner = self._inner(path)
            if inner < 0:
                break
            parts = self.tokens[inner].dep in ("pobj", "advmod") and self._determiner(inner)
            name += [*([parts] if parts else []), self.tokens[inner].lemma]
            path = inner
            joined = COMPOUND_PREPOSITIONS.get(tuple(name))
            if joined:
                result = (joined, self.having(path, "pobj", "pcomp"))
        return result

    def _inner(self, position: int) -> int:
        """Next word of a possible multi-word preposition, or -1."""
        return next(iter(self.having(position, "prep", "pobj")), -1)

    def _determiner(self, position: int) -> str:
        return next((self.tokens[i].lemma for i in self.having(position, "det")), "")


def parsed_words(caption: str, parse: Parse) -> Words:
    """Build the words of a parsed caption.

    Raises:
        ValueError: the parse is not of this caption.
    """
    spans = offsets(caption, parse)
    touches = [i > 0 and spans[i - 1][1] == start for i, (start, _) in enumerate(spans)]
    groups = hyphen_groups([token.text for token in parse], touches)
    tokens = _join_tokens(parse, groups)
    if nouns := verb_nouns(tokens):
        for noun in reversed(nouns):
            groups[noun : noun + 2] = [groups[noun] + groups[noun + 1]]
        tokens = _join_tokens(parse, groups)
    tokens = repair(tokens)
    return Words(
        tokens=tokens,
        spans=tuple((spans[group[0]][0], spans[group[-1]][1]) for group in groups),
        children=tuple(map(tuple, children_of(tokens))),
    )


def _join_tokens(parse: Parse, groups: Sequence[Sequence[int]]) -> Parse:
    """Merge the tokens of each group into one word."""
    new_index = {old: new for new, group in enumerate(groups) for old in group}
    tokens = []
    for new, group in enumerate(groups):
        head = _head(parse, group)
        token = parse[head]
        if len(group) > 1:
            last = parse[group[-1]]
            text = _spelt([parse[i].text for i in group])
            lemma = text.lower().removesuffix(last.text.lower()) + last.lemma
            token = replace(token, text=text, lemma=lemma)
        # a word that is its own head, or whose head is within its group, is the group's head
        tokens.append(replace(token, head=new if token.head in group else new_index[token.head]))
    return tuple(tokens)


def _spelt(texts: Sequence[str]) -> str:
    """Text of joined words, such as "hula-hooping" for "hula" and "hooping"."""
    return "".join(texts[:1]) + "".join(
        text if "-" in (before, text) else f"-{text}" for before, text in pairwise(texts)
    )


def _head(parse: Parse, group: Sequence[int]) -> int:
    """Head of a group: the word whose head is outside the group; of several, the last."""
    outside = [i for i in group if parse[i].head not in group or parse[i].head == i]
    words = [i for i in outside if parse[i].tag != "HYPH"]
    return (words or outside or list(group))[-1]


def verb_nouns(tokens: Parse) -> list[int]:
    """Nouns that are the first word of a verb, such as "hula" in "is hula hooping".

    Args:
        tokens: tokens with words that hyphens join as one.
    """
    nouns = (_progressive(tokens, be) for be in range(len(tokens)))
    return [position - 1 for position in nouns if position and _names_verb(tokens, position)]


def repair(tokens: Parse) -> Parse:
    """Apply all repair rules to the words.

    Args:
        tokens: tokens with words that hyphens join, and words of `verb_nouns`, as one.
    """
    for rule in (_progressives, _participles, _active_verbs, _auxiliaries):
        tokens = rule(tokens)
    return tokens


def _progressives(tokens: Parse) -> Parse:
    """Repair "is rock-climbing": the verb becomes "rock-climb" and gets the dependents of "is"."""
    for be in range(len(tokens)):
        verb = _progressive(tokens, be)
        if not verb or _names_verb(tokens, verb):
            continue
        head = verb if tokens[be].head == be else tokens[be].head
        changes = {i: replace(t, head=verb) for i, t in enumerate(tokens) if t.head == be}
        changes[be] = replace(tokens[be], dep="aux", pos="AUX", head=verb)
        changes[verb] = replace(as_verb(tokens[verb]), dep=tokens[be].dep, head=head)
        tokens = _replace_tokens(tokens, changes)
    return tokens


def _progressive(tokens: Parse, be: int) -> int:
    """Verb whose auxiliary is "be", even if the parse differs; 0 without a verb."""
    token = tokens[be]
    dependents = [i for i, t in enumerate(tokens) if t.head == be and i != be]
    subjects = [i for i in dependents if tokens[i].dep in ALL_SUBJECTS and i < be]
    if token.lemma != "be" or token.dep in AUXILIARY_RELATIONS or not subjects:
        return 0
    position = be + 1
    while (
        position < len(tokens)
        and position in dependents
        and tokens[position].dep in ("advmod", "neg")
    ):
        position += 1
    if position < len(tokens) and _names_verb(tokens, position + 1):
        position += 1
    if position >= len(tokens) or position not in dependents or not _may_be_verb(tokens, position):
        return 0
    is_subject_living = any(is_living(tokens[i].lemma) for i in subjects)
    is_certain = tokens[position].tag == "VBG" or "-" in tokens[position].text
    return position if is_certain or is_subject_living else 0


def _may_be_verb(tokens: Parse, position: int) -> bool:
    token = tokens[position]
    relations = {tokens[i].dep for i in children_of(tokens)[position] if i < position}
    return (
        token.text.lower().endswith("ing")
        and token.text.lower() not in NON_VERBS
        and not token.text.lower().startswith(NON_VERB_PREFIXES)
        and token.dep in COPULA_RELATIONS
        and token.tag in ("NN", "NNP", "VBG", "JJ")
        and not relations.intersection(NOUN_RELATIONS)
    )


def _names_verb(tokens: Parse, position: int) -> bool:
    """Return whether the word before the verb is a noun that belongs to it."""
    if not 0 < position < len(tokens):
        return False
    before = tokens[position - 1]
    if before.head != position:
        return False
    is_noun = before.dep in MODIFIER_RELATIONS and before.pos in NOUNS
    return is_noun or before.text.lower() in VERB_FIRST_WORDS


def _participles(tokens: Parse) -> Parse:
    """Repair "a girl roller-skating": the verb describes the girl and forms no compound noun."""
    for verb, token in enumerate(tokens):
        noun = verb - 1
        if "-" not in token.text or not token.text.lower().endswith("ing") or noun < 0:
            continue
        subject = tokens[noun]
        is_doubtful = token.text.lower().startswith(NON_VERB_PREFIXES) or not is_living(
            subject.lemma
        )
        if is_doubtful or subject.pos not in NOUNS or token.pos not in (*NOUNS, "VERB"):
            continue
        if token.head == noun and token.dep in ("appos", "acl", "nmod"):
            tokens = _replace_tokens(tokens, {verb: replace(as_verb(token), dep="acl")})
        elif subject.head == verb and subject.dep == "compound" and token.dep != "compound":
            tokens = _exchange(tokens, noun, verb)
    return tokens


def _exchange(tokens: Parse, noun: int, verb: int) -> Parse:
    """Exchange a noun with the word after it, which then describes the noun."""
    token = tokens[verb]
    head = noun if token.head == verb else token.head
    changes = {
        i: replace(t, head=noun) for i, t in enumerate(tokens) if t.head == verb and i < noun
    }
    changes[noun] = replace(tokens[noun], dep=token.dep, head=head)
    changes[verb] = replace(as_verb(token), dep="acl", head=noun)
    return _replace_tokens(tokens, changes)


def _active_verbs(tokens: Parse) -> Parse:
    """Repair verbs after "is" that are tagged as passive: "are not ice-skating" is active."""
    changes = {}
    for i, token in enumerate(tokens):
        head = tokens[token.head]
        is_noun = head.pos in NOUNS and head.text.lower().endswith("ing")
        relations = [t.dep for t in tokens if t.head in (i, token.head)]
        has_subject = any(
            dep in ALL_SUBJECTS for dep in relations
        )  # "there is scaffolding" has nobody
        if is_noun and has_subject and token.dep in AUXILIARY_RELATIONS and token.lemma == "be":
            changes[i] = replace(token, dep="aux")
            changes[token.head] = as_verb(head)
    return _replace_tokens(tokens, changes)


def _auxiliaries(tokens: Parse) -> Parse:
    """Move the dependents of an auxiliary, such as its subject, to the verb."""
    changes = {}
    for i, token in enumerate(tokens):
        head = tokens[token.head]
        is_auxiliary = head.dep in AUXILIARY_RELATIONS and (
            head.lemma in AUXILIARY_VERBS or head.tag == "MD"
        )
        if token.head != i and is_auxiliary and head.head != i:
            changes[i] = replace(token, head=head.head)
    return _auxiliaries(_replace_tokens(tokens, changes)) if changes else tokens


def as_verb(token: Token) -> Token:
    """Convert a word in "-ing" to a verb with its lemma; the stem of "DJ-ing" is "dj"."""
    before, hyphen, last = token.text.lower().rpartition("-")
    lemma = before if last == "ing" else before + hyphen + _lemmatizer()(last, "VBG")
    return replace(token, tag="VBG", pos="VERB", lemma=lemma or token.lemma)


@cache
def _lemmatizer() -> Lemmatizer:
    return load_lemmas(PACKAGED / LEMMAS_FILE)


def _replace_tokens(tokens: Sequence[Token], changes: dict[int, Token]) -> Parse:
    return tuple(changes.get(i, token) for i, token in enumerate(tokens))
