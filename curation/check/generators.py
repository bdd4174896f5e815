"""Checks of folders for fine-tuning image generators.

A property of more than half of a folder is its habit: it is reported once, and no caption is
flagged.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib import import_module

import numpy as np

from captioning.runtime.model_folder import model_folder
from curation.check.evidence import Evidence, Scores
from curation.check.generator_folder import (
    EMPTY_WORDS,
    FEWEST,
    Concept,
    GeneratorFolder,
    Note,
    is_odd,
    known_words,
    pattern_of,
    place_of,
    style_of,
    words_in,
)

CLIP_TOKENS, T5_TOKENS = 77, 512  # with the marks at the ends
T5_FEWER = 256  # of FLUX.1 schnell, SD3 and others
T5_NAMES = ("google/t5-v1_1-xxl", "google-t5/t5-small", "t5-small")  # of one vocabulary
TOKENIZER = "tokenizer.json"
ALIKE = 0.9
FUSED, STRONG, FREQUENT = 0.85, 0.6, 0.35  # shares of the captions
FEW_PHOTOS, MANY_PHOTOS = 15, 150
_PIECE = re.compile(r"[,;\n]+|[.!?](?=\s|$)")
Counting = Callable[[str], int]
_STYLE_NAMES = {"tags": "lists of tags", "sentences": "sentences", "both": "of both"}


def trigger_missing(evidence: Evidence) -> Scores:
    """1 for a caption without its concept's trigger or a similar word."""
    found: dict[int, str] = {}
    slips = _slips(evidence)
    for concept, row, caption in _with_trigger(evidence):
        if place_of(concept.trigger, caption) is None and row not in slips:
            found[row] = f"has no {concept.trigger!r}"
    return _outliers(evidence, found, "lack the trigger", of=_rows_with_trigger(evidence))


def trigger_misspelt(evidence: Evidence) -> Scores:
    """1 for a caption with a misspelt trigger, or with other upper and lower case."""
    found: dict[int, str] = {}
    slips = _slips(evidence)
    for concept, row, caption in _with_trigger(evidence):
        if row in slips:
            found[row] = f"{slips[row]!r} is nearly {concept.trigger!r}"
        elif (spelt := _spelt(concept.trigger, caption)) not in (None, concept.trigger):
            found[row] = f"{spelt!r} has other letters than {concept.trigger!r}"
    return _outliers(evidence, found, "spell it otherwise", of=_rows_with_trigger(evidence))


def trigger_not_first(evidence: Evidence) -> Scores:
    """1 for a caption with words before the trigger, if most captions begin with the trigger."""
    found: dict[int, str] = {}
    for concept, row, caption in _with_trigger(evidence):
        if place := place_of(concept.trigger, caption):
            found[row] = f"{place} words stand before {concept.trigger!r}"
    return _outliers(evidence, found, "do not begin with it", of=_rows_with_trigger(evidence))


def class_missing(evidence: Evidence) -> Scores:
    """1 for a caption without the class words that the user named."""
    found: dict[int, str] = {}
    for concept in _folder(evidence).concepts:
        for row in concept.rows:
            lacking = [
                w for w in concept.class_words if place_of(w, evidence.captions[row]) is None
            ]
            if lacking:
                found[row] = f"has no {' or '.join(map(repr, lacking))}"
    return _outliers(evidence, found, "lack the class words")


def mixed_style(evidence: Evidence) -> Scores:
    """1 for a caption of tags among sentences, or of sentences among tags."""
    kinds = _styles(evidence)
    counts = Counter(kinds.values())
    usual = "tags" if counts["tags"] > counts["sentences"] else "sentences"
    said = {
        "tags": "lists tags; most captions are sentences",
        "sentences": "is a sentence; most captions list tags",
        "both": "lists tags and has a sentence",
    }
    found = {row: said[kind] for row, kind in kinds.items() if kind not in (usual, "")}
    of = [row for row, kind in kinds.items() if kind]
    return _outliers(evidence, found, f"are others than {usual}", of=of, most=1 / 3)


def long_for_clip(evidence: Evidence) -> Scores:
    """Number of CLIP tokens, including start and end; CLIP reads only the first 77 tokens."""
    return _tokens(evidence, "CLIP", CLIP_TOKENS, clip_counter)


def long_for_t5(evidence: Evidence) -> Scores:
    """Number of T5 tokens, including the end token."""
    scores = _tokens(evidence, "T5", T5_TOKENS, t5_counter)
    fewer = int((scores.values > T5_FEWER).sum())
    more = f"{fewer} captions have over {T5_FEWER}, which some models read at most"
    return replace(scores, note=_joined(scores.note, more)) if fewer else scores


def _tokens(
    evidence: Evidence, name: str, limit: int, counter: Callable[[], Counting | None]
) -> Scores:
    """Token counts of captions; NaN if no caption is long enough to reach the token limit."""
    captions = evidence.captions
    if all(len(caption.encode()) + 3 <= limit for caption in captions):
        return Scores(values=np.full(len(captions), np.nan, np.float32))
    count = counter()
    lengths = [(count or _fewest_tokens)(caption) for caption in captions]
    long = {row: f"{n} tokens of {name}" for row, n in enumerate(lengths) if n > limit}
    habit = _outliers(evidence, long, f"have over {limit} tokens of {name}")
    how = "" if count else f"counted in words and signs: no tokenizer of {name} is at hand"
    values = np.full(len(lengths), np.nan) if habit.note else np.array(lengths)
    return Scores(values=values.astype(np.float32), reasons=long, note=_joined(habit.note, how))


def _joined(*notes: str) -> str:
    return "; ".join(note for note in notes if note)


def _fewest_tokens(caption: str) -> int:
    return len(re.findall(r"\w+|[^\w\s]", caption)) + 2


def clip_counter() -> Counting | None:
    """Build a token counter from open_clip's tokenizer; None if open_clip is not installed."""
    with suppress(ImportError):
        tokenizer = import_module("open_clip.tokenizer").SimpleTokenizer()
        return lambda caption: len(tokenizer.encode(caption)) + 2
    return None


def t5_counter() -> Counting | None:
    """Build a token counter from a local T5 tokenizer; None if no tokenizer is available."""
    for name in T5_NAMES:
        with suppress(OSError, ValueError):  # it is not there
            folder = model_folder(name, instead="words", marker=TOKENIZER)
            tokenizer = import_module("tokenizers").Tokenizer.from_file(str(folder / TOKENIZER))
            tokenizer.no_truncation()
            return lambda caption: len(tokenizer.encode(caption).ids)
    return None


def small_photo(evidence: Evidence) -> Scores:
    """Smaller side of the photo in pixels; photos below the training resolution are enlarged."""
    bucket = _folder(evidence).bucket
    sides = np.array([np.nan if f.problem else min(f.size) for f in evidence.facts_of], np.float32)
    small = {
        row: f"{evidence.facts_of[row].size[0]} x {evidence.facts_of[row].size[1]} pixels"
        for row in np.flatnonzero(sides < bucket).tolist()
    }
    habit = _outliers(evidence, small, f"have a side below {bucket} pixels")
    if habit.note:
        return Scores(values=np.full_like(sides, np.nan), note=habit.note)
    return Scores(values=sides, reasons=small)


def repeated_caption(evidence: Evidence) -> Scores:
    """Number of photos with the same caption, among photos that have their own text."""
    places: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for row, words in _own_words(evidence).items():
        places[tuple(words)].append(row)
    found = {
        row: (float(len(rows)), f"{len(rows)} photos have this caption")
        for rows in places.values()
        for row in rows
        if len({evidence.roster.samples[r].image_id for r in rows}) > 1
    }
    return _valued(evidence, found, "are those of other photos, too")


def alike_caption(evidence: Evidence) -> Scores:
    """Jaccard similarity of a caption's words to the most similar caption of another photo."""
    found = {
        row: (likeness, f"has the words of {evidence.roster.samples[other].image_path.name}")
        for row, (likeness, other) in _alike(evidence, ALIKE).items()
    }
    return _valued(evidence, found, "have nearly the words of another")


def shared_caption(evidence: Evidence) -> Scores:
    """1 for a photo without its own text, which uses the caption of its folder."""
    shared = _folder(evidence).shared
    return _outliers(
        evidence, dict.fromkeys(shared, "has no text of its own"), "have their folder's caption"
    )


def _folder(evidence: Evidence) -> GeneratorFolder:
    if evidence.generators is None:
        raise ValueError("this check works only on folders for fine-tuning image generators")
    return evidence.generators


def _with_trigger(evidence: Evidence) -> Iterator[tuple[Concept, int, str]]:
    for concept in _folder(evidence).concepts:
        for row in concept.rows if concept.trigger else ():
            yield concept, row, evidence.captions[row]


def _rows_with_trigger(evidence: Evidence) -> list[int]:
    return [row for _, row, _ in _with_trigger(evidence)]


def _outliers(
    evidence: Evidence,
    found: Mapping[int, str],
    habit: str,
    *,
    of: Collection[int] | None = None,
    most: float = 0.5,
) -> Scores:
    """1 for each found caption; if most captions are found, flag none and add a note."""
    return _valued(evidence, {r: (1.0, said) for r, said in found.items()}, habit, of=of, most=most)


def _valued(
    evidence: Evidence,
    found: Mapping[int, tuple[float, str]],
    habit: str,
    *,
    of: Collection[int] | None = None,
    most: float = 0.5,
) -> Scores:
    number = len(evidence.roster)
    total = number if of is None else len(of)
    if found and len(found) > most * total:
        return Scores(
            values=np.zeros(number, np.float32),
            note=f"{len(found):,} of {total:,} captions {habit}, so none is flagged for this",
        )
    return Scores.of(number, found)


def _spelt(trigger: str, caption: str) -> str | None:
    """The trigger as it is spelt in a caption."""
    pattern = pattern_of(trigger)
    match = None if pattern is None else pattern.search(caption)
    return None if match is None else match[0]


def _slips(evidence: Evidence) -> dict[int, str]:
    """Words by row that are probably a misspelt trigger.

    Words of English count only where the caption begins and has no trigger; frequent words never.
    """
    counts = Counter(w for caption in evidence.captions for w in set(words_in(caption)))
    rare = {word for word, n in counts.items() if 5 * n <= max(5, len(evidence.captions))}
    found: dict[int, str] = {}
    for concept, row, caption in _with_trigger(evidence):
        words, own = words_in(caption), words_in(concept.trigger)
        is_there = place_of(concept.trigger, caption) is not None
        for start, word in enumerate(words):
            is_word = word in known_words() or word in EMPTY_WORDS
            may_be = word in rare and word not in own and not (is_word and (is_there or start))
            if may_be and _is_slip(word, own):
                found.setdefault(row, word)
        apart = [] if is_there else _split_otherwise(words, own)
        if apart:
            found.setdefault(row, apart[0])
    return found


def _is_slip(word: str, own: Sequence[str]) -> bool:
    trigger = _together(own)
    most = 0 if len(trigger) < 3 else 1
    if len(trigger) >= 4 and (len(trigger) >= 6 or is_odd(word)):
        most = 2
    return edits(_together([word]), trigger, most) <= most


def _split_otherwise(words: Sequence[str], own: Sequence[str]) -> list[str]:
    """Adjacent words that together form the trigger, such as ``oh wx`` for ``ohwx``."""
    together = _together(own)
    runs = [words[n : n + size] for n in range(len(words)) for size in (1, 2, 3, len(own))]
    return [" ".join(run) for run in runs if _together(run) == together and list(run) != list(own)]


def _together(words: Iterable[str]) -> str:
    return "".join(words).replace("_", "")


def edits(first: str, second: str, most: int) -> int:
    """Edit distance with swaps of neighbouring letters, at most ``most``; else ``most + 1``."""
    if abs(len(first) - len(second)) > most:
        return most + 1
    before: list[int] = []
    row = list(range(len(second) + 1))
    for n, letter in enumerate(first, start=1):
        earlier, before, row = before, row, [n]
        for m, other in enumerate(second, start=1):
            best = min(before[m] + 1, row[m - 1] + 1, before[m - 1] + (letter != other))
            if n > 1 and m > 1 and letter == second[m - 2] and first[n - 2] == other:
                best = min(best, earlier[m - 2] + 1)
            row.append(best)
    return min(row[-1], most + 1)


def _styles(evidence: Evidence) -> dict[int, str]:
    folder = _folder(evidence)
    captions = folder.without_triggers(evidence.roster)
    return {r: style_of(text) for r, text in enumerate(captions) if r not in folder.shared}


def own_words(folder: GeneratorFolder, captions: Sequence[str]) -> dict[int, list[str]]:
    """Words of captions that belong to one photo only and are not trigger or class."""
    return {
        row: words
        for concept in folder.concepts
        for row in concept.rows
        if row not in folder.shared
        and not concept.expected.issuperset(words := words_in(captions[row]))
    }


def _own_words(evidence: Evidence) -> dict[int, list[str]]:
    return own_words(_folder(evidence), evidence.captions)


def _alike(evidence: Evidence, least: float) -> dict[int, tuple[float, int]]:
    """Captions of other photos with nearly the same words in another order.

    Two similar sets of words share one of the rarest words of each; other pairs need not
    be compared.
    """
    texts = _own_words(evidence)
    counts = Counter(word for words in texts.values() for word in set(words))
    sets = {row: frozenset(words) for row, words in texts.items()}
    by_word: dict[str, list[int]] = defaultdict(list)
    found: dict[int, tuple[float, int]] = {}
    for row, words in sets.items():
        rare = sorted(words, key=lambda word: (counts[word], word))
        prefix = rare[: len(rare) - math.ceil(least * len(rare)) + 1]
        for other in {other for word in prefix for other in by_word[word]}:
            likeness = len(words & sets[other]) / len(words | sets[other])
            if likeness >= least and texts[row] != texts[other]:
                found[row] = max(found.get(row, (0.0, other)), (likeness, other))
                found[other] = max(found.get(other, (0.0, row)), (likeness, row))
        for word in prefix:
            by_word[word].append(row)
    return found


def set_notes(evidence: Evidence) -> list[Note]:
    """Notes on trigger, words, style, lengths and photos; then notes on files."""
    folder = _folder(evidence)
    texts = _own_words(evidence)
    notes = [*_trigger_notes(evidence)]
    if not texts:
        said = "captions contain only trigger and class: only the photos show what varies"
        notes.append(Note("bare", said))
    if len(texts) >= FEWEST:
        notes += _word_notes(evidence, texts)
    notes += [*_style_notes(evidence), *_photo_notes(evidence), *folder.notes]
    return notes


def _trigger_notes(evidence: Evidence) -> Iterator[Note]:
    shared = _folder(evidence).shared
    for concept in _folder(evidence).concepts:
        rows = concept.rows
        is_of_class = len(words_in(concept.folder_words)) == 1 and shared.issuperset(rows)
        if not concept.trigger and is_of_class:
            continue  # pictures of the class, beside those of the concept
        if not concept.trigger:
            where = f" in {concept.folder_words!r}" if concept.folder_words else ""
            yield Note("trigger", f"none is found{where}; name it where there is one")
            continue
        count = sum(place_of(concept.trigger, evidence.captions[row]) is not None for row in rows)
        how = "" if concept.is_given else ", as found"
        said = f"{concept.trigger!r}{how}: in {count:,} of {len(rows):,} captions"
        yield Note("trigger", said, ((concept.trigger, f"{count} of {len(rows)}"),))


def _word_notes(evidence: Evidence, texts: Mapping[int, Sequence[str]]) -> Iterator[Note]:
    captions = {row: evidence.captions[row] for row in texts}
    expected = frozenset().union(*(c.expected for c in _folder(evidence).concepts))
    shares = usual_terms(list(captions.values()), expected)
    total = len(captions)
    for name, least, below, said in (
        ("constant_words", 1.0, 2.0, "in every caption, and so part of the trigger"),
        ("fused_words", FUSED, 1.0, "in nearly every caption, and so fused with the trigger"),
        ("strong_words", STRONG, FUSED, "in most captions: pictures will often have them"),
        ("frequent_words", FREQUENT, STRONG, "in many captions"),
    ):
        items = [(t, f"{n} of {total}") for t, n in shares if least * total <= n < below * total]
        if items:
            words = ", ".join(f"{term!r} ({number})" for term, number in items[:8])
            more = f" and {len(items) - 8} more" if len(items) > 8 else ""
            yield Note(name, f"{said}: {words}{more}", tuple(items))
    yield from _length_notes(evidence, texts)


def _length_notes(evidence: Evidence, texts: Mapping[int, Sequence[str]]) -> Iterator[Note]:
    lengths = {row: len(words) for row, words in texts.items()}
    numbers = np.array(list(lengths.values()))
    spread = float(numbers.std(ddof=1))
    names = {row: evidence.roster.samples[row].image_path.name for row in lengths}
    least = max(2 * spread, 3.0)  # a word or two are no oddity
    far = [r for r, n in lengths.items() if abs(n - numbers.mean()) >= least]
    if far:
        far.sort(key=lambda row: -abs(lengths[row] - numbers.mean()))
        items = tuple((names[row], f"{lengths[row]} words") for row in far)
        said = ", ".join(f"{name}: {number}" for name, number in items[:4])
        yield Note(
            "odd_lengths",
            f"{len(items)} captions are far from the middle one of {np.median(numbers):.0f} words "
            f"({said})",
            items,
        )
    words = [word for own in texts.values() for word in own]
    if len(set(words)) < 0.25 * len(words):
        said = f"{len(set(words)):,} different words of {len(words):,}: little variety of wording"
        yield Note("few_words", said)


def usual_terms(captions: Sequence[str], expected: Collection[str]) -> list[tuple[str, int]]:
    """Words, phrases and tags with their number of captions, most frequent first.

    Phrases that begin or end in a word that names nothing are left out, as are those with an
    expected word, and parts of a phrase that stand nowhere else.
    """
    counts = Counter(term for caption in captions for term in set(_terms(caption)))
    few = FREQUENT * len(captions)
    kept: list[tuple[str, int]] = []
    usual = [(term, n) for term, n in counts.items() if n >= few]
    for term, number in sorted(usual, key=lambda pair: (-len(pair[0].split()), -pair[1], pair[0])):
        words = term.split()
        names_nothing = words[0] in EMPTY_WORDS or words[-1] in EMPTY_WORDS
        inside = any(n == number and f" {term} " in f" {longer} " for longer, n in kept)
        if not names_nothing and not inside and not set(words).intersection(expected):
            kept.append((term, number))
    return sorted(kept, key=lambda pair: (-pair[1], pair[0]))


def _terms(caption: str) -> Iterator[str]:
    """Phrases of up to three words without punctuation inside, and tags of up to eight words."""
    for piece in _PIECE.split(caption):
        words = words_in(piece.replace("_", " "))
        if 0 < len(words) <= 8:
            yield " ".join(words)
        for size in (1, 2, 3):
            yield from (" ".join(words[n : n + size]) for n in range(len(words) - size + 1))


def _style_notes(evidence: Evidence) -> Iterator[Note]:
    counts = Counter(_styles(evidence).values())
    said = [f"{counts[kind]:,} {name}" for kind, name in _STYLE_NAMES.items() if counts[kind]]
    if said:
        yield Note("style", ", ".join(said))


def _photo_notes(evidence: Evidence) -> Iterator[Note]:
    sizes = Counter(facts.size for facts in evidence.photos.values() if not facts.problem)
    if len(sizes) > 1:
        items = tuple((f"{w} x {h}", f"{n} photos") for (w, h), n in sizes.most_common())
        said = ", ".join(f"{size}: {number}" for size, number in items[:4])
        yield Note("sizes", f"photos have {len(sizes)} sizes ({said})", items)
    number = len(evidence.photos)
    if number < FEW_PHOTOS:
        yield Note("few_photos", f"{number} photos: they may be learnt by heart")
    elif number > MANY_PHOTOS:
        yield Note("many_photos", f"{number:,} photos, more than most concepts need")
