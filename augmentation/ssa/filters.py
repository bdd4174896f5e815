"""Filters of new captions (CIC-BART-SSA, section 4, step 3; thresholds of appendix C.2)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from augmentation.regions.proposal import draw_key
from augmentation.ssa.graph import Graph
from augmentation.ssa.lexicon import BODY_PARTS
from augmentation.ssa.merging import Similarity
from augmentation.ssa.word_usage import Frames
from augmentation.ssa.written_captions import Caption
from captioning.config.ranges import Cosine, Fraction, NonNegativeInt
from captioning.data.roster import Roster
from captioning.interfaces import AbstractLanguageModel
from captioning.metrics.well_formedness import (
    BALANCE,
    AbstractWellFormedness,
    WellFormedness,
    calibrate,
)
from captioning.text.ngrams import NgramLanguageModel

FOLDS = 2
MAX_CALIBRATED = 3000  # captions to which a scale is fitted
# Words that need other sentences to be understood, or that refer to the picture.
_BANNED = """
    one ones other others another each itself who which what something someone somebody anything
    thing things image photo picture photograph shot
"""
BANNED = frozenset(_BANNED.split())
MIN_SIMILARITY_OF = {"couch": 0.8, "table": 0.8}
UNGROUNDED, UNUSUAL, UNSEEN = "not fully grounded", "unusual arguments", "noun not seen with it"
BANNED_WORD, COMMON_PART, DUPLICATE = "banned word", "a part that everybody has", "duplicate"
ILL_FORMED, SHORT, NOT_REALISED = "not well-formed", "too short", "cannot be said"


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Rules that a caption must satisfy.

    Attributes:
        min_well_formedness: score, in [0, 1]; the paper's .7 is of GRUEN (``gruen`` of the
            method), our own scale is explained in docs/cards/ssa.md.
        min_words: minimum words of a caption.
        banned: words that no caption may contain.
        grounded: every noun must have a box; else one of them (in the authors' code every noun of
            COCO Entities, none of Flickr30k Entities).
        ungrounded: kinds of phrases whose nouns need no box, such as ``("notvisual",)``.
        min_noun_similarity: a written sentence may have a new noun if its similarity to a noun of
            the photo's captions is higher (the authors' .5).
        min_noun_similarity_of: the same for single nouns (the authors' .8 for "couch" and "table").
        usual_only: verbs must have arguments that captions often give them, and a part that
            everybody has must be described. Neither the paper nor its code asks for this.
    """

    min_well_formedness: Fraction = BALANCE
    min_words: NonNegativeInt = 3
    banned: Collection[str] = BANNED
    grounded: bool = True
    ungrounded: Collection[str] = ()
    min_noun_similarity: Cosine = 0.5
    min_noun_similarity_of: Mapping[str, float] = field(
        default_factory=lambda: dict(MIN_SIMILARITY_OF)
    )
    usual_only: bool = True

    def problem(
        self, graph: Graph, caption: Caption, frames: Frames, *, known_nouns: Collection[str],
        similarity: Similarity,
    ) -> str:  # fmt: skip
        """Reason to reject a caption, by its graph and words; empty if accepted.

        Args:
            graph: the caption's graph.
            caption: the caption.
            frames: usual arguments of verbs.
            known_nouns: lemmas of the nouns of the photo's own captions.
            similarity: similarity of two words.
        """
        words = re.findall(r"[a-z']+", caption.text.lower())
        if len(words) < self.min_words:
            return SHORT
        if set(words) & set(self.banned):
            return BANNED_WORD
        if not all(self._is_known(noun, known_nouns, similarity) for noun in caption.nouns):
            return UNSEEN
        noun_nodes = [node for node in graph.nodes.values() if node.names[0].noun]
        needed = all if self.grounded else any
        grounded = needed(self._is_grounded(node.regions, node.kinds) for node in noun_nodes)
        if caption.unmatched_nouns or not noun_nodes or not grounded:
            return UNGROUNDED
        return _unusual(graph, frames) if self.usual_only else ""

    def _is_known(self, noun: str, known_nouns: Collection[str], similarity: Similarity) -> bool:
        """Return whether the photo's captions contain the noun or a similar noun."""
        min_similarity = self.min_noun_similarity_of.get(noun, self.min_noun_similarity)
        return noun in known_nouns or any(
            similarity(noun, other) > min_similarity for other in known_nouns
        )

    def _is_grounded(self, regions: Collection[int], kinds: Collection[str]) -> bool:
        return bool(regions) or bool(kinds and set(kinds) <= set(self.ungrounded))


def _unusual(graph: Graph, frames: Frames) -> str:
    """Reason why nobody would write a graph's content; empty if it is plausible."""
    if _is_common_part(graph):
        return COMMON_PART
    predicates = [v for v, node in graph.nodes.items() if node.is_predicate]
    return "" if all(frames.usual(graph, v) for v in predicates) else UNUSUAL


def _is_common_part(graph: Graph) -> bool:
    """Return whether a part is too common to mention, as in "a girl has an arm"."""
    if graph.nodes[graph.root].concept != "have-03":
        return False
    parts = graph.children(graph.root, "ARG1")
    return any(graph.nodes[v].concept in BODY_PARTS and not graph.children(v, "mod") for v in parts)


class CrossFittedScores:
    """Well-formedness of captions by language models that were not trained on their photo.

    Photos are split into two folds. A trigram model learns the captions of one fold; its scale is
    fitted to separate captions of the other fold from broken ones; it scores new captions of that
    other fold. A pretrained language model has not read them: it scores all, on one scale.

    Args:
        roster: captions by people.
        language_model: None for trigrams of the roster's captions.
        seed: seed of the folds and of the broken captions.
    """

    def __init__(
        self, roster: Roster, *, language_model: AbstractLanguageModel | None = None, seed: int = 0
    ) -> None:
        self.seed = seed
        rng = np.random.default_rng(seed)
        if language_model is not None:
            all_captions = [sample.caption for sample in roster.samples]
            scores = _fit(language_model, all_captions[:MAX_CALIBRATED], rng)
            self._scores = dict.fromkeys(range(FOLDS), scores)
            return
        texts: dict[int, list[str]] = defaultdict(list)
        for sample in roster.samples:
            texts[self.fold(sample.image_id)].append(sample.caption)
        all_captions = [text for fold in sorted(texts) for text in texts[fold]]
        self._scores = {}
        for fold in range(FOLDS):
            other_captions = [text for other in texts if other != fold for text in texts[other]]
            fold_captions = (texts.get(fold) or all_captions)[:MAX_CALIBRATED]
            self._scores[fold] = _fit(
                NgramLanguageModel(other_captions or all_captions), fold_captions, rng
            )

    def fold(self, image_id: str) -> int:
        """Return the cross-validation fold of a photo."""
        return int(draw_key(self.seed, "fold", image_id), 16) % FOLDS

    def score(self, image_ids: Sequence[str], captions: Sequence[str]) -> list[float]:
        """Scores in [0, 1] of new captions; ``image_ids`` names the photo of each."""
        scorers = {image_id: self._scores[self.fold(image_id)] for image_id in set(image_ids)}
        values = [0.0] * len(captions)
        # folds that have the same scorer are scored together
        for scorer in dict.fromkeys(self._scores.values()):
            places = [n for n, image_id in enumerate(image_ids) if scorers[image_id] is scorer]
            scores = scorer.score([captions[n] for n in places]) if places else []
            for place, score in zip(places, scores, strict=True):
                values[place] = score.total
        return values


class GivenScores:
    """Well-formedness by a fixed score that needs no training.

    Args:
        scorer: scorer of captions.
    """

    def __init__(self, scorer: AbstractWellFormedness) -> None:
        self._scorer = scorer

    def score(self, image_ids: Sequence[str], captions: Sequence[str]) -> list[float]:
        """Scores in [0, 1] of new captions."""
        del image_ids
        return [score.total for score in self._scorer.score(captions)]


def _fit(
    model: AbstractLanguageModel, captions: Sequence[str], rng: np.random.Generator
) -> WellFormedness:
    """Map scores to a scale that separates captions from corrupted captions."""
    broken_captions = [break_caption(text, rng) for text in captions]
    scale = calibrate(model, well_formed=captions, broken=broken_captions)
    return WellFormedness(language_model=model, calibration=scale)


def break_caption(caption: str, rng: np.random.Generator) -> str:
    """Corrupt a caption: leave a word out, move it, or repeat it."""
    words = caption.rstrip(" .").split()
    if len(words) < 2:
        return f"{caption} {caption}"
    for _ in range(1 + len(words) // 8):
        i, j = rng.integers(len(words), size=2)
        kind = rng.integers(3)
        word = words[i] if kind == 2 else words.pop(i)
        if kind:
            words.insert(j, word)
    return " ".join(words)
