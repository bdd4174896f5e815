"""Negations that are missing or too many: *with a helmet* of a man without one, *no hat* of a hat.

Half of them are missing where a right one was, if captions have so many, as these are rare; the
others stand where none belongs. A thing that another caption of the photo negates, or has, is left
as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from captioning.data.roster import PlantedWord, Roster
from captioning.text.word_rows import begins_with_vowel
from captioning.types import Sample

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
    """A caption with a negation more or less."""

    caption: str
    planted: PlantedWord


def negations(
    roster: Roster, number: int, *, free: Sequence[bool], seed: int
) -> dict[int, tuple[str, PlantedWord]]:
    """Faulty captions with what was changed, by row.

    Args:
        roster: sound samples.
        number: of the faults.
        free: whether a sample may bear one, by row.
        seed: of everything drawn.

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
    """Changes of a negation into its contrary, where no other caption says that."""
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
    """Changes of a thing that somebody has into one that is missing."""
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
    """Without the negation: what stood before the thing is the right text of its place."""
    start, begin = match.start("word"), match.start("thing")
    thing = caption[begin : match.end("thing")]
    wrong = thing.capitalize() if match["word"][0].isupper() else thing
    planted = PlantedWord(start=start, wrong=wrong, right=f"{match['word']} {thing}")
    return _Change(caption=caption[:start] + wrong + caption[match.end("thing") :], planted=planted)
