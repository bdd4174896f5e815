"""The words of captions, as scores and budgets compare them."""

from __future__ import annotations

import re

_WORD = re.compile(r"\w+")


def words_of(caption: str) -> list[str]:
    """Runs of letters, digits and underscores in lower case, in order."""
    return _WORD.findall(caption.lower())
