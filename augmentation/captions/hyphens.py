"""Rejoin hyphenated words of a caption, because the parser splits "t-shirt" into three tokens."""

from __future__ import annotations

from collections.abc import Sequence


def hyphen_groups(texts: Sequence[str], touches: Sequence[bool]) -> list[list[int]]:
    """Positions of words; words joined by hyphens share one list.

    Args:
        texts: texts of the words, hyphens among them.
        touches: whether each word follows the one before without a blank.
    """
    groups: list[list[int]] = []
    for i, text in enumerate(texts):
        follows_hyphen = i > 0 and texts[i - 1] == "-" and bool(text.strip("-.,"))
        if i > 0 and touches[i] and (text == "-" or follows_hyphen):
            groups[-1].append(i)
        else:
            groups.append([i])
    return groups
