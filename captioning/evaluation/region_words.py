"""Constraints from a dataset's regions, in the words that the photo's captions use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Annotated, Any

from captioning.config.ranges import ArgumentsOf
from captioning.data.region_labels import relabel_regions
from captioning.data.roster import build_roster
from captioning.data.steps.take_detections import (
    RegionsByImage,
    read_all_detections,
    with_detections,
)
from captioning.decoding import image_constraints
from captioning.decoding.detections import NO_FORMS
from captioning.text.inflection import pluralise
from captioning.text.lemmas import Lemmatizer, load_lemmas
from captioning.text.object_words import LEMMAS
from captioning.types import Sample


def words_of_named_regions(
    samples: Iterable[Sample],
    *,
    files: Sequence[str] = (),
    forms: Mapping[str, Sequence[str]] = NO_FORMS,
    **settings: Annotated[Any, ArgumentsOf(image_constraints.constraints_from_regions)],
) -> image_constraints.ImageConstraints:
    """Constraints from labelled regions, by the words that the photo's captions use for them.

    Labels may be kinds, such as the "animals" of Flickr30k Entities, which captions do not use. A
    word's plural meets the constraint, too.

    Args:
        samples: samples of the data set, with their regions and, where labels are kinds, phrases.
        files: files of ``captioning find-objects``, whose boxes replace the samples' own.
        forms: plural and synonyms of words for which the regular plural is wrong or not enough.
        **settings: see `captioning.decoding.image_constraints.constraints_from_regions`.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: no image has a region, the files lack photos, or a setting is out of its range.
    """
    if files:
        regions = _detections(tuple(files))
        samples = with_detections(build_roster("constraints", list(samples)), regions).samples
    lemmatizer = load_lemmas(LEMMAS)
    samples_by_image: dict[str, list[Sample]] = {}
    for sample in samples:
        samples_by_image.setdefault(sample.image_id, []).append(sample)
    named = [
        replace(group[0], regions=relabel_regions(group, lemmatizer))
        for group in samples_by_image.values()
    ]

    def find_forms(word: str) -> Sequence[str]:
        return forms[word] if word in forms else _plurals(word, lemmatizer)

    return image_constraints.constraints_from_regions(named, forms=find_forms, **settings)


@lru_cache(maxsize=2)
def _detections(files: tuple[str, ...]) -> RegionsByImage:
    """Detections of files, read once per process, as pseudo-labels are computed again and again."""
    return read_all_detections(files)


def _plurals(word: str, lemmatizer: Lemmatizer) -> tuple[str, ...]:
    """Regular plural of a word; none for a word that is plural already ("french fries")."""
    last = word.split()[-1]
    plural = pluralise(word)
    is_plural = plural == word or lemmatizer(last, "NNS") != last
    return () if is_plural else (plural,)
