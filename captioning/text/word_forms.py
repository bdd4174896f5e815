"""Find words of captions, and the classes that captions mention, by word forms."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

from captioning.text.lemmas import Lemmatizer
from captioning.text.spaceless import MARKS, spaced

Patterns = Mapping[str, re.Pattern[str]]
_WORD = re.compile(rf"[\w{MARKS}]+")
_WHOLE = re.compile(r"[a-z0-9]+(?:['-][a-z0-9]+)*")
_NUMBERS = "zero one two three four five six seven eight nine ten eleven twelve"
NUMBER_WORDS = {word: number for number, word in enumerate(_NUMBERS.split())}


def form_patterns(classes: Mapping[str, Iterable[str]]) -> dict[str, re.Pattern[str]]:
    """Compile patterns for each class's forms as whole words, with any case and white space.

    Args:
        classes: forms by class, such as ``{"bus": ("bus", "buses")}``; phrases are allowed.

    Raises:
        ValueError: a class without forms.
    """
    return {name: _pattern(name, forms) for name, forms in classes.items()}


def mentioned_classes(caption: str, patterns: Patterns) -> set[str]:
    """Return the classes of which the caption holds a form."""
    return {name for name, pattern in patterns.items() if pattern.search(caption)}


def words_of(caption: str) -> list[str]:
    """Split a text into lower-case runs of letters, digits and underscores; see also `spaced`.

    Hyphens and apostrophes separate words: "T-shirt" is two words.
    """
    return _WORD.findall(spaced(caption.lower()))


def whole_words_of(caption: str) -> list[str]:
    """Split an English text like `words_of`, but keep hyphenated words: "t-shirt" is one word.

    "zebra's" becomes "zebra".
    """
    return [word.removesuffix("'s") for word in _WHOLE.findall(caption.lower())]


def count_remaining_forms(
    captions: Iterable[str], classes: Mapping[str, Iterable[str]], lemmatizer: Lemmatizer
) -> dict[str, int]:
    """Count captions with unlisted forms of the classes' words.

    If the captions should mention none of the classes, these forms are missing from the list:
    "buses" where "bus" and "busses" are listed. Forms of several words are not searched.

    Args:
        captions: captions in any letter case.
        classes: forms by class.
        lemmatizer: lemmatizer that maps "buses" to "bus".

    Returns:
        (form, count) pairs, most frequent first, then by name.
    """
    forms = (form.lower().split() for class_forms in classes.values() for form in class_forms)
    single = {form[0] for form in forms if len(form) == 1}
    stems = single | {lemmatizer(word, "NNS") for word in single}
    counts = Counter(
        word
        for caption in captions
        for word in set(whole_words_of(caption))
        if word in stems or lemmatizer(word, "NNS") in stems
    )
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _pattern(name: str, forms: Iterable[str]) -> re.Pattern[str]:
    words = [form.split() for form in forms if form.strip()]
    if not words:
        raise ValueError(f"held-out class {name!r} has no words; list the words that captions use")
    spelt = "|".join(r"\s+".join(map(re.escape, form)) for form in words)
    return re.compile(rf"\b(?:{spelt})\b", re.IGNORECASE)
