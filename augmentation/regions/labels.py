"""Labels that captions use: annotations may call a dog "animals"."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from captioning.data.roster import Roster, build_roster
from captioning.text.lemmas import Lemmatizer
from captioning.types import Region


def named_by_phrases(roster: Roster, lemmatizer: Lemmatizer) -> Roster:
    """The roster with regions called as the photo's captions call them.

    Only regions whose label is a kind of a phrase ("animals") are renamed: to the last word, in
    the singular, that most phrases about them end on; of equally many, the earliest caption's.

    Args:
        roster: with phrases and kinds, as Flickr30k Entities has them; others stay as they are.
        lemmatizer: gives the singular.
    """
    samples = list(roster.samples)
    for rows in roster.rows_by_image.values():
        votes: dict[int, Counter[str]] = {}
        labels = [region.label for region in samples[rows[0]].regions]
        for phrase in (phrase for row in rows for phrase in samples[row].phrases):
            word = phrase.text.split()[-1].lower()
            for region in (n for n in phrase.regions if labels[n] in phrase.kinds):
                votes.setdefault(region, Counter())[lemmatizer(word, "NNS")] += 1
        if not votes:
            continue
        regions = _renamed(samples[rows[0]].regions, votes)
        for row in rows:
            samples[row] = replace(samples[row], regions=regions)
    return build_roster(roster.name, samples, roster.dropped)


def _renamed(regions: tuple[Region, ...], votes: dict[int, Counter[str]]) -> tuple[Region, ...]:
    return tuple(
        replace(region, label=votes[n].most_common(1)[0][0]) if n in votes else region
        for n, region in enumerate(regions)
    )
