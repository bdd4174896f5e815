"""Find a caption's words for an object's actions and clothes, beyond its attributes.

The words stay in a swapped caption ("a man in yellow is running"), so a patch of the new object has
to show the same. The thesis (Hahn, 2022) has no such check: CLIP ranks 128 candidates, and some of
them fit. This check is the framework's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from augmentation.regions.mentions import Mention
from captioning.text.phrases import NOUNS, actions, children_of
from captioning.types import Parse

# Verbs and prepositions that lead to a description: "wearing a hat", "in yellow".
DESCRIBING_VERBS = ("wear", "dress", "clothe", "hold", "carry")
DESCRIBING_PREPOSITIONS = ("in", "with")
# Verbs of which little can be seen.
INVISIBLE_VERBS = ("have", "be", "do", "get", "see", "show", "appear", "seem", "try")


def description_words(parse: Parse, mention: Mention) -> frozenset[str]:
    """Lemmas of an object's verbs, and of the descriptions that follow the object.

    Descriptions that begin with "the" are places, not clothes: "in the snow".
    """
    children = children_of(parse)
    own_actions = [action for action in actions(parse) if mention.head in action.subjects]
    lemmas = {action.lemma for action in own_actions if action.lemma not in INVISIBLE_VERBS}
    positions = [mention.head, *(action.verb for action in own_actions)]
    dependents = [n for top in positions for n in children[top] if n > mention.head]
    heads = [
        n
        for n in dependents
        if parse[n].dep == "prep" and parse[n].text.lower() in DESCRIBING_PREPOSITIONS
    ]
    heads += [action.verb for action in own_actions if parse[action.verb].lemma in DESCRIBING_VERBS]
    for top in heads:
        lemmas.update(_described(parse, children, top, mention.head))
    return frozenset(lemmas)


def _described(
    parse: Parse, children: Sequence[Sequence[int]], top: int, head: int
) -> Iterator[str]:
    pending = [n for n in children[top] if n > head]
    while pending:
        word = pending.pop()
        if any(parse[n].text.lower() == "the" for n in children[word]):
            continue
        if parse[word].pos in (*NOUNS, "ADJ"):
            yield parse[word].lemma
        pending += [n for n in children[word] if n > head]
