"""Which classes a caption names, by the forms of their words; words for numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

Patterns = Mapping[str, re.Pattern[str]]
_NUMBERS = "zero one two three four five six seven eight nine ten eleven twelve"
NUMBER_WORDS = {word: number for number, word in enumerate(_NUMBERS.split())}


def form_patterns(classes: Mapping[str, Iterable[str]]) -> dict[str, re.Pattern[str]]:
    """What finds the forms of each class as whole words, in any case and over any white space.

    Args:
        classes: forms by class, such as ``{"bus": ("bus", "buses")}``; phrases are allowed.

    Raises:
        ValueError: a class without forms.
    """
    return {name: _pattern(name, forms) for name, forms in classes.items()}


def classes_named(caption: str, patterns: Patterns) -> set[str]:
    """The classes of which a form stands in a caption."""
    return {name for name, pattern in patterns.items() if pattern.search(caption)}


def _pattern(name: str, forms: Iterable[str]) -> re.Pattern[str]:
    words = [form.split() for form in forms if form.strip()]
    if not words:
        raise ValueError(f"held-out class {name!r} has no words; give those that captions use")
    spelt = "|".join(r"\s+".join(map(re.escape, form)) for form in words)
    return re.compile(rf"\b(?:{spelt})\b", re.IGNORECASE)
