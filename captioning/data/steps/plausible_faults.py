"""Inject wrong words that a language model alone cannot distinguish from right ones.

A wrong word is drawn, for its place, from the predictions of networks that read the caption alone
and never saw it (`captioning.text.cross_fitted_words`). Candidates are taken so that their captions
look as likely as sound captions: the largest log-odds of another word against a written one, the
sign by which language would find them, is spread alike in both. So a text-only score is at chance
by construction; how near to it is measured, not assumed.

Words are those of the closed rows; the kinds ``open_noun``, ``open_verb`` and ``open_adjective``
are of rows made from the captions (`captioning.text.open_words`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from captioning.data.roster import PlantedWord, Roster
from captioning.text.cross_fitted_words import CrossFittedWords, deal_folds
from captioning.text.judged_words import JudgedWords, kept_judgement, log_odds
from captioning.text.masked_words import WordTraining
from captioning.text.open_words import OPEN_TOPICS, with_open_rows
from captioning.text.row_tables import WORD, RowTable
from captioning.text.word_groups import Vocabulary
from captioning.text.word_rows import (
    TOPICS,
    closed_rows,
    replace_word,
    same_thing,
    word_at,
    word_rows,
)

_PHRASE = "phrase"
_TOPIC_OF = {f"plausible_{topic}": topic for topic in TOPICS}
_OPEN_TOPIC_OF = {f"open_{topic}": topic for topic in OPEN_TOPICS}
PLAUSIBLE_KINDS = (*_TOPIC_OF, _PHRASE, *_OPEN_TOPIC_OF)
_ALL_TOPICS = (*TOPICS, _PHRASE, *OPEN_TOPICS)  # each draws by numbers of its own
_NUM_FOLDS = 2
_NUM_NETWORKS = 3  # one draws, and the mean of the others says how likely a word is
_TRAINING = WordTraining(num_epochs=4)
_TAIL = re.compile(r" (?:with|near|beside|behind|next to|in front of|while|under|by) .+$")
_PHRASE_WORDS = (3, 9)


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A caption that can receive a fault.

    Attributes:
        row: the roster's row.
        caption: caption with the fault.
        planted: the fault.
        suspicion: largest log-odds of another word of the topic in the faulty caption, by language.
    """

    row: int
    caption: str
    planted: PlantedWord
    suspicion: float


def plausible_faults(
    roster: Roster, counts: Mapping[str, int], seed: int, cache_folder: Path | None = None
) -> dict[str, list[Candidate]]:
    """Create the requested number of faults of each `PLAUSIBLE_KINDS`, at most one per caption.

    Args:
        roster: sound samples.
        counts: number of faults by kind.
        seed: seed of everything drawn.
        cache_folder: caches the language networks' scores; None: it is not kept.

    Raises:
        ValueError: fewer captions can bear one.
    """
    kinds = {kind: number for kind, number in counts.items() if number}
    pools = _pools(roster, kinds, seed, cache_folder)
    taken: set[int] = set()
    chosen = {}
    for kind in sorted(kinds, key=lambda kind: (len(pools[kind][0]), kind)):
        candidates, sound = pools[kind]
        pool = {row: one for row, one in candidates.items() if row not in taken}
        if len(pool) < kinds[kind]:
            raise ValueError(
                f"{roster.name}: {kinds[kind]} faults of kind {kind!r} are wanted, but "
                f"{len(candidates)} captions can bear one ({len(pool)} beside the other kinds); "
                "lower steps.plant_faults.kinds"
            )
        chosen[kind] = match_sound(pool, sound, kinds[kind], seed)
        taken |= {one.row for one in chosen[kind]}
    return chosen


def _pools(
    roster: Roster, kinds: Collection[str], seed: int, cache_folder: Path | None
) -> dict[str, tuple[dict[int, Candidate], np.ndarray]]:
    """Return the candidates by kind, and the suspicion scores of clean captions to match."""
    pools: dict[str, tuple[dict[int, Candidate], np.ndarray]] = {}
    for topic_of in (_TOPIC_OF, _OPEN_TOPIC_OF):
        topics = {kind: topic for kind, topic in topic_of.items() if kind in kinds}
        if topics:
            table = open_table(roster, seed=seed) if topic_of is _OPEN_TOPIC_OF else None
            words = PlausibleWords(roster, seed=seed, cache_folder=cache_folder, table=table)
            pools |= {
                kind: (words.candidates(topic), words.sound(topic))
                for kind, topic in topics.items()
            }
    if _PHRASE in kinds:
        pools[_PHRASE] = (phrases(roster, seed), np.zeros(1))
    return pools


def open_table(roster: Roster, *, seed: int) -> RowTable:
    """Return the closed rows, and rows of the captions' other words."""
    numbers = {image_id: number for number, image_id in enumerate(roster.rows_by_image)}
    captions = [sample.caption for sample in roster.samples]
    photos = [numbers[sample.image_id] for sample in roster.samples]
    return with_open_rows(captions, photos, seed=seed)


def changed_word(before: str, after: str) -> PlantedWord:
    """Return the replaced word; a preceding article may have changed, too.

    Raises:
        ValueError: the captions have the same words.
    """
    pairs = list(zip(WORD.finditer(before), WORD.finditer(after), strict=True))
    for old, new in reversed(pairs):
        if old[0] != new[0]:
            return PlantedWord(start=new.start(), wrong=new[0], right=old[0])
    raise ValueError(f"no word differs: {before!r}")


class PlausibleWords:
    """Candidates for wrong words, chosen by language models alone.

    Args:
        roster: sound samples; networks are trained on its captions, which takes a minute for
            30,000.
        seed: seed of everything drawn.
        cache_folder: caches the networks' scores; None: it is not kept.
        table: rows of the words; None for the closed ones.

    Raises:
        ValueError: fewer images than folds.
    """

    def __init__(
        self,
        roster: Roster,
        *,
        seed: int,
        cache_folder: Path | None = None,
        table: RowTable | None = None,
    ) -> None:
        self._roster, self._seed = roster, seed
        self._rows = (table or closed_rows()).rows
        self._drawing, *others = judge_by_language(
            roster, seed=seed, cache_folder=cache_folder, table=table
        )
        # matched by other networks than those that draw, whose errors would make a word look likely
        self._judged = _mean(others)
        self._odds, _ = log_odds(self._judged.log_probs, self._judged.meanings)
        self._topics = np.array([row.topic for row in self._rows])[self._judged.rows]
        self._excluded = photo_words(roster, None if table is None else table.same)

    def candidates(self, topic: str) -> dict[int, Candidate]:
        """Return at most one candidate per roster row, with a word sampled from the networks."""
        generator = np.random.default_rng([self._seed, _ALL_TOPICS.index(topic)])
        own = np.flatnonzero(self._topics == topic)
        by_caption: dict[int, list[int]] = {}
        for number in own.tolist():
            by_caption.setdefault(int(self._judged.captions[number]), []).append(number)
        found = {}
        for caption, numbers in by_caption.items():
            draws = generator.random(2)  # drawn in any case: a caption's luck shifts no other's
            number = numbers[int(draws[0] * len(numbers))]
            meaning = self._drawn(number, draws[1])
            if meaning is not None:
                found[caption] = self._candidate(caption, number, meaning, numbers)
        return found

    def sound(self, topic: str) -> np.ndarray:
        """Return the suspicion scores of clean captions with a word of the topic."""
        own = self._topics == topic
        highest = np.full(len(self._roster), -np.inf)
        np.maximum.at(highest, self._judged.captions[own], self._odds[own])
        return highest[np.isfinite(highest)]

    def _drawn(self, number: int, draw: float) -> int | None:
        """Sample a meaning that no caption of the photo names; None if there is none."""
        judged = self._judged
        sample = self._roster.samples[judged.captions[number]]
        excluded = self._excluded[sample.image_id]
        meanings = self._rows[judged.rows[number]].meanings
        free = np.array([words[0] not in excluded for words in meanings])
        free[judged.meanings[number]] = False
        if not free.any():
            return None
        log_probs = self._drawing.log_probs[number, : len(meanings)]
        chances = np.exp(log_probs.astype(np.float64)) * free
        total = np.cumsum(chances)
        return min(int(np.searchsorted(total, draw * total[-1], side="right")), len(meanings) - 1)

    def _candidate(
        self, caption: int, number: int, meaning: int, numbers: Sequence[int]
    ) -> Candidate:
        judged = self._judged
        text = self._roster.samples[caption].caption
        start = int(judged.starts[number])
        right = word_at(text, start)
        alternative = self._rows[judged.rows[number]].meanings[meaning][0]
        faulty = replace_word(text, start, right, alternative)
        odds, _ = log_odds(judged.log_probs[[number]], np.array([meaning]))
        rest = [float(self._odds[other]) for other in numbers if other != number]
        return Candidate(
            row=caption,
            caption=faulty,
            planted=changed_word(text, faulty),
            suspicion=max([float(odds[0]), *rest]),
        )


def judge_by_language(
    roster: Roster, *, seed: int, cache_folder: Path | None = None, table: RowTable | None = None
) -> list[JudgedWords]:
    """Judge all row words from the captions' other words, with each of several networks.

    For arguments see `PlausibleWords`.
    """
    folder = None if cache_folder is None else cache_folder / "judged_words"
    settings = {
        "roster": roster.fingerprint,
        "folds": _NUM_FOLDS,
        "training": asdict(_TRAINING),
    }
    return [
        kept_judgement(
            folder,
            {**settings, "seed": own},
            partial(_judge_by_language, roster, seed=own, table=table),
            table=table,
        )
        for own in range(seed, seed + _NUM_NETWORKS)
    ]


def _judge_by_language(roster: Roster, *, seed: int, table: RowTable | None) -> JudgedWords:
    samples = roster.samples
    images = {image_id: number for number, image_id in enumerate(roster.rows_by_image)}
    folds = deal_folds(list(images), _NUM_FOLDS, seed)
    data = {
        "captions": [sample.caption for sample in samples],
        "photos": [images[sample.image_id] for sample in samples],
        "folds": [folds[image_id] for image_id in images],
    }
    own = {"network": {"siblings": False}, "training": _TRAINING, "seed": seed}
    vocabulary = Vocabulary(data["captions"], table=table)
    networks = CrossFittedWords(**data, **own, vocabulary=vocabulary)
    return networks.judge(**data)


def _mean(judged: Sequence[JudgedWords]) -> JudgedWords:
    """Return the mean probabilities of several networks."""
    log_probs = np.logaddexp.reduce([one.log_probs for one in judged]) - np.log(len(judged))
    return replace(judged[0], log_probs=log_probs)


def photo_words(
    roster: Roster, same: Mapping[str, frozenset[str]] | None = None
) -> dict[str, frozenset[str]]:
    """Return the words of each photo's captions with all their synonyms.

    Args:
        roster: roster of the photos.
        same: all words of a word's meaning, by word; None: as in the word rows.
    """
    same = same_thing() if same is None else same
    words: dict[str, frozenset[str]] = {}
    for image_id, captions in roster.references().items():
        own = frozenset(word.lower() for caption in captions for word in WORD.findall(caption))
        words[image_id] = own.union(*(same[word] for word in own if word in same))
    return words


def match_sound(
    candidates: Mapping[int, Candidate], sound: np.ndarray, number: int, seed: int
) -> list[Candidate]:
    """Select ``number`` candidates whose suspicion scores are distributed as in clean captions.

    Each of as many quantiles of the sound captions takes the nearest candidate that is left, the
    lowest first, as captions that language finds likely are the rarest among the candidates.
    """
    order = np.random.default_rng(seed).permutation(list(candidates))
    ranked = sorted((candidates[row] for row in order.tolist()), key=lambda one: one.suspicion)
    values = np.array([candidate.suspicion for candidate in ranked])
    targets = np.quantile(sound, (np.arange(number) + 0.5) / number)
    chosen: list[int] = []
    low = 0  # candidates below are taken or passed over
    for place, target in enumerate(targets.tolist()):
        nearest = int(np.searchsorted(values, target))
        if 0 < nearest < len(values) and target - values[nearest - 1] < values[nearest] - target:
            nearest -= 1
        # room must be left for the targets to come
        nearest = min(max(nearest, low), len(values) - (number - place))
        chosen.append(nearest)
        low = nearest + 1
    return sorted((ranked[place] for place in chosen), key=lambda one: one.row)


def phrases(roster: Roster, seed: int) -> dict[int, Candidate]:
    """Append a phrase of another photo's caption to captions, by row.

    The phrase names an object, and none that a caption of the photo names.
    """
    generator = np.random.default_rng([seed, len(TOPICS)])
    tails = [(s.image_id, m[0]) for s in roster.samples if (m := _TAIL.search(_body(s.caption)))]
    tails = [
        (i, tail) for i, tail in tails if _PHRASE_WORDS[0] <= len(tail.split()) <= _PHRASE_WORDS[1]
    ]
    if not tails:
        return {}
    words = photo_words(roster)
    things = {w for row in word_rows() if row.topic == "object" for m in row.meanings for w in m}
    found = {}
    for sample in roster.samples:
        image_id, tail = tails[int(generator.random() * len(tails))]
        named = {word.lower() for word in WORD.findall(tail)} & things
        body = _body(sample.caption)
        if image_id == sample.image_id or not named or named & words[sample.image_id] or not body:
            continue
        planted = PlantedWord(start=len(body) + 1, wrong=tail[1:], right="")
        caption = body + tail + sample.caption[len(body) :]
        found[sample.row] = Candidate(
            row=sample.row, caption=caption, planted=planted, suspicion=0.0
        )
    return found


def _body(caption: str) -> str:
    return caption.rstrip(" .")
