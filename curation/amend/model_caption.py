"""Write captions with the user's captioner for samples with bad captions or without captions."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from captioning.types import Edit, Sample
from curation.base import LEFT_ALONE, Amended, Amender, Context, Selected
from curation.score.caption_fit import FitScores, waits_for_caption
from curation.select.unmatched import below

ORIGIN = "model:"
"""Prefix of the origin of a generated caption; the model's name follows."""


class CaptionSource(Protocol):
    """Source of generated captions, such as `captioning.vision.photo_captions.PhotoCaptions`."""

    @property
    def name(self) -> str:
        """Name of the captioning model."""
        ...

    def captions(
        self, photos: Sequence[Path], beginnings: Sequence[str] | None = None
    ) -> list[list[str]]:
        """Generate captions for each photo, best first; no caption is blank.

        With ``beginnings``, one text a photo, the captions continue the text unless it is empty.
        """
        ...

    def release(self) -> None:
        """Free the GPU for training."""
        ...


class ModelCaption(Amender):
    """Replaces each selected caption by one that a model writes for the sample's photo.

    A sample never gets its own caption, nor one that it had before; of several captions those are
    preferred that no other sample of the photo has. Where none is left the sample stays as it is,
    and is counted with the reason. The number of samples never changes.

    Args:
        source: writes captions; only photos of selected samples are captioned.
        accept: scores of pairs: of the captions the one that fits best is taken, and only if it
            fits better than the old one. None: the source's first.
    """

    def __init__(self, *, source: CaptionSource, accept: FitScores | None = None) -> None:
        self.source, self.accept = source, accept

    def amend(self, context: Context, selected: Sequence[Selected]) -> Amended:
        """Return one replacement for each selected sample that the source has a caption for."""
        samples = [candidate.sample for candidate in selected]
        written = self.source.captions([sample.image_path for sample in samples])
        self.source.release()
        options = _options(context, samples, written)
        old = [(sample.image_path, sample.caption) for sample in samples]
        accepted = options if self.accept is None else better(self.accept, old, options)
        taken = _captions_by_image(context)
        edits, unchanged, notes = [], [], []
        blank = f"{LEFT_ALONE}{self.source.name} wrote nothing"
        for candidate, *stages in zip(selected, written, options, accepted, strict=True):
            image_id, texts = candidate.sample.image_id, stages[-1]
            if not texts:
                reasons = (blank, f"{LEFT_ALONE}no other caption", f"{LEFT_ALONE}no better caption")
                unchanged.append(candidate.sample.sample_id)
                notes.append(reasons[stages.index([])])
                continue
            caption = next((text for text in texts if text not in taken[image_id]), texts[0])
            taken[image_id].add(caption)
            origin = ORIGIN + self.source.name
            edits.append(context.edit(candidate, "replace_caption", value=caption, origin=origin))
        return Amended(edits=tuple(edits), unchanged=tuple(unchanged), notes=tuple(notes))


def _options(
    context: Context, samples: Sequence[Sample], written: Sequence[Sequence[str]]
) -> list[list[str]]:
    """Generated captions for each sample's photo that the sample has never had."""
    earlier: dict[str, set[str]] = defaultdict(set)
    for edit in context.view.journal:
        if edit.action == "replace_caption":
            earlier[edit.sample_id].add(edit.value or "")
    by_id = context.view.roster.by_id
    return [
        [
            text
            for text in texts
            if text not in (sample.caption, by_id[sample.sample_id].caption)
            and text not in earlier[sample.sample_id]
        ]
        for sample, texts in zip(samples, written, strict=True)
    ]


def better(
    accept: FitScores, old: Sequence[tuple[Path, str]], options: Sequence[Sequence[str]]
) -> list[list[str]]:
    """For each pair of photo and caption, the options that fit the photo better, best first."""
    pairs = [
        (photo, text)
        for (photo, own), texts in zip(old, options, strict=True)
        for text in (own, *texts)
    ]
    scores = iter(accept.scores(pairs).tolist()) if pairs else iter(())
    accept.release()
    found = []
    for texts in options:
        own, *new = [next(scores) for _ in range(1 + len(texts))]
        # a pair without a score (NaN) is never better; no pair is better than a NaN pair
        fitting = [pair for pair in zip(new, texts, strict=True) if pair[0] > own]
        found.append([text for _, text in sorted(fitting, key=lambda pair: -pair[0])])
    return found


def _captions_by_image(context: Context) -> dict[str, set[str]]:
    captions: dict[str, set[str]] = defaultdict(set)
    for sample in context.live.values():
        captions[sample.image_id].add(sample.caption)
    return captions


class CapFilt(Amender):
    """Removes selected captions, and fills the samples that wait for a caption.

    A captioner writes captions, a filter drops bad ones (Li et al., 2022, section 4).

    A waiting sample gets a caption of the source for its photo, the first sample the first one,
    and weight 1, if the filter calls it a match; otherwise it is removed, with the caption in the
    reason. Filter and captioner of the paper's Table 1 are choices: without ``pairs`` every written
    caption is kept; without waiting samples (``steps=[caption_slots]``) no caption is written.

    Args:
        source: writes captions.
        pairs: scores of pairs that filter them; None: no filter.
        threshold: captions of a lower score do not match; for BLIP's head 0.5.
    """

    def __init__(
        self, *, source: CaptionSource, pairs: FitScores | None = None, threshold: float = 0.5
    ) -> None:
        self.source, self.pairs, self.threshold = source, pairs, float(threshold)

    def amend(self, context: Context, selected: Sequence[Selected]) -> Amended:
        """Return two edits for each sample that gets a caption, and a removal for each other."""
        waiting = [choice for choice in selected if waits_for_caption(choice.sample)]
        made = self._made(context, [choice.sample for choice in waiting])
        fits = self._fits(waiting, made)
        edits, notes = [], []
        for choice in selected:
            sample_id = choice.sample.sample_id
            if sample_id not in made:
                edits.append(context.edit(choice, "remove"))
                continue
            new, note = self._filled(context, choice, made[sample_id], fits.get(sample_id))
            edits += new
            notes.append(note)
        return Amended(edits=tuple(edits), notes=tuple(notes))

    def _made(self, context: Context, samples: Sequence[Sample]) -> dict[str, str]:
        """Generated caption for each sample without a caption; empty if none is left."""
        if not samples:
            return {}
        photos = list({sample.image_id: sample.image_path for sample in samples}.items())
        written = self.source.captions([path for _, path in photos])
        self.source.release()
        captions = {image: texts for (image, _), texts in zip(photos, written, strict=True)}
        number: Counter[str] = Counter()
        made = {}
        for sample in samples:
            texts, place = captions[sample.image_id], number[sample.image_id]
            made[sample.sample_id] = texts[place] if place < len(texts) else ""
            number[sample.image_id] += 1
        return made

    def _fits(self, waiting: Sequence[Selected], made: dict[str, str]) -> dict[str, float]:
        """Score the generated captions against their photos, by sample."""
        samples = [choice.sample for choice in waiting if made[choice.sample.sample_id]]
        if self.pairs is None or not samples:
            return {}
        scores = self.pairs.scores([(s.image_path, made[s.sample_id]) for s in samples])
        self.pairs.release()
        return {s.sample_id: fit for s, fit in zip(samples, scores.tolist(), strict=True)}

    def _filled(
        self, context: Context, choice: Selected, caption: str, fit: float | None
    ) -> tuple[list[Edit], str]:
        if not caption:
            choice = replace(choice, reason="the captioner wrote no further caption")
            return [context.edit(choice, "remove")], "no caption was written"
        if self.pairs is not None and fit is not None and not fit >= self.threshold:
            reason = f"{below(self.pairs, fit, self.threshold)}: {caption}"
            return [context.edit(replace(choice, reason=reason), "remove")], "made caption dropped"
        if self.pairs is not None and fit is not None:
            choice = replace(choice, reason=f"{self.pairs.name} {fit:.3f}")
        origin = ORIGIN + self.source.name
        edits = [
            context.edit(choice, "replace_caption", value=caption, origin=origin),
            context.edit(choice, "down_weight", value="1", origin=origin),
        ]
        return edits, "made caption accepted"
