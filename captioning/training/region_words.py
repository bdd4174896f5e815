"""Which words constrained search shall say of a data set's regions, whatever they are labelled."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from captioning.data.region_labels import regions_by_phrases
from captioning.decoding import wanted
from captioning.text.lemmas import load_lemmas
from captioning.text.object_words import LEMMAS
from captioning.types import Sample


def words_of_named_regions(samples: Iterable[Sample], **settings: Any) -> wanted.Wanted:
    """Constraints from labelled regions, which are called as the photo's captions call them.

    Labels may be kinds, such as the "animals" of Flickr30k Entities, that nobody says.

    Args:
        samples: of the data set, with their regions and, where labels are kinds, phrases.
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
    return wanted.words_of_regions(named, **settings)
