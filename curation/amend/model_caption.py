"""A bad caption gives way to what a captioner of the user's writes for its photo."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from captioning.types import Sample
from curation.base import LEFT_ALONE, AbstractAmender, Amended, Context, Selected
from curation.score.caption_fit import FitScores

ORIGIN = "model:"
"""How origins of captions by a model begin; its name follows."""


class CaptionSource(Protocol):
    """Captions by a model: `captioning.vision.photo_captions.PhotoCaptions`."""

    @property
    def name(self) -> str:
        """The model's name."""
        ...

    def captions(self, photos: Sequence[Path]) -> list[list[str]]:
        """Captions of each photo, the best first, none of them blank."""
        ...

    def release(self) -> None:
        """Leave the accelerator to training."""
        ...


class ModelCaption(AbstractAmender):
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
        """One replacement for each selected sample that the source has a caption for."""
        samples = [candidate.sample for candidate in selected]
        written = self.source.captions([sample.image_path for sample in samples])
        self.source.release()
        options = _options(context, samples, written)
        accepted = options if self.accept is None else _better(self.accept, samples, options)
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
    """Captions of each sample's photo that it does not have and never had."""
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


def _better(
    accept: FitScores, samples: Sequence[Sample], options: Sequence[Sequence[str]]
) -> list[list[str]]:
    """Of each sample's options those that fit better than its caption, the best first."""
    pairs = [
        (sample.image_path, text)
        for sample, texts in zip(samples, options, strict=True)
        for text in (sample.caption, *texts)
    ]
    scores = iter(accept.scores(pairs).tolist()) if pairs else iter(())
    accept.release()
    better = []
    for texts in options:
        old, *new = [next(scores) for _ in range(1 + len(texts))]
        ranked = sorted(zip(new, texts, strict=True), key=lambda pair: -pair[0])
        better.append([text for score, text in ranked if score > old])
    return better


def _captions_by_image(context: Context) -> dict[str, set[str]]:
    captions: dict[str, set[str]] = defaultdict(set)
    for sample in context.live.values():
        captions[sample.image_id].add(sample.caption)
    return captions
