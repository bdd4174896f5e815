"""Step that injects faults into a roster and records them, so that curation can be evaluated.

The kinds of fault:

- ``swap``: the caption of another photo (swapped samples trade captions among themselves, so that
  the set of captions does not change);
- ``overlong``: several clauses of made-up detail appended;
- ``color``, ``number``, ``object``, ``action``: one such word replaced by one that no caption of
  the photo has;
- ``plausible_color``, ``_number``, ``_object``, ``_action``, ``_relation``, ``_people``: the same,
  but the wrong word is one that language alone would expect there, see
  `captioning.data.steps.plausible_faults`;
- ``open_noun``, ``open_verb``, ``open_adjective``: the same with words outside the closed rows;
- ``negation``: a negation is missing or superfluous, see `negations`;
- ``phrase``: a phrase of another photo's caption appended, of things that no caption here names;
- ``image``: the photo of another image.

Phrases are kept for ``overlong`` only: other kinds make them wrong.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from captioning.config.ranges import Fraction, Seed
from captioning.data.roster import PlantedWord, Roster, build_roster, planted_origin
from captioning.data.steps.base import AbstractStep, StepContext
from captioning.data.steps.plausible_faults import (
    PLAUSIBLE_KINDS,
    changed_word,
    photo_words,
    plausible_faults,
)
from captioning.text.word_rows import WORD, begins_with_vowel, closed_rows, replace_word
from captioning.types import Sample

# Negations that are missing or too many: *with a helmet* of a man without one, *no hat* of a hat.
#
# Half of them are missing where a right one was, if captions have so many, as these are rare; the
# others stand where none belongs. A thing that another caption of the photo negates, or has, is
# left as it is.
_ARTICLE = r"(?:an?|any|the|his|her|their)"
_HAVING = r"(?P<having>wearing|wears|wear|with|has|have|having)"
# the word that is replaced, and what is had or not
_WITHOUT = re.compile(rf"\b(?P<word>without)(?: {_ARTICLE})? (?P<thing>[A-Za-z]+)", re.I)
_NO = re.compile(rf"\b(?:{_HAVING} )?(?P<word>no) (?P<thing>[A-Za-z]+)", re.I)
_WITH = re.compile(r"\b(?P<word>with) (?:an?|his|her|their) (?P<thing>[A-Za-z]+)", re.I)
_HAS = re.compile(rf"\b{_HAVING} (?P<word>an?) (?P<thing>[A-Za-z]+)", re.I)
_NEGATED = re.compile(r"\b(?:without|no|not|[a-z]+less)\b", re.I)


@dataclass(frozen=True, kw_only=True)
class _Change:
    """A caption with a negation added or removed."""

    caption: str
    planted: PlantedWord


def negations(
    roster: Roster, number: int, *, free: Sequence[bool], seed: int
) -> dict[int, tuple[str, PlantedWord]]:
    """Return faulty captions with their changes, by row.

    Args:
        roster: sound samples.
        number: number of the faults.
        free: whether a sample may bear one, by row.
        seed: seed of everything drawn.

    Raises:
        ValueError: fewer captions can bear one.
    """
    rng = np.random.default_rng(seed)
    captions = roster.references()
    missing: dict[int, list[_Change]] = {}
    added: dict[int, list[_Change]] = {}
    for sample in roster.samples:
        if free[sample.row]:
            others = [text for text in captions[sample.image_id] if text != sample.caption]
            if changes := _left_out(sample, others):
                missing[sample.row] = changes
            if changes := _put_in(sample, others):
                added[sample.row] = changes
    if number > len(missing.keys() | added.keys()):
        raise ValueError(
            f"{roster.name}: {number} faults of kind 'negation' are wanted, but "
            f"{len(missing.keys() | added.keys())} captions can bear one beside the other kinds; "
            "lower steps.plant_faults.kinds"
        )
    first = _drawn(missing, min(len(missing), max(number // 2, number - len(added))), rng)
    rest = {row: changes for row, changes in added.items() if row not in first}
    chosen = first | _drawn(rest, number - len(first), rng)
    return {row: (chosen[row].caption, chosen[row].planted) for row in sorted(chosen)}


def _drawn(
    pool: Mapping[int, Sequence[_Change]], number: int, rng: np.random.Generator
) -> dict[int, _Change]:
    rows = np.sort(rng.choice(list(pool), size=number, replace=False)).tolist() if number else []
    return {row: pool[row][int(rng.integers(len(pool[row])))] for row in rows}


def _left_out(sample: Sample, others: Sequence[str]) -> list[_Change]:
    """Return changes of a negation into its opposite, unless another caption says so."""
    changes = []
    for match in (*_WITHOUT.finditer(sample.caption), *_NO.finditer(sample.caption)):
        thing = re.compile(rf"\b{_HAVING}(?: \w+)? {match['thing']}", re.I)
        if any(thing.search(text) for text in others):
            continue
        if match["word"].lower() == "without":
            changes.append(_replaced(sample.caption, match, "with"))
        elif match["having"] and not match["thing"].endswith("s"):
            article = "an" if begins_with_vowel(match["thing"]) else "a"
            changes.append(_replaced(sample.caption, match, article))
        else:
            changes.append(_dropped(sample.caption, match))
    return changes


def _put_in(sample: Sample, others: Sequence[str]) -> list[_Change]:
    """Return changes of a thing that somebody has into a missing thing."""
    if any(_NEGATED.search(text) for text in (sample.caption, *others)):
        return []
    changes = [_replaced(sample.caption, m, "without") for m in _WITH.finditer(sample.caption)]
    return changes + [_replaced(sample.caption, m, "no") for m in _HAS.finditer(sample.caption)]


def _replaced(caption: str, match: re.Match[str], wrong: str) -> _Change:
    right, start = match["word"], match.start("word")
    wrong = wrong.capitalize() if right[0].isupper() else wrong
    text = caption[:start] + wrong + caption[match.end("word") :]
    return _Change(caption=text, planted=PlantedWord(start=start, wrong=wrong, right=right))


def _dropped(caption: str, match: re.Match[str]) -> _Change:
    """Remove a negation; the words before the thing become the right text of the fault."""
    start, begin = match.start("word"), match.start("thing")
    thing = caption[begin : match.end("thing")]
    wrong = thing.capitalize() if match["word"][0].isupper() else thing
    planted = PlantedWord(start=start, wrong=wrong, right=f"{match['word']} {thing}")
    return _Change(caption=caption[:start] + wrong + caption[match.end("thing") :], planted=planted)


COLORS = (
    (
        *("red", "blue", "green", "yellow", "orange", "purple", "pink", "brown"),
        *("black", "white", "gray", "grey"),
    ),
)

NUMBERS = (("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),)

# Within a row any word can stand for any other; the same columns hold the plurals.
_OBJECTS = (
    "dog cat horse cow sheep bird elephant giraffe zebra bear monkey duck",
    "car bus truck motorcycle bicycle train boat airplane tractor helicopter",
    "bike skateboard surfboard scooter snowboard sled",
    "man woman",
    "boy girl",
    "men women",
    "shirt jacket sweater coat dress vest",
    "hat helmet cap scarf",
    "ball frisbee kite balloon umbrella",
    "pizza sandwich cake banana apple hamburger carrot",
    "table chair couch bed bench desk",
    "beach street field mountain forest kitchen bathroom office",
    "tree rock bush fence bridge tower",
    "guitar piano drum violin trumpet",
    "cup bottle plate bowl knife fork spoon",
    "phone laptop camera television keyboard clock",
)
_PLURALS = (
    "dogs cats horses cows birds elephants giraffes zebras bears monkeys ducks",
    "cars buses trucks motorcycles bicycles trains boats airplanes tractors helicopters",
    "bikes skateboards surfboards scooters snowboards sleds",
    "boys girls",
    "shirts jackets sweaters coats dresses vests",
    "hats helmets caps scarves",
    "balls frisbees kites balloons umbrellas",
    "pizzas sandwiches cakes bananas apples hamburgers carrots",
    "tables chairs couches beds benches desks",
    "trees rocks bushes fences bridges towers",
    "guitars pianos drums violins trumpets",
    "cups bottles plates bowls knives forks spoons",
    "phones laptops cameras televisions keyboards clocks",
)
OBJECTS = tuple(tuple(row.split()) for row in (*_OBJECTS, *_PLURALS))

# Words that mean the same: a replacement by one of them would be no fault.
SYNONYMS = ({"gray", "grey"}, {"bicycle", "bike"}, {"bicycles", "bikes"})

DETAILS = (
    "with a long row of parked cars standing in the far background",
    "while several people behind them are talking about the weather",
    "under a wide sky that is covered with thin clouds",
    "next to an old brick building with many small windows",
    "as a small flag moves slowly in the afternoon wind",
    "near a wooden sign on which something is written in large letters",
    "and on the left side a stone path leads toward some trees",
    "with a number of empty bottles lying on the ground nearby",
    "while a white van is waiting at the corner of the street",
    "and behind all of this there is a tall metal fence",
    "in what seems to be the late morning of a warm summer day",
    "with soft light falling from the right onto everything in view",
    "as if somebody had just called out from a short distance",
    "and a pair of sunglasses rests on a low wall close by",
    "which looks as though it had been painted only a few days ago",
    "while a large shadow covers the lower part of the picture",
)


Kind = Literal[
    "swap",
    "overlong",
    "color",
    "number",
    "object",
    "action",
    "image",
    "plausible_color",
    "plausible_number",
    "plausible_object",
    "plausible_action",
    "plausible_relation",
    "plausible_people",
    "open_noun",
    "open_verb",
    "open_adjective",
    "negation",
    "phrase",
]
KINDS = get_args(Kind)
_NEGATION = "negation"
_ACTION = "action"
_ACTIONS = tuple(
    tuple(word for words in row.meanings for word in words)
    for row in closed_rows().rows
    if row.topic == _ACTION
)
_WORD_ROWS = {"color": COLORS, "number": NUMBERS, "object": OBJECTS, _ACTION: _ACTIONS}
_ROW_OF = {kind: {word: row for row in rows for word in row} for kind, rows in _WORD_ROWS.items()}
_SAME = {word: frozenset(words) for words in SYNONYMS for word in words}
_NUM_DETAILS = (3, 6)  # clauses appended to an overlong caption: 3, 4 or 5


@dataclass(frozen=True, kw_only=True)
class PlantFaults(AbstractStep):
    """Step that injects faults into training data and stores them in the context.

    Attributes:
        kinds: share of all samples, in [0, 1], by kind of fault, such as ``{"swap": 0.2}``.
        seed: the choice's seed.
        name: name of these faults in run folders and tables; has no other effect.
        one_per_photo: whether captions of a photo bear one fault at most together, so that
            `captioning.data.steps.compose_captions` can join them. Not with kinds that networks of
            language draw, nor with ``negation`` and ``image``.
    """

    kinds: Mapping[Kind, Fraction]
    seed: Seed
    name: str = "faults"
    one_per_photo: bool = False

    def __call__(self, roster: Roster, context: StepContext) -> Roster:
        """Return the roster with injected faults."""
        kinds = {str(kind): share for kind, share in self.kinds.items()}
        planting = plant(
            roster,
            kinds=kinds,
            seed=self.seed,
            cache_folder=context.cache_folder,
            one_per_photo=self.one_per_photo,
        )
        context.truth |= planting.truth
        context.planted_words |= planting.words
        return planting.roster


@dataclass(frozen=True, kw_only=True)
class Planting:
    """A roster with injected faults, and the record of them.

    Attributes:
        roster: roster with the faults.
        truth: kind of fault by sample id.
        words: place and right word by sample id, of faults of a word or phrase.
    """

    roster: Roster
    truth: dict[str, str]
    words: dict[str, PlantedWord]


def plant_faults(
    roster: Roster,
    *,
    kinds: Mapping[str, float],
    seed: int,
) -> tuple[Roster, dict[str, str]]:
    """Return a copy of the roster with injected faults, and the kind of fault by sample.

    Rows and sample ids stay, so the truth joins the ledger; ``origin`` becomes `planted_origin`.

    Args:
        roster: clean samples.
        kinds: the share of all samples that gets each kind, such as ``{"swap": 0.2}``.
        seed: the choice's seed; the same seed gives the same faults.

    Returns:
        The faulty roster, and ``{sample_id: kind}`` of its faults: ``round(share * N)`` of each
        kind, at most one a sample.

    Raises:
        ValueError: an unknown kind, shares outside [0, 1] or of more than 1 together, or fewer
            captions that can bear a fault than asked for.
    """
    planting = plant(roster, kinds=kinds, seed=seed)
    return planting.roster, planting.truth


def plant(
    roster: Roster,
    *,
    kinds: Mapping[str, float],
    seed: int,
    cache_folder: Path | None = None,
    one_per_photo: bool = False,
) -> Planting:
    """Inject faults, and record position and right word of each wrong word.

    ``cache_folder`` caches the language networks' scores of the captions, if it is given; for
    ``one_per_photo`` see `PlantFaults`.
    """
    counts = _counts(roster, kinds)
    if one_per_photo:
        _require_single(counts)
    samples = list(roster.samples)
    by_language = {kind: counts.pop(kind) for kind in list(counts) if kind in PLAUSIBLE_KINDS}
    drawn = plausible_faults(roster, by_language, seed, cache_folder)
    faults = {
        one.row: (kind, one.caption, one.planted)
        for kind, candidates in drawn.items()
        for one in candidates
    }
    if _NEGATION in counts:
        free = [row not in faults for row in range(len(roster))]
        changed = negations(roster, counts.pop(_NEGATION), free=free, seed=seed)
        faults |= {row: (_NEGATION, *change) for row, change in changed.items()}
    kind_of = {row: kind for row, (kind, _, _) in faults.items()}
    words = {row: planted for row, (_, _, planted) in faults.items()}
    for row, (_, caption, _) in faults.items():
        samples[row] = replace(samples[row], caption=caption, phrases=())
    rng = np.random.default_rng(seed)
    chosen = _chosen_rows(roster, counts, rng, taken=list(kind_of), one_per_photo=one_per_photo)
    for kind, rows in chosen.items():
        kind_of |= dict.fromkeys(rows, kind)
        for sample in _PLANTERS[kind](roster, rows, rng):
            samples[sample.row] = sample
            if kind in _WORD_ROWS:
                before = roster.samples[sample.row].caption
                words[sample.row] = changed_word(before, sample.caption)
    for row, kind in kind_of.items():
        samples[row] = replace(samples[row], origin=planted_origin(kind, words.get(row)))
    ids = [sample.sample_id for sample in roster.samples]
    return Planting(
        roster=build_roster(roster.name, samples, roster.dropped),
        truth={ids[row]: kind_of[row] for row in sorted(kind_of)},
        words={ids[row]: words[row] for row in sorted(words)},
    )


def _counts(roster: Roster, kinds: Mapping[str, float]) -> dict[str, int]:
    for kind, share in kinds.items():
        if kind not in KINDS:
            raise ValueError(f"steps.plant_faults.kinds must be of {KINDS}: got {kind!r}")
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
            raise ValueError(
                f"steps.plant_faults.kinds.{kind} must be a share in [0, 1]: got {share!r}"
            )
    counts = {kind: round(share * len(roster)) for kind, share in kinds.items()}
    if sum(counts.values()) > len(roster):
        raise ValueError(
            f"steps.plant_faults.kinds must not exceed 1 together: got {sum(kinds.values()):g}; "
            "a sample has one fault at most"
        )
    return {kind: count for kind, count in counts.items() if count}


def _require_single(kinds: Iterable[str]) -> None:
    """Raise an error for kinds that cannot be limited to one fault per photo."""
    allowed = sorted(_PLANTERS.keys() - {"image"})
    if refused := sorted(set(kinds) - set(allowed)):
        raise ValueError(
            f"steps.plant_faults.one_per_photo=true goes with {allowed} alone: got {refused[0]!r} "
            "in steps.plant_faults.kinds"
        )


def _chosen_rows(
    roster: Roster,
    counts: Mapping[str, int],
    rng: np.random.Generator,
    *,
    taken: Sequence[int],
    one_per_photo: bool,
) -> dict[str, list[int]]:
    """Return rows for each kind; the kind with the fewest suitable captions chooses first."""
    eligible = {kind: _eligible(roster, kind) for kind in counts}
    free = np.ones(len(roster), dtype=bool)
    free[list(taken)] = False
    chosen: dict[str, list[int]] = {}
    for kind in sorted(counts, key=lambda kind: (len(eligible[kind]), kind)):
        rows = np.array([row for row in eligible[kind] if free[row]], dtype=np.int64)
        if one_per_photo:
            photos = {roster.samples[row].image_id: row for row in rng.permutation(rows).tolist()}
            rows = np.sort(np.array(list(photos.values()), dtype=np.int64))
        if len(rows) < counts[kind]:
            raise ValueError(
                f"{roster.name}: {counts[kind]} faults of kind {kind!r} are wanted, but "
                f"{len(eligible[kind])} captions can bear one ({len(rows)} beside the other "
                "kinds); lower steps.plant_faults.kinds"
            )
        drawn = np.sort(rng.choice(rows, size=counts[kind], replace=False))
        free[drawn] = False
        if one_per_photo:
            for row in drawn.tolist():
                free[list(roster.rows_by_image[roster.samples[row].image_id])] = False
        chosen[kind] = drawn.tolist()
    return chosen


def _eligible(roster: Roster, kind: str) -> list[int]:
    if kind in _WORD_ROWS:
        words = _words_of(roster, kind)
        return [s.row for s in roster.samples if _replacements(s, kind, words[s.image_id])]
    num_images = len(roster.rows_by_image)
    if kind == "image":
        # A caption that every image has is wrong for none of them.
        num_images_with = Counter(
            text for texts in _image_captions(roster).values() for text in texts
        )
        return [s.row for s in roster.samples if num_images_with[s.caption] < num_images]
    if kind == "swap" and num_images < 2:
        return []
    return [sample.row for sample in roster.samples]


def _plant_swap(roster: Roster, rows: Sequence[int], rng: np.random.Generator) -> list[Sample]:
    captions_of = _image_captions(roster)

    def fits(row: int, donor: int) -> bool:
        giver, taker = roster.samples[donor], roster.samples[row]
        return giver.image_id != taker.image_id and giver.caption not in captions_of[taker.image_id]

    donors = rng.permutation(rows).tolist()
    for place, row in enumerate(rows):
        if fits(row, donors[place]):
            continue
        for other_place in rng.permutation(len(rows)).tolist():
            if fits(row, donors[other_place]) and fits(rows[other_place], donors[place]):
                donors[place], donors[other_place] = donors[other_place], donors[place]
                break
        else:
            donors[place] = _donor(roster, row, fits, rng)
    return [
        replace(roster.samples[row], caption=roster.samples[donor].caption, phrases=())
        for row, donor in zip(rows, donors, strict=True)
    ]


def _plant_image(roster: Roster, rows: Sequence[int], rng: np.random.Generator) -> list[Sample]:
    captions_of = _image_captions(roster)

    def fits(row: int, donor: int) -> bool:
        giver, taker = roster.samples[donor], roster.samples[row]
        return (
            giver.image_path != taker.image_path
            and taker.caption not in captions_of[giver.image_id]
        )

    planted = []
    for row in rows:
        donor = roster.samples[_donor(roster, row, fits, rng)]
        changed = {"image_path": donor.image_path, "regions": donor.regions, "size": donor.size}
        planted.append(replace(roster.samples[row], **changed, phrases=()))
    return planted


def _donor(
    roster: Roster, row: int, fits: Callable[[int, int], bool], rng: np.random.Generator
) -> int:
    """Draw a random suitable row; if a few draws fail, try all rows."""
    for donor in rng.integers(len(roster), size=16).tolist():
        if fits(row, donor):
            return donor
    for donor in rng.permutation(len(roster)).tolist():
        if fits(row, donor):
            return donor
    raise ValueError(
        f"{roster.name}: no other image can trade with {roster.samples[row].sample_id!r}; all "
        "images have the same captions or the same photo"
    )


def _plant_overlong(roster: Roster, rows: Sequence[int], rng: np.random.Generator) -> list[Sample]:
    planted = []
    for row in rows:
        sample = roster.samples[row]
        details = rng.permutation(len(DETAILS))[: rng.integers(*_NUM_DETAILS)]
        body = sample.caption.rstrip(" .")
        end = sample.caption[len(body) :]
        caption = " ".join([body or sample.caption, *(DETAILS[number] for number in details)])
        remaining_phrases = tuple(p for p in sample.phrases if p.start + len(p.text) <= len(body))
        planted.append(
            replace(sample, caption=caption + (end if body else ""), phrases=remaining_phrases)
        )
    return planted


def _plant_word(
    kind: str, roster: Roster, rows: Sequence[int], rng: np.random.Generator
) -> list[Sample]:
    words = _words_of(roster, kind)
    planted = []
    for row in rows:
        sample = roster.samples[row]
        options = _replacements(sample, kind, words[sample.image_id])
        match, substitutes = options[rng.integers(len(options))]
        word = substitutes[rng.integers(len(substitutes))]
        caption = replace_word(sample.caption, match.start(), match[0], word)
        planted.append(replace(sample, caption=caption, phrases=()))
    return planted


_PLANTERS: dict[str, Callable[[Roster, Sequence[int], np.random.Generator], list[Sample]]] = {
    "swap": _plant_swap,
    "overlong": _plant_overlong,
    "image": _plant_image,
    **{kind: partial(_plant_word, kind) for kind in _WORD_ROWS},
}


def _words_of(roster: Roster, kind: str) -> dict[str, frozenset[str]]:
    """Return, by photo, the words that would not be a fault, with actions in every form."""
    return photo_words(roster, None if kind == _ACTION else _SAME)


def _replacements(
    sample: Sample, kind: str, excluded: frozenset[str]
) -> list[tuple[re.Match[str], list[str]]]:
    """Return the caption's words that can be replaced, each with its possible substitutes."""
    replacements = []
    for match in WORD.finditer(sample.caption):
        row = _ROW_OF[kind].get(match[0].lower())
        if row is None:
            continue
        substitutes = [word for word in row if word not in excluded]
        if substitutes:
            replacements.append((match, substitutes))
    return replacements


def _image_captions(roster: Roster) -> dict[str, frozenset[str]]:
    return {image_id: frozenset(texts) for image_id, texts in roster.references().items()}
