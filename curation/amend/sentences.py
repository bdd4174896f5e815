"""Mask or remove doubtful sentences of long captions, and keep the other sentences."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from captioning.config.ranges import Fraction
from captioning.data.roster import masks_text, parse_masks
from captioning.text.sentence_spans import sentence_spans, without
from captioning.types import Edit, MaskedSpan, Sample
from curation.amend.mask_words import mask, new_spans
from curation.amend.model_caption import ORIGIN as MODEL
from curation.amend.model_caption import CaptionSource, better
from curation.base import (
    LEFT_ALONE,
    AbstractSentenceScore,
    AbstractSpanAmender,
    Amended,
    Context,
    Selected,
    SentenceDoubt,
    by_row,
    require_fraction,
)
from curation.score.caption_fit import FitScores

ORIGIN = "sentence:"
"""Prefix of the origin of a caption without some sentences: ``sentence:START-STOP,START-STOP``
with positions in the old caption."""

Emptied = Literal["keep", "remove"]


def removed_spans(origin: str) -> tuple[MaskedSpan, ...]:
    """Positions, in the old caption, of the sentences that were removed; empty if none was."""
    if not re.fullmatch(rf"{ORIGIN}\d+-\d+(,\d+-\d+)*", origin):
        return ()
    return parse_masks(origin.removeprefix(ORIGIN))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacedSentences:
    """Replaced sentences as stored in a caption's origin; parsed by `parse_origin`.

    Attributes:
        old: positions of the replaced sentences in the old caption, in order.
        new: positions of their replacements in the new caption, in the same order.
        source: source of the new ones: ``sibling:ID``, or ``model:NAME``.
    """

    old: tuple[MaskedSpan, ...]
    new: tuple[MaskedSpan, ...]
    source: str

    @property
    def origin(self) -> str:
        """Text of the origin: ``sentence:START-STOP>START-STOP,...;SOURCE``, old before new."""
        pairs = zip(self.old, self.new, strict=True)
        places = (f"{old.start}-{old.stop}>{new.start}-{new.stop}" for old, new in pairs)
        return f"{ORIGIN}{','.join(places)};{self.source}"

    def pieces(self, old: str, new: str) -> list[str] | None:
        """Split both captions into kept text, old sentence, new sentence, kept text, and so on.

        None if the captions do not match the origin, as after an edit by hand.
        """
        pieces, here, there = [], 0, 0
        for before, after in zip(self.old, self.new, strict=True):
            if old[here : before.start] != new[there : after.start]:
                return None
            pieces += [old[here : before.start], old[before.start : before.stop]]
            pieces += [new[after.start : after.stop]]
            here, there = before.stop, after.stop
        return [*pieces, old[here:]] if old[here:] == new[there:] else None


_PLACE = r"\d{1,9}-\d{1,9}"
_REPLACED = re.compile(rf"{ORIGIN}(?P<places>{_PLACE}>{_PLACE}(?:,{_PLACE}>{_PLACE})*);(?P<by>.+)")


def parse_origin(origin: str) -> ReplacedSentences | None:
    """Parse the replaced sentences from an origin; None for origins of another kind."""
    match = _REPLACED.fullmatch(origin)
    if match is None:
        return None
    places = [place.split(">") for place in match["places"].split(",")]
    old, new = (parse_masks(",".join(texts)) for texts in zip(*places, strict=True))
    return ReplacedSentences(old=old, new=new, source=match["by"])


class AbstractSentenceAmender(AbstractSpanAmender[AbstractSentenceScore]):
    """Base class of amenders that act on the doubtful sentences of selected captions.

    Args:
        score: names the doubtful sentences; None: the selector's score.
        threshold: least suspicion of a sentence to act on, in the score's unit; None: the amender
            acts on the caption's worst sentence only, one at each decision.
    """

    score_type = AbstractSentenceScore
    which_score = "sentences are in doubt: choose curation/score=sentence_loss or sentence_fit"

    def __init__(
        self, *, score: AbstractSentenceScore | None = None, threshold: float | None = None
    ) -> None:
        super().__init__(score=score)
        self.threshold = threshold

    def _chosen(
        self, context: Context, selected: Sequence[Selected]
    ) -> list[tuple[Selected, list[SentenceDoubt]]]:
        """Each selected sample with the sentences to act on, in order; its reason names them.

        Raises:
            ValueError: a record of the score does not match the caption.
        """
        doubts = by_row(self._span_score().doubts(context))
        found = []
        for candidate in selected:
            chosen = self._worst(candidate.sample, doubts.get(candidate.sample.row, ()))
            if chosen:
                told = "; ".join(f"{_shortened(one.text)!r} ({one.value:.3g})" for one in chosen)
                candidate = replace(candidate, reason=f"{candidate.reason}; {told}")
            found.append((candidate, chosen))
        return found

    def _worst(self, sample: Sample, doubts: Sequence[SentenceDoubt]) -> list[SentenceDoubt]:
        free = new_spans(sample, doubts)
        if self.threshold is not None:
            return [doubt for doubt in free if doubt.value >= self.threshold]
        return [max(free, key=lambda doubt: doubt.value)] if free else []


NOT_IN_DOUBT = f"{LEFT_ALONE}no sentence in enough doubt"


class AbstractSentenceTaker(AbstractSentenceAmender):
    """Base class of amenders that remove doubtful sentences, or mask them out of the loss.

    Args:
        score, threshold: see `AbstractSentenceAmender`.
        emptied: action on a caption that would lose every sentence: ``"keep"`` does not change it
            and adds a note; ``"remove"`` removes it.

    Raises:
        ValueError: ``emptied`` has an unknown value.
    """

    def __init__(
        self,
        *,
        score: AbstractSentenceScore | None = None,
        threshold: float | None = None,
        emptied: Emptied = "keep",
    ) -> None:
        super().__init__(score=score, threshold=threshold)
        if emptied not in get_args(Emptied):
            raise ValueError(f"emptied must be one of {get_args(Emptied)}: got {emptied!r}")
        self.emptied = emptied

    def amend(self, context: Context, selected: Sequence[Selected]) -> Amended:
        """Return one edit for each selected sample with a sentence at or above the threshold.

        Raises:
            ValueError: a record of the score does not match the caption.
        """
        edits, unchanged, notes = [], [], []
        for plain, (candidate, chosen) in zip(
            selected, self._chosen(context, selected), strict=True
        ):
            sample = candidate.sample
            if chosen and not _is_emptied(sample, chosen):
                edits.append(self._edit(context, candidate, chosen))
            elif chosen and self.emptied == "remove":
                edits.append(context.edit(plain, "remove"))
            else:
                unchanged.append(sample.sample_id)
                emptied = f"{LEFT_ALONE}no other sentence would be left"
                notes.append(emptied if chosen else NOT_IN_DOUBT)
        return Amended(edits=tuple(edits), unchanged=tuple(unchanged), notes=tuple(notes))

    @abstractmethod
    def _edit(self, context: Context, candidate: Selected, chosen: list[SentenceDoubt]) -> Edit:
        """Build the edit for these sentences of a caption that keeps other sentences."""


class MaskSentences(AbstractSentenceTaker):
    """Masks the doubtful sentences of selected captions out of the loss.

    The model still reads masked sentences as context. A masked sentence stays masked
    until its caption is replaced. The edit is the one for masked words.

    Args:
        score, threshold, emptied: see `AbstractSentenceTaker`.
        weight: remaining share of a masked sentence's loss, in [0, 1).

    Raises:
        ValueError: ``weight`` is outside [0, 1).
    """

    work = "masking sentences"
    masks_words = True

    def __init__(
        self,
        *,
        score: AbstractSentenceScore | None = None,
        threshold: float | None = None,
        emptied: Emptied = "keep",
        weight: Fraction = 0.0,
    ) -> None:
        super().__init__(score=score, threshold=threshold, emptied=emptied)
        self.weight = require_fraction("weight", weight)
        if self.weight == 1:
            raise ValueError("weight must be below 1: got 1, which would mask nothing")

    def _edit(self, context: Context, candidate: Selected, chosen: list[SentenceDoubt]) -> Edit:
        return mask(context, candidate, chosen, weight=self.weight)


class RemoveSentences(AbstractSentenceTaker):
    """Removes the doubtful sentences from selected captions.

    The model neither reads nor learns removed sentences, and an exported dataset lacks them.
    """

    work = "removing sentences"

    def _edit(self, context: Context, candidate: Selected, chosen: list[SentenceDoubt]) -> Edit:
        spans = [MaskedSpan(start=doubt.start, stop=doubt.stop) for doubt in chosen]
        return context.edit(
            candidate,
            "replace_caption",
            value=without(candidate.sample.caption, spans),
            origin=f"{ORIGIN}{masks_text(spans)}",
        )


class ReplaceSentences(AbstractSentenceAmender):
    """Replaces the doubtful sentences of selected captions by other sentences about the photo.

    A caption never gets a sentence that it has or had. One that finds no other stays, and a
    caption without any new sentence is counted with the reason.

    Args:
        score, threshold: see `AbstractSentenceAmender`.
        source: writes captions, whose sentences are taken in their order. None: the sentences of
            the photo's other captions, drawn at random, without those in doubt at the same time.
        continued: True: the source continues the undoubted sentences before the doubtful one;
            False: sentences come from captions that it writes from the photo alone.
        accept: scores of pairs: of the sentences the one that fits best is taken, and only if it
            fits better than the old one. None: the first.
    """

    work = "replacing sentences"

    def __init__(
        self,
        *,
        score: AbstractSentenceScore | None = None,
        threshold: float | None = None,
        source: CaptionSource | None = None,
        continued: bool = True,
        accept: FitScores | None = None,
    ) -> None:
        super().__init__(score=score, threshold=threshold)
        self.source, self.continued, self.accept = source, continued, accept

    def amend(self, context: Context, selected: Sequence[Selected]) -> Amended:
        """Return one edit for each selected sample with a replacement for a doubtful sentence.

        Raises:
            ValueError: a record of the score does not match the caption, or a source that
                cannot continue sentences.
        """
        chosen = self._chosen(context, selected)
        asked = [(candidate.sample, doubt) for candidate, own in chosen for doubt in own]
        had, options = _sentences_had(context), self._options(context, chosen)
        options = [
            [one for one in found if _plain(one.text) not in {"", *had[sample.sample_id]}]
            for (sample, _), found in zip(asked, options, strict=True)
        ]
        if self.accept is not None:
            options = _fitting(self.accept, asked, options)
        edits, unchanged, notes, found = [], [], [], iter(options)
        for candidate, own in chosen:
            edit = self._edit(context, candidate, [(doubt, next(found)) for doubt in own])
            if edit is not None:
                edits.append(edit)
                continue
            unchanged.append(candidate.sample.sample_id)
            notes.append(f"{LEFT_ALONE}no other sentence for it" if own else NOT_IN_DOUBT)
        return Amended(edits=tuple(edits), unchanged=tuple(unchanged), notes=tuple(notes))

    def _options(
        self, context: Context, chosen: Sequence[tuple[Selected, list[SentenceDoubt]]]
    ) -> list[list[_Option]]:
        """Replacement sentences for each doubtful sentence, in order of preference."""
        if self.source is None:
            return _siblings(context, chosen)
        asked = [(candidate.sample, own, doubt) for candidate, own in chosen for doubt in own]
        photos = [sample.image_path for sample, _, _ in asked]
        texts = [_before(sample, own, doubt) for sample, own, doubt in asked]
        written = self.source.captions(photos, texts if self.continued and any(texts) else None)
        self.source.release()
        by, options = f"{MODEL}{self.source.name}", []
        for captions, text in zip(written, texts, strict=True):
            spans = [(one, sentence_spans(one)) for one in captions]
            if self.continued and text:  # the next sentence
                spans = [(one, own[:1]) for one, own in spans]
            options.append([_Option(one[a:b], by) for one, own in spans for a, b in own])
        return options

    def _edit(
        self,
        context: Context,
        candidate: Selected,
        options: Sequence[tuple[SentenceDoubt, Sequence[_Option]]],
    ) -> Edit | None:
        """Build the edit that inserts the new sentences, or return None without new sentences."""
        caption, by = candidate.sample.caption, ""
        used: set[str] = set()
        text, cursor, old, new = "", 0, [], []
        for doubt, found in options:
            option = next((one for one in found if _plain(one.text) not in used), None)
            if option is None:
                continue
            used.add(_plain(option.text))
            by = by or option.source
            text += caption[cursor : doubt.start]
            put = _shaped(option.text, doubt.text)
            old.append(MaskedSpan(start=doubt.start, stop=doubt.stop))
            new.append(MaskedSpan(start=len(text), stop=len(text) + len(put)))
            text, cursor = text + put, doubt.stop
        if not old:
            return None
        places = ReplacedSentences(old=tuple(old), new=tuple(new), source=by)
        value = text + caption[cursor:]
        return context.edit(candidate, "replace_caption", value=value, origin=places.origin)


@dataclass(frozen=True, slots=True)
class _Option:
    """A replacement sentence and its source."""

    text: str
    source: str


def _siblings(
    context: Context, chosen: Sequence[tuple[Selected, list[SentenceDoubt]]]
) -> list[list[_Option]]:
    """Shuffled sentences from the photo's other live captions, without doubtful sentences."""
    in_doubt = {_plain(doubt.text) for _, own in chosen for doubt in own}
    by_image: dict[str, list[Sample]] = {}
    for sample in context.live.values():
        by_image.setdefault(sample.image_id, []).append(sample)
    generator, options = context.random("replace_sentences"), []
    for candidate, own in chosen:
        sample = candidate.sample
        others = [
            _Option(other.caption[start:stop], f"sibling:{other.sample_id}")
            for other in by_image[sample.image_id]
            if other.row != sample.row
            for start, stop in sentence_spans(other.caption)
            if _plain(other.caption[start:stop]) not in in_doubt
        ]
        for _ in own:
            options.append([others[place] for place in generator.permutation(len(others))])
    return options


def _before(sample: Sample, chosen: Sequence[SentenceDoubt], doubt: SentenceDoubt) -> str:
    """The sentences before a doubtful sentence, without other doubtful sentences."""
    gone = [MaskedSpan(start=one.start, stop=one.stop) for one in chosen if one.stop <= doubt.start]
    return without(sample.caption[: doubt.start], gone)


def _fitting(
    accept: FitScores,
    asked: Sequence[tuple[Sample, SentenceDoubt]],
    options: Sequence[Sequence[_Option]],
) -> list[list[_Option]]:
    """Options that fit the photo better than the doubtful sentence, best first."""
    old = [(sample.image_path, doubt.text) for sample, doubt in asked]
    found = better(accept, old, [[one.text for one in own] for own in options])
    by_text = [{one.text: one for one in reversed(own)} for own in options]
    return [[own[text] for text in texts] for own, texts in zip(by_text, found, strict=True)]


def _sentences_had(context: Context) -> dict[str, set[str]]:
    """The present and earlier sentences of each live caption."""
    by_id = context.view.roster.by_id
    texts = {one.sample_id: {one.caption} for one in context.live.values()}
    for edit in context.view.journal:
        if edit.sample_id in texts and edit.action == "replace_caption":
            texts[edit.sample_id].add(edit.value or "")
    return {
        sample_id: {
            _plain(text[start:stop])
            for text in (by_id[sample_id].caption, *own)
            for start, stop in sentence_spans(text)
        }
        for sample_id, own in texts.items()
    }


def _plain(sentence: str) -> str:
    """Words of a sentence without case and punctuation, to compare sentences."""
    return " ".join(re.findall(r"[^\W_]+", sentence.casefold()))


def _shaped(new: str, old: str) -> str:
    """Return a sentence with the capital letter and the full stop of the replaced sentence."""
    new = " ".join(new.split())
    if old[:1].isupper():
        new = new[:1].upper() + new[1:]
    end = re.search(r"[^\w\s]*$", old)
    return new if end is None or not new[-1:].isalnum() else new + end[0]


def _is_emptied(sample: Sample, chosen: Sequence[SentenceDoubt]) -> bool:
    """Return whether a caption would keep no unmasked sentence."""
    gone = {(doubt.start, doubt.stop) for doubt in chosen}
    left = [span for span in sentence_spans(sample.caption) if span not in gone]
    return not any(
        all(mask.stop <= start or stop <= mask.start for mask in sample.masks)
        for start, stop in left
    )


def _shortened(text: str, most: int = 60) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."
