"""What the caption parser gets wrong about helping verbs and verbs with hyphens, mended by rule.

Such captions have a verb without anybody who does it, and no part of them can be said again: "Two
girls are roller-skating", where the girls hang on "are"; "A man is rock-climbing" or "is hula
hooping", where the verb is taken for a noun; "A girl roller-skating", where the girl is a kind of
skating. Each rule leaves all else as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from augmentation.captions.ssa.lexicon import is_living
from captioning.text.lemmas import Lemmatizer, load_lemmas
from captioning.text.parser import LEMMAS_FILE, PACKAGED
from captioning.text.parts import NOUNS, PASSIVE_SUBJECTS, SUBJECTS, children_of
from captioning.types import Parse, Token

HELPERS = ("aux", "auxpass")
HELPING = ("be", "have", "do", "get")
ALL_SUBJECTS = (*SUBJECTS, *PASSIVE_SUBJECTS)
# Relations of a verb to the "be" before it where the parser takes "be" for the verb.
SAID_WITH_BE = ("attr", "acomp", "advcl", "xcomp", "conj", "dep", "oprd")
BEFORE_VERBS = ("compound", "npadvmod", "nmod")
# First words of verbs that are no nouns: "hula hooping", "free falling".
NO_NOUNS = ("hula", "free")
OF_NOUNS_ONLY = ("det", "poss", "nummod", "predet")
NO_VERBS = ("something", "nothing", "anything", "everything")
# "A player mid-swing", "a batter-in-training" do not do these.
NOT_DONE = ("mid-", "in-")


def verb_nouns(tokens: Parse) -> list[int]:
    """Nouns that are the first word of a verb: "hula" of "is hula hooping".

    Args:
        tokens: with words that hyphens join as one.
    """
    nouns = (_progressive(tokens, be) for be in range(len(tokens)))
    return [at - 1 for at in nouns if at and _names_verb(tokens, at)]


def mend(tokens: Parse) -> Parse:
    """The words with all rules applied.

    Args:
        tokens: with words that hyphens join, and those of `verb_nouns`, as one.
    """
    for rule in (_progressives, _participles, _helped, _helpers):
        tokens = rule(tokens)
    return tokens


def _progressives(tokens: Parse) -> Parse:
    """The verb of "is rock-climbing" is "rock-climb", and all that hung on "is" hangs on it."""
    for be in range(len(tokens)):
        verb = _progressive(tokens, be)
        if not verb or _names_verb(tokens, verb):
            continue
        head = verb if tokens[be].head == be else tokens[be].head
        changes = {i: replace(t, head=verb) for i, t in enumerate(tokens) if t.head == be}
        changes[be] = replace(tokens[be], dep="aux", pos="AUX", head=verb)
        changes[verb] = replace(as_verb(tokens[verb]), dep=tokens[be].dep, head=head)
        tokens = _changed(tokens, changes)
    return tokens


def _progressive(tokens: Parse, be: int) -> int:
    """The verb that a "be" helps without the parser's knowledge; 0 if there is none."""
    token = tokens[be]
    own = [i for i, t in enumerate(tokens) if t.head == be and i != be]
    subjects = [i for i in own if tokens[i].dep in ALL_SUBJECTS and i < be]
    if token.lemma != "be" or token.dep in HELPERS or not subjects:
        return 0
    at = be + 1
    while at < len(tokens) and at in own and tokens[at].dep in ("advmod", "neg"):
        at += 1
    if at < len(tokens) and _names_verb(tokens, at + 1):
        at += 1
    if at >= len(tokens) or at not in own or not _may_be_verb(tokens, at):
        return 0
    lives = any(is_living(tokens[i].lemma) for i in subjects)
    sure = tokens[at].tag == "VBG" or "-" in tokens[at].text
    return at if sure or lives else 0


def _may_be_verb(tokens: Parse, at: int) -> bool:
    token = tokens[at]
    has = {tokens[i].dep for i in children_of(tokens)[at] if i < at}
    return (
        token.text.lower().endswith("ing")
        and token.text.lower() not in NO_VERBS
        and not token.text.lower().startswith(NOT_DONE)
        and token.dep in SAID_WITH_BE
        and token.tag in ("NN", "NNP", "VBG", "JJ")
        and not has.intersection(OF_NOUNS_ONLY)
    )


def _names_verb(tokens: Parse, at: int) -> bool:
    """Whether the word before one is a noun that belongs to it."""
    if not 0 < at < len(tokens):
        return False
    before = tokens[at - 1]
    if before.head != at:
        return False
    is_noun = before.dep in BEFORE_VERBS and before.pos in NOUNS
    return is_noun or before.text.lower() in NO_NOUNS


def _participles(tokens: Parse) -> Parse:
    """The verb of "a girl roller-skating" describes the girl, and is no noun with her as a kind."""
    for verb, token in enumerate(tokens):
        noun = verb - 1
        if "-" not in token.text or not token.text.lower().endswith("ing") or noun < 0:
            continue
        subject = tokens[noun]
        doubtful = token.text.lower().startswith(NOT_DONE) or not is_living(subject.lemma)
        if doubtful or subject.pos not in NOUNS or token.pos not in (*NOUNS, "VERB"):
            continue
        if token.head == noun and token.dep in ("appos", "acl", "nmod"):
            tokens = _changed(tokens, {verb: replace(as_verb(token), dep="acl")})
        elif subject.head == verb and subject.dep == "compound" and token.dep != "compound":
            tokens = _exchanged(tokens, noun, verb)
    return tokens


def _exchanged(tokens: Parse, noun: int, verb: int) -> Parse:
    """A noun in the place of the word behind it, which describes it."""
    token = tokens[verb]
    head = noun if token.head == verb else token.head
    changes = {
        i: replace(t, head=noun) for i, t in enumerate(tokens) if t.head == verb and i < noun
    }
    changes[noun] = replace(tokens[noun], dep=token.dep, head=head)
    changes[verb] = replace(as_verb(token), dep="acl", head=noun)
    return _changed(tokens, changes)


def _helped(tokens: Parse) -> Parse:
    """What "is" helps is a verb in the active, whatever its tag: "are not ice-skating"."""
    changes = {}
    for i, token in enumerate(tokens):
        above = tokens[token.head]
        noun = above.pos in NOUNS and above.text.lower().endswith("ing")
        around = [t.dep for t in tokens if t.head in (i, token.head)]
        done = any(dep in ALL_SUBJECTS for dep in around)  # "there is scaffolding" has nobody
        if noun and done and token.dep in HELPERS and token.lemma == "be":
            changes[i] = replace(token, dep="aux")
            changes[token.head] = as_verb(above)
    return _changed(tokens, changes)


def _helpers(tokens: Parse) -> Parse:
    """What hangs on a helping verb hangs on the verb that it helps, as its subject does."""
    changes = {}
    for i, token in enumerate(tokens):
        above = tokens[token.head]
        helps = above.dep in HELPERS and (above.lemma in HELPING or above.tag == "MD")
        if token.head != i and helps and above.head != i:
            changes[i] = replace(token, head=above.head)
    return _helpers(_changed(tokens, changes)) if changes else tokens


def as_verb(token: Token) -> Token:
    """A word in "-ing" as a verb, with a verb's lemma; that of "DJ-ing" is "dj"."""
    before, hyphen, last = token.text.lower().rpartition("-")
    lemma = before if last == "ing" else before + hyphen + _lemmatizer()(last, "VBG")
    return replace(token, tag="VBG", pos="VERB", lemma=lemma or token.lemma)


@cache
def _lemmatizer() -> Lemmatizer:
    return load_lemmas(PACKAGED / LEMMAS_FILE)


def _changed(tokens: Sequence[Token], changes: dict[int, Token]) -> Parse:
    return tuple(changes.get(i, token) for i, token in enumerate(tokens))
