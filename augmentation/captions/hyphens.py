"""Which words of a caption hyphens join, as parser and tagger take "t-shirt" for three."""

from __future__ import annotations

from collections.abc import Sequence


def hyphen_groups(texts: Sequence[str], touches: Sequence[bool]) -> list[list[int]]:
    """Positions of words, those that hyphens join in one list.

    Args:
        texts: of the words, hyphens among them.
        touches: of each word whether no blank is between it and the one before.
    """
    groups: list[list[int]] = []
    for i, text in enumerate(texts):
        behind = i > 0 and texts[i - 1] == "-" and bool(text.strip("-.,"))
        if i > 0 and touches[i] and (text == "-" or behind):
            groups[-1].append(i)
        else:
            groups.append([i])
    return groups
