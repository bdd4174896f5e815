"""What a caption says of an object besides its attributes: what it does, and what it wears.

The words stay in a swapped caption ("a man in yellow is running"), so a patch of the new object has
to show the same. The thesis (Hahn, 2022) leaves this to CLIP, of whose 128 candidates some do; this
check is the framework's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from augmentation.regions.mentions import Mention
from captioning.text.parts import NOUNS, actions, children_of
from captioning.types import Parse

# Verbs and prepositions that lead to a description: "wearing a hat", "in yellow".
DRESSING = ("wear", "dress", "clothe", "hold", "carry")
WITH = ("in", "with")
# Verbs that hardly show.
UNSEEN = ("have", "be", "do", "get", "see", "show", "appear", "seem", "try")


def manner(parse: Parse, mention: Mention) -> frozenset[str]:
    """Lemmas of the verbs that an object is the subject of, and of what describes it behind it.

    Descriptions that begin with "the" are places, not clothes: "in the snow".
    """
    children = children_of(parse)
    doing = [action for action in actions(parse) if mention.head in action.subjects]
    lemmas = {action.lemma for action in doing if action.lemma not in UNSEEN}
    positions = [mention.head, *(action.verb for action in doing)]
    behind = [n for top in positions for n in children[top] if n > mention.head]
    tops = [n for n in behind if parse[n].dep == "prep" and parse[n].text.lower() in WITH]
    tops += [action.verb for action in doing if parse[action.verb].lemma in DRESSING]
    for top in tops:
        lemmas.update(_described(parse, children, top, mention.head))
    return frozenset(lemmas)


def _described(
    parse: Parse, children: Sequence[Sequence[int]], top: int, head: int
) -> Iterator[str]:
    waiting = [n for n in children[top] if n > head]
    while waiting:
        word = waiting.pop()
        if any(parse[n].text.lower() == "the" for n in children[word]):
            continue
        if parse[word].pos in (*NOUNS, "ADJ"):
            yield parse[word].lemma
        waiting += [n for n in children[word] if n > head]
