"""The words of captions, as scores and budgets compare them."""

from __future__ import annotations

import re

from captioning.text.spaceless import MARKS, spaced

_WORD = re.compile(rf"[\w{MARKS}]+")


def words_of(caption: str) -> list[str]:
    """Runs of letters, digits and underscores in lower case; see `spaced` for other scripts."""
    return _WORD.findall(spaced(caption.lower()))
