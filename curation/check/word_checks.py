"""Check single words of captions: find the wrong word and propose a correction.

Nothing is known of the set but the set itself, so small networks are trained on its own captions
and judge photos that they did not see, see `curation.score.words.Words`. Doubted words are examined
again in the space of photos and texts, see `curation.score.words`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from captioning.data.roster import CurationView
from captioning.interfaces import TextEmbedder
from captioning.text.expected_words import PhotoFeatures
from captioning.text.word_rows import row_words, word_rows
from curation.base import AbstractWordScore, Context, WordDoubt
from curation.check.evidence import Evidence, Floats, Scores, by_content
from curation.check.support import NOTHING, Support, support_of
from curation.score.words import SecondLook, Words

NAME = "wrong_word"
# Relations and actions are left out: "over" and "on", "plays" and "runs" may both be true of a
# photo, and of those that were most in doubt in Flickr8k hardly one was wrong
# (docs/results/wrong_words.md).
TOPICS = ("color", "number", "object", "people")
MIN_WORDS = 2000  # of these topics; networks that learn from fewer know too little
MIN_WORDS_ALONE = 10_000  # the same of photos with one caption, where no other caption helps
# Seeds: of deals and networks, whose probabilities are averaged. Where other captions help, two
# deals into halves, learnt for three epochs, find as much as three into thirds for four, at a
# third of the cost (docs/results/wrong_words.md).
NUM_SEEDS, NUM_FOLDS, NUM_EPOCHS = 2, 2, 3
NUM_SEEDS_ALONE, NUM_FOLDS_ALONE, NUM_EPOCHS_ALONE = 3, 3, 4
NUM_SOUND = 100  # words of a topic that show what the space gains by changing right ones
THRESHOLD = 0.7
LOOK_AGAIN_FROM = 0.1  # below it few words are wrong, and most of the time would go there
_LEAST_ODDS = -6.0  # log-odds below which nobody asks what other captions say
_MOST_LOGIT = 4.0  # of the networks' probability: no estimate from a few captions is surer
# The logit of the chance is a * logit of the networks' probability + b, by how many other captions
# say the other word of the same thing and none this one: none, one, two, three or more. Fitted to
# planted words and to judged ones of Flickr8k as it is, see docs/results/wrong_words.md.
_CHANCES = ((0.6, -1.1), (0.5, 0.0), (0.09, 0.85), (0.1, 1.9))
_SPREAD = 3.0  # of the photos' first principal component: networks train well on such inputs


@by_content
def wrong_words(evidence: Evidence, topics: Sequence[str] = TOPICS) -> Scores:
    """Estimate the probability, in (0, 1), that the most doubtful word of a caption is wrong.

    Based on the caption's other words, the photo's other captions and its vector, if available. NaN
    for captions without a word that could be judged. Networks say how likely another word is that
    excludes this one, see `captioning.text.word_rivals`; the photo's other captions turn it into a
    probability, see `chance_of`.

    Args:
        evidence: the captions.
        topics: topics of the judged words, see `captioning.text.word_rows.TOPICS`.
    """
    values = np.full(len(evidence.roster), np.nan, dtype=np.float32)
    topic_of = [row.topic for row in word_rows()]
    known = sum(topic_of[w.row] in topics for text in evidence.captions for w in row_words(text))
    if known < MIN_WORDS:
        return Scores(
            values=values,
            note=f"words were not judged: captions hold {known:,} words for colours, numbers, "
            f"objects or people in English, and networks need {MIN_WORDS:,} to learn from",
        )
    is_judged = np.full(len(values), known >= MIN_WORDS_ALONE)
    is_judged[[row for rows in evidence.groups if len(rows) > 1 for row in rows]] = True
    left_out = "" if is_judged.all() else _too_few_alone(known)
    if not is_judged.any():
        return Scores(values=values, note=left_out)
    view = CurationView(roster=evidence.roster)
    found = _score(evidence, topics).doubts(Context.before_training(view, seed=evidence.seed))
    found = [_estimated(doubt, evidence) for doubt in found if is_judged[doubt.row]]
    doubts = by_row(found)
    for row, (surest, *_) in doubts.items():
        values[row] = surest.probability
    mean = float(np.mean([doubt.probability for doubt in found])) if found else 0.0
    note = f"of {len(found):,} words about {mean:.1%} are estimated to be wrong"
    return Scores(
        values=values,
        reasons={row: _reason(surest) for row, (surest, *_) in doubts.items()},
        note="; ".join(filter(None, (note, left_out))),
        words=doubts,
    )


def _score(evidence: Evidence, topics: Sequence[str]) -> AbstractWordScore:
    """Score words with networks trained on the captions, then re-examine doubtful words."""
    several = any(len(rows) > 1 for rows in evidence.groups)
    folder = evidence.cache_folder
    score = Words(
        siblings=several,
        photos=_features(evidence),
        topics=topics,
        rivals="exclusive",
        num_folds=NUM_FOLDS if several else NUM_FOLDS_ALONE,
        num_seeds=NUM_SEEDS if several else NUM_SEEDS_ALONE,
        training={"num_epochs": NUM_EPOCHS if several else NUM_EPOCHS_ALONE},
        cache_folder=None if folder is None else folder / "words",
        seed=evidence.seed,
        progress=evidence.progress,
    )
    if evidence.encoder is None or evidence.photo_vectors is None:
        return score
    likeness = {evidence.space: _Likeness(evidence, evidence.photo_vectors, evidence.encoder)}
    return SecondLook(
        words=score,
        pairs=likeness,
        least=LOOK_AGAIN_FROM,
        num_sound=NUM_SOUND,
        seed=evidence.seed,
    )


def _too_few_alone(known: int) -> str:
    return (
        f"words of photos with one caption were not judged: captions hold {known:,} words for "
        f"colours, numbers, objects or people, and without other captions of a photo networks "
        f"need {MIN_WORDS_ALONE:,} to learn from"
    )


def _estimated(doubt: WordDoubt, evidence: Evidence) -> WordDoubt:
    """Replace the networks' probability of a doubt by the estimated probability of being wrong."""
    samples, rows = evidence.roster.samples, evidence.roster.rows_by_image
    own = samples[doubt.row]
    support = NOTHING
    if doubt.log_odds >= _LEAST_ODDS:
        others = [samples[row].caption for row in rows[own.image_id] if row != doubt.row]
        support = support_of(doubt, own.caption, others)
    return replace(doubt, probability=chance_of(doubt.probability, support))


def chance_of(probability: float, support: Support) -> float:
    """Probability, in (0, 1), that a word is wrong, from the networks and other captions.

    Args:
        probability: mean probability of the networks, in [0, 1].
        support: the support in other captions.
    """
    agree = 0 if support.against else min(support.agree, len(_CHANCES) - 1)
    slope, offset = _CHANCES[agree]
    inner = min(max(probability, 1e-9), 1 - 1e-9)
    logit = min(float(np.log(inner / (1 - inner))), _MOST_LOGIT)
    return float(1 / (1 + np.exp(-(slope * logit + offset))))


class _Likeness:
    """Cosine similarities of photos and texts; 0 for photos that cannot be opened.

    Args:
        evidence: the captions, with their vectors if they have some.
        vectors: ``(P, D)`` of its photos.
        encoder: encoder of further texts.
    """

    is_probability = False

    def __init__(self, evidence: Evidence, vectors: Floats, encoder: TextEmbedder) -> None:
        self._evidence, self._photo_vectors, self._encoder = evidence, vectors, encoder
        self.name = f"likeness ({evidence.space})"

    def scores(self, pairs: Sequence[tuple[Path, str]]) -> Tensor:
        """Similarity scores ``(N,)``; higher is a better fit."""
        evidence, captions = self._evidence, self._evidence.caption_vectors
        known = {} if captions is None else dict(zip(evidence.captions, captions, strict=True))
        new = list({text: None for _, text in pairs if text not in known})
        if new:  # encoders refuse to embed nothing
            known |= zip(new, self._encoder.embed_texts(new).float().numpy(), strict=True)
        photos = dict(zip(evidence.photos, self._photo_vectors, strict=True))
        cosines = [float(photos[path] @ known[text]) for path, text in pairs]
        return torch.tensor(cosines).nan_to_num(0)

    def release(self) -> None:
        """Free the encoder's GPU memory, if the encoder supports it."""
        getattr(self._encoder, "release", lambda: None)()


def by_row(doubts: Sequence[WordDoubt]) -> dict[int, tuple[WordDoubt, ...]]:
    """Doubtful words of each row, most likely wrong word first."""
    rows: dict[int, list[WordDoubt]] = {}
    for doubt in sorted(doubts, key=lambda doubt: (-doubt.probability, -doubt.log_odds)):
        rows.setdefault(doubt.row, []).append(doubt)
    return {row: tuple(own) for row, own in sorted(rows.items())}


def _reason(doubt: WordDoubt) -> str:
    return f"{doubt.word!r} should perhaps be {doubt.alternative!r}"


def _features(evidence: Evidence) -> Callable[[Sequence[Path]], PhotoFeatures] | None:
    """Photo vectors as features with one cell; zeros for photos that cannot be opened."""
    if evidence.photo_vectors is None:
        return None
    vectors = torch.from_numpy(_scaled(evidence.photo_vectors))
    places = {path: place for place, path in enumerate(evidence.photos)}

    def read(paths: Sequence[Path]) -> PhotoFeatures:
        own = vectors[[places[path] for path in paths]]
        return PhotoFeatures(cells=own[:, None], means=own)

    return read


def _scaled(vectors: Floats) -> Floats:
    good = np.all(np.isfinite(vectors), axis=1)
    centred = np.where(good[:, None], vectors - vectors[good].mean(0), 0).astype(np.float32)
    largest = np.linalg.eigvalsh(np.cov(centred[good].T))[-1] if good.sum() > 1 else 0.0
    return (centred * (_SPREAD / np.sqrt(max(largest, 1e-12)))).astype(np.float32)
