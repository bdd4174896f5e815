"""Check the sentences of long captions: find sentences that do not fit the photo.

Sentences are judged as separate captions, see `curation.check.fit_checks.caption_fit`: by their
similarity to the photo, and to its other sentences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from captioning.data.roster import build_roster
from captioning.interfaces import TextEmbedder
from captioning.text.sentence_spans import sentence_spans
from captioning.types import Sample
from curation.base import SentenceDoubt, by_row
from curation.check.evidence import Evidence, Floats, Scores, by_content, shortened
from curation.check.fit_checks import caption_fit

NAME = "wrong_sentence"
THRESHOLD = 0.5
Place = tuple[Sample, int, int]
"""A caption's sample, and the start and stop of one of its sentences."""


@by_content
def wrong_sentences(evidence: Evidence) -> Scores:
    """Estimate the probability, in [0, 1], that a caption's worst sentence does not fit the photo.

    NaN for captions of a single sentence, which the check of whole captions judges, and for
    captions whose sentences cannot be judged.

    Args:
        evidence: the captions, with an encoder of further texts.
    """
    samples = evidence.roster.samples
    places = [
        (sample, start, stop)
        for sample in samples
        if len(spans := sentence_spans(sample.caption)) > 1
        for start, stop in spans
    ]
    values = np.full(len(samples), np.nan, dtype=np.float32)
    if not places:
        return Scores(values=values)
    if evidence.encoder is None or evidence.photo_vectors is None:
        return Scores(values=values, note="sentences were not judged: no space embeds them")
    found = caption_fit(_of_sentences(evidence, places, evidence.photo_vectors, evidence.encoder))
    doubts = by_row(
        SentenceDoubt(row=s.row, start=start, sentence=s.caption[start:stop], suspicion=chance)
        for (s, start, stop), chance in zip(places, found.values.tolist(), strict=True)
        if not np.isnan(chance)
    )
    sentences = {
        row: tuple(sorted(own, key=lambda doubt: (-doubt.suspicion, doubt.start)))
        for row, own in doubts.items()
    }
    for row, (worst, *_) in sentences.items():
        values[row] = worst.suspicion
    reasons = {
        row: f"the sentence {shortened([worst.sentence])} fits the photo less than the others"
        for row, (worst, *_) in sentences.items()
    }
    note = f"of {len(places):,} sentences: {found.note}" if found.note else ""
    return Scores(values=values, reasons=reasons, note=note, sentences=sentences)


def _of_sentences(
    evidence: Evidence, places: Sequence[Place], photos: Floats, encoder: TextEmbedder
) -> Evidence:
    """Build evidence with the same photos, and one caption for each sentence."""
    parts = [
        replace(s, sample_id=f"{s.sample_id}:{start}", caption=s.caption[start:stop], phrases=())
        for s, start, stop in places
    ]
    texts = list(dict.fromkeys(part.caption for part in parts))
    vectors = dict(zip(texts, encoder.embed_texts(texts).float().numpy(), strict=True))
    kept = list(dict.fromkeys(part.image_path for part in parts))
    numbers = {path: place for place, path in enumerate(evidence.photos)}
    return replace(
        evidence,
        roster=build_roster(evidence.roster.name, parts),
        photos={path: evidence.photos[path] for path in kept},
        photo_vectors=photos[[numbers[path] for path in kept]],
        caption_vectors=np.stack([vectors[part.caption] for part in parts]),
        sentence_vectors=None,
    )
