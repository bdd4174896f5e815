"""Label regions with words of the captions, because annotations may call a dog "animals"."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from captioning.data.roster import Roster, build_roster
from captioning.text.lemmas import Lemmatizer
from captioning.types import Region, Sample


def relabel_roster(roster: Roster, lemmatizer: Lemmatizer) -> Roster:
    """Return the roster with regions labelled by words of the photo's captions.

    Args:
        roster: roster with phrases and kinds, as in Flickr30k Entities; without them it is
            unchanged.
        lemmatizer: gives the singular.
    """
    samples = list(roster.samples)
    for rows in roster.rows_by_image.values():
        regions = relabel_regions([samples[row] for row in rows], lemmatizer)
        for row in rows:
            samples[row] = replace(samples[row], regions=regions)
    return build_roster(roster.name, samples, roster.dropped)


def relabel_regions(samples: Sequence[Sample], lemmatizer: Lemmatizer) -> tuple[Region, ...]:
    """Label the regions of one photo by words of its captions.

    Only regions whose label is a kind of a phrase ("animals") get a new label: the last word, in
    the singular, of most phrases about them; among equals the earliest caption's.

    Args:
        samples: the photo's samples; those without phrases have no effect.
        lemmatizer: gives the singular.
    """
    regions = samples[0].regions
    votes: dict[int, Counter[str]] = {}
    for phrase in (phrase for sample in samples for phrase in sample.phrases):
        word = lemmatizer(phrase.text.split()[-1].lower(), "NNS")
        for region in (n for n in phrase.regions if regions[n].label in phrase.kinds):
            votes.setdefault(region, Counter())[word] += 1
    return tuple(
        replace(region, label=votes[n].most_common(1)[0][0]) if n in votes else region
        for n, region in enumerate(regions)
    )
