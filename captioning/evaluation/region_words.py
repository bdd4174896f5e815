"""Which words constrained search shall say of a data set's regions, whatever they are labelled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from captioning.data.region_labels import regions_by_phrases
from captioning.decoding import wanted
from captioning.decoding.detections import NO_FORMS
from captioning.ranges import ArgumentsOf
from captioning.text.lemmas import PLURALS_ONLY, Lemmatizer, load_lemmas
from captioning.text.object_words import LEMMAS
from captioning.text.plurals import pluralise
from captioning.types import Sample


def words_of_named_regions(
    samples: Iterable[Sample],
    *,
    forms: Mapping[str, Sequence[str]] = NO_FORMS,
    **settings: Annotated[Any, ArgumentsOf(wanted.words_of_regions)],
) -> wanted.Wanted:
    """Constraints from labelled regions, which are called as the photo's captions call them.

    Labels may be kinds, such as the "animals" of Flickr30k Entities, that nobody says. A word's
    plural says it too.

    Args:
        samples: of the data set, with their regions and, where labels are kinds, phrases.
        forms: plural and synonyms of words, where the plural by rule is wrong or not enough.
        **settings: see `captioning.decoding.wanted.words_of_regions`.

    Raises:
        ValueError: no image has a region, or a setting out of its range.
    """
    lemmatizer = load_lemmas(LEMMAS)
    photos: dict[str, list[Sample]] = {}
    for sample in samples:
        photos.setdefault(sample.image_id, []).append(sample)
    named = [
        replace(photo[0], regions=regions_by_phrases(photo, lemmatizer))
        for photo in photos.values()
    ]

    def find(word: str) -> Sequence[str]:
        return forms[word] if word in forms else _plurals(word, lemmatizer)

    return wanted.words_of_regions(named, forms=find, **settings)


def _plurals(word: str, lemmatizer: Lemmatizer) -> tuple[str, ...]:
    """The plural by rule; none of what is one already ("french fries")."""
    last = word.split()[-1]
    is_plural = last in PLURALS_ONLY or lemmatizer(last, "NNS") != last
    return () if is_plural else (pluralise(word),)
