"""Which new captions are kept (CIC-BART-SSA, section 4, step 3; thresholds of appendix C.2)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from augmentation.captions.ssa.frames import Frames
from augmentation.captions.ssa.graph import Graph
from augmentation.captions.ssa.lexicon import BODY_PARTS
from augmentation.captions.ssa.merging import Similarity
from augmentation.captions.ssa.sentences import Caption
from augmentation.regions.proposal import draw_key
from captioning.data.roster import Roster
from captioning.interfaces import AbstractLanguageModel
from captioning.metrics.well_formedness import BALANCE, WellFormedness, calibrate
from captioning.ranges import Cosine, Fraction, NonNegativeInt
from captioning.text.ngrams import NgramLanguageModel

FOLDS = 2
MOST_CALIBRATED = 3000  # captions that a scale is fitted to
# Words that only mean something beside other sentences, or speak of the picture.
_BANNED = """
    one ones other others another each itself who which what something someone somebody anything
    thing things image photo picture photograph shot
"""
BANNED = frozenset(_BANNED.split())
LEAST_LIKE_OF = {"couch": 0.8, "table": 0.8}
UNGROUNDED, UNUSUAL, UNSEEN = "not fully grounded", "unusual arguments", "noun not seen with it"
BANNED_WORD, OWN_PART, DUPLICATE = "banned word", "a part that everybody has", "duplicate"
ILL_FORMED, SHORT, NOT_SAID = "not well-formed", "too short", "cannot be said"


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What a caption must be like.

    Attributes:
        least_well_formed: score, in [0, 1]; the paper's .7 is of GRUEN, this scale is explained
            in docs/ssa.md.
        least_words: of a caption.
        banned: words that no caption may hold.
        ungrounded: kinds of phrases whose nouns need no box, such as ``("notvisual",)``.
        least_like: similarity to a noun of the photo's captions above which a written sentence may
            have a noun that they do not have (the authors' .5).
        least_like_of: the same for single nouns (theirs: .8 for "couch" and "table").
    """

    least_well_formed: Fraction = BALANCE
    least_words: NonNegativeInt = 3
    banned: Collection[str] = BANNED
    ungrounded: Collection[str] = ()
    least_like: Cosine = 0.5
    least_like_of: Mapping[str, float] = field(default_factory=lambda: dict(LEAST_LIKE_OF))

    def problem(
        self, graph: Graph, caption: Caption, frames: Frames, *, seen: Collection[str],
        similarity: Similarity,
    ) -> str:  # fmt: skip
        """Why a caption is refused, by its graph and its words; empty if it is not.

        Args:
            graph: what it says.
            caption: the caption.
            frames: usual arguments of verbs.
            seen: lemmas of the nouns of the photo's own captions.
            similarity: of two words.
        """
        words = re.findall(r"[a-z']+", caption.text.lower())
        if len(words) < self.least_words:
            return SHORT
        if set(words) & set(self.banned):
            return BANNED_WORD
        if not all(self._is_known(noun, seen, similarity) for noun in caption.nouns):
            return UNSEEN
        things = [node for node in graph.nodes.values() if node.names[0].noun]
        grounded = all(self._is_grounded(node.regions, node.kinds) for node in things)
        if caption.besides or not things or not grounded:
            return UNGROUNDED
        if _is_own_part(graph):
            return OWN_PART
        predicates = [v for v, node in graph.nodes.items() if node.is_predicate]
        if not all(frames.usual(graph, v) for v in predicates):
            return UNUSUAL
        return ""

    def _is_known(self, noun: str, seen: Collection[str], similarity: Similarity) -> bool:
        """Whether the photo's captions have a noun, or one that is like it."""
        least = self.least_like_of.get(noun, self.least_like)
        return noun in seen or any(similarity(noun, other) > least for other in seen)

    def _is_grounded(self, regions: Collection[int], kinds: Collection[str]) -> bool:
        return bool(regions) or bool(kinds and set(kinds) <= set(self.ungrounded))


def _is_own_part(graph: Graph) -> bool:
    """ "a girl has an arm": true, and said by nobody."""
    if graph.nodes[graph.root].concept != "have-03":
        return False
    things = graph.children(graph.root, "ARG1")
    return any(
        graph.nodes[v].concept in BODY_PARTS and not graph.children(v, "mod") for v in things
    )


class CrossFittedScores:
    """Well-formedness of captions by language models that have not read their photo's captions.

    Photos are dealt into two folds; a model of trigrams learns the captions of one, its scale is
    fitted to tell those of the other from broken ones, and it judges new captions of the other. A
    given language model has read none of them: it judges all, by one scale.

    Args:
        roster: people's captions.
        language_model: None for trigrams of the roster's captions.
        seed: of the folds and of what is broken.
    """

    def __init__(
        self, roster: Roster, *, language_model: AbstractLanguageModel | None = None, seed: int = 0
    ) -> None:
        self.seed = seed
        rng = np.random.default_rng(seed)
        if language_model is not None:
            everything = [sample.caption for sample in roster.samples]
            scores = _fitted(language_model, everything[:MOST_CALIBRATED], rng)
            self._scores = dict.fromkeys(range(FOLDS), scores)
            return
        texts: dict[int, list[str]] = defaultdict(list)
        for sample in roster.samples:
            texts[self.fold(sample.image_id)].append(sample.caption)
        everything = [text for fold in sorted(texts) for text in texts[fold]]
        self._scores = {}
        for fold in range(FOLDS):
            others = [text for other in texts if other != fold for text in texts[other]]
            own = (texts.get(fold) or everything)[:MOST_CALIBRATED]
            self._scores[fold] = _fitted(NgramLanguageModel(others or everything), own, rng)

    def fold(self, image_id: str) -> int:
        """Which fold a photo is of."""
        return int(draw_key(self.seed, "fold", image_id), 16) % FOLDS

    def score(self, image_id: str, captions: Sequence[str]) -> list[float]:
        """Scores in [0, 1] of new captions of a photo."""
        return [score.total for score in self._scores[self.fold(image_id)].score(captions)]


def _fitted(
    model: AbstractLanguageModel, captions: Sequence[str], rng: np.random.Generator
) -> WellFormedness:
    """Scores on the scale that tells captions from broken ones."""
    wrong = [broken(text, rng) for text in captions]
    scale = calibrate(model, well_formed=captions, broken=wrong)
    return WellFormedness(language_model=model, calibration=scale)


def broken(caption: str, rng: np.random.Generator) -> str:
    """A caption with a mistake: a word is left out, moved or said twice."""
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
