"""Step that joins a photo's short captions into one long caption, one sentence each.

Planted faults (`captioning.data.steps.plant_faults`) go along: a long caption's truth is the kind
of fault of its wrong sentence, and the place of the sentence or word in it. So plant first, with
``one_per_photo``, and compose then.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from captioning.config.ranges import PositiveInt
from captioning.data.roster import Dropped, PlantedWord, Roster, build_roster, planted_origin
from captioning.data.steps.base import AbstractStep, StepContext
from captioning.types import Sample


@dataclass(frozen=True, kw_only=True)
class ComposeCaptions(AbstractStep):
    """Step that joins the captions of each photo into one, in order.

    Each caption begins with a capital and ends with a full stop; one that a photo has twice is used
    once. Phrases and weights belong to no sentence, and are left out.

    Attributes:
        num_sentences: at most so many captions of a photo are joined.
    """

    num_sentences: PositiveInt = 6
    every_split: ClassVar[bool] = True

    def __call__(self, roster: Roster, context: StepContext) -> Roster:
        """Return the roster with one caption per photo.

        Raises:
            ValueError: more than one planted fault in a caption.
        """
        truth, words = dict(context.truth), dict(context.planted_words)
        samples, dropped = [], list(roster.dropped)
        for rows in roster.rows_by_image.values():
            parts = [roster.samples[row] for row in rows[: self.num_sentences]]
            if any(truth.get(part.sample_id) == "image" for part in parts):
                raise ValueError(
                    f"{parts[0].image_id!r} has a caption with another photo (fault 'image'), so "
                    "its captions cannot be joined: leave that kind out of steps.plant_faults.kinds"
                )
            whole, fault = _joined(parts, truth, words)
            for sample in (roster.samples[row] for row in rows):
                context.truth.pop(sample.sample_id, None)
                context.planted_words.pop(sample.sample_id, None)
            if fault is not None:
                kind, planted = fault
                whole = replace(whole, origin=planted_origin(kind, planted))
                context.truth[whole.sample_id] = kind
                context.planted_words[whole.sample_id] = planted
            samples.append(whole)
            if len(rows) > self.num_sentences:
                rule = f"steps.compose_captions.num_sentences={self.num_sentences}"
                left = [roster.samples[row].sample_id for row in rows[self.num_sentences :]]
                dropped += [Dropped(item=sample_id, rule=rule) for sample_id in left]
        return build_roster(roster.name, samples, dropped)


def _joined(
    parts: list[Sample], truth: dict[str, str], words: dict[str, PlantedWord]
) -> tuple[Sample, tuple[str, PlantedWord] | None]:
    """Join a photo's captions; return the text, and kind and position of its fault, if any."""
    text, fault, seen = "", None, set()
    for part in parts:
        sentence, skipped = as_sentence(part.caption)
        if sentence in seen:
            continue
        seen.add(sentence)
        start = len(text) + bool(text)
        text = f"{text} {sentence}" if text else sentence
        if part.sample_id not in truth:
            continue
        if fault is not None:
            raise ValueError(
                f"{part.image_id!r} has more than one planted fault, and a long caption may have "
                f"only one: set steps.plant_faults.one_per_photo=true, and name "
                f"steps.compose_captions after "
                "it"
            )
        fault = (
            truth[part.sample_id],
            _planted(words.get(part.sample_id), sentence, start, skipped),
        )
    whole = replace(
        parts[0],
        sample_id=f"{parts[0].image_id}#long",
        caption=text,
        phrases=(),
        origin="composed",
        weight=1.0,
    )
    return whole, fault


def as_sentence(caption: str) -> tuple[str, int]:
    """Write a caption as a sentence; return it with the number of characters skipped before it."""
    text = caption.strip()
    skipped = len(caption) - len(caption.lstrip())
    text = text.rstrip(" .")
    end = "" if text.endswith(("!", "?", "…")) else "."
    return f"{text[:1].upper()}{text[1:]}{end}", skipped


def _planted(word: PlantedWord | None, sentence: str, start: int, skipped: int) -> PlantedWord:
    """Return the position of a fault in the long caption: a word of a sentence, or all of it."""
    if word is None:
        return PlantedWord(start=start, wrong=sentence, right="")
    place = word.start - skipped
    wrong = sentence[place : place + len(word.wrong)]  # its first letter may be a capital now
    return PlantedWord(start=start + place, wrong=wrong, right=word.right)
