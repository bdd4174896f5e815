"""Replace a bad sample's caption, its image, or both (data curation paper, Figure 1).

`ReplaceCaption` takes another caption of the image (REPLACECAP, section 3.2), `ReplaceImage` a
picture for the caption (REPLACEIMG, section 3.3), and `ReplaceBoth` a caption and a picture for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from augmentation.base import AbstractImageSource, ImageRequest, Picture
from captioning.data.roster import CurationView
from captioning.types import Edit, Sample
from curation.base import LEFT_ALONE, Amended, Amender, Context, Selected

CHOICES = ("random", "lower_loss")
AVOIDED = ("selected", "worse")


class ReplaceCaption(Amender):
    """Replaces each selected caption by another one of the same image's pool.

    A caption that was found bad leaves its image's pool for good and is never chosen again. If no
    caption remains, the sample stays as it is, and its caption stays in the pool. The number of
    samples never changes.

    Args:
        choice: ``"random"``, as in the paper, or ``"lower_loss"``: the one with the lowest loss in
            this epoch, if that is lower than the selected one's.
        avoid: of the captions selected at the same time: all of them, or with ``"worse"`` only
            those that are worse than the one to be replaced, as in the authors' code, which takes
            them out of the pool one by one, the worst first.

    Raises:
        ValueError: ``choice`` or ``avoid`` has an unknown value.
    """

    amends_at_once = True

    def __init__(
        self,
        *,
        choice: Literal["random", "lower_loss"] = "random",
        avoid: Literal["selected", "worse"] = "selected",
    ) -> None:
        if choice not in CHOICES:
            raise ValueError(f"choice must be one of {CHOICES}: got {choice!r}")
        if avoid not in AVOIDED:
            raise ValueError(f"avoid must be one of {AVOIDED}: got {avoid!r}")
        self.choice, self.avoid = choice, avoid

    def amend(self, context: Context, selected: Sequence[Selected]) -> Amended:
        """Return one replacement for each selected sample with another usable caption."""
        held_ids = [context.view.held_id(candidate.sample.sample_id) for candidate in selected]
        rejected_ids = set(held_ids) if self.avoid == "selected" else set()
        generator = context.random("replace_caption")
        edits: list[Edit] = []
        unchanged: list[str] = []
        for candidate, held_id in zip(selected, held_ids, strict=True):
            rejected_ids.add(held_id)
            choices = _choices(context, candidate.sample, rejected_ids)
            if self.choice == "lower_loss":
                choices = _lowest(context, candidate.sample, choices)
            # drawn even without a choice, so that samples do not change each other's draws
            draw = generator.random()
            if not choices:
                unchanged.append(candidate.sample.sample_id)
                continue
            source = choices[int(draw * len(choices))]
            edits.append(
                context.edit(
                    candidate,
                    "replace_caption",
                    value=source.caption,
                    origin=f"sibling:{source.sample_id}",
                )
            )
        return Amended(edits=tuple(edits), unchanged=tuple(unchanged))


def _choices(context: Context, sample: Sample, rejected_ids: set[str]) -> list[Sample]:
    # an equal text under another id would restore the bad caption
    return [
        other
        for other in context.view.pool(sample.image_id)
        if other.sample_id not in rejected_ids and other.caption != sample.caption
    ]


def _lowest(context: Context, sample: Sample, choices: list[Sample]) -> list[Sample]:
    """Return the choice with the lowest loss if it is below the sample's loss; otherwise no choice.

    A loss counts only while its sample still holds that caption: the loss of a sample with another
    caption or picture says nothing about this one.
    """
    losses = context.losses
    known = {
        other.row: float(losses[other.row])
        for other in choices
        if context.live.get(other.row) == other and not math.isnan(losses[other.row])
    }
    best = min(choices, key=lambda other: known.get(other.row, math.inf), default=None)
    if best is None or not known.get(best.row, math.inf) < float(losses[sample.row]):
        return []
    return [best]


class AbstractImageAmender(Amender):
    """Shared part of all amenders that take pictures from a source.

    Args:
        source: source of the pictures.

    Raises:
        ValueError: ``source`` is not an image source.
    """

    changes_images = True

    def __init__(self, *, source: AbstractImageSource) -> None:
        self._source = require_source(source)

    def start(self, view: CurationView) -> None:
        """Start the image source, for example load its index."""
        self._source.start(view.roster)

    @property
    def works_ahead(self) -> bool:
        """Return whether the image source works ahead."""
        return self._source.works_ahead

    def pictures(self, requests: Sequence[ImageRequest], *, seed: int) -> list[Picture]:
        """Get images from the source, which then frees the GPU for training."""
        pictures = self._source.images(requests, seed=seed)
        self._source.release()
        return pictures

    def close(self) -> None:
        """Close the image source."""
        self._source.close()


class ReplaceImage(AbstractImageAmender):
    """Replaces the image of each selected sample by one generated or retrieved for its caption.

    The number of samples never changes. A sample without a picture is unchanged, and is counted
    with the reason. A sample that is selected again gets yet another picture.

    Args:
        source: source of the pictures.

    Raises:
        ValueError: ``source`` is not an image source.
    """

    def amend(self, context: Context, selected: Sequence[Selected]) -> Amended:
        """Return one replacement for each selected sample for which the source has an image."""
        requests = [image_request(context.view, candidate.sample) for candidate in selected]
        pictures = self.pictures(requests, seed=context.seed)
        edits, unchanged, notes = [], [], []
        for candidate, picture in zip(selected, pictures, strict=True):
            notes += picture_notes(picture)
            if picture.path is None:
                unchanged.append(candidate.sample.sample_id)
            else:
                edits.append(replacement(context, candidate, picture))
        return Amended(edits=tuple(edits), unchanged=tuple(unchanged), notes=tuple(notes))

    def expect(self, context: Context, selected: Sequence[Selected]) -> None:
        """Let the source start on the images that are likely to be needed next."""
        requests = [image_request(context.view, candidate.sample) for candidate in selected]
        self._source.expect(requests, seed=context.seed)


def require_source(source: AbstractImageSource) -> AbstractImageSource:
    """Return ``source`` if it is an image source.

    Raises:
        ValueError: ``source`` is not an image source.
    """
    if not isinstance(source, AbstractImageSource):
        raise ValueError(
            "replacing images needs an image source: set curation/image_source=NAME (see "
            "configs/curation/image_source)"
        )
    return source


def image_request(view: CurationView, sample: Sample) -> ImageRequest:
    """Build the request to an image source for an image that shows the sample's final caption."""
    other_captions = [other.caption for other in view.pool(sample.image_id)]
    captions = tuple(dict.fromkeys((sample.caption, *other_captions)))
    photos = view.photos(sample.sample_id)
    return ImageRequest(sample=sample, captions=captions, photos=photos, given=view.given)


def replacement(context: Context, candidate: Selected, picture: Picture) -> Edit:
    """Build the edit that replaces a sample's image."""
    return context.edit(candidate, "replace_image", value=str(picture.path), origin=picture.origin)


def picture_notes(picture: Picture) -> list[str]:
    """Return the notes of a source's result, which reports count."""
    return [*picture.notes, *([f"{LEFT_ALONE}{picture.problem}"] if picture.path is None else [])]


class ReplaceBoth(AbstractImageAmender):
    """Replaces both the caption and the image of a sample, or neither.

    Args:
        source: source of the pictures.
        caption: replaces captions, such as `ReplaceCaption` or `ModelCaption`; default a random
            sibling.

    Raises:
        ValueError: ``source`` is not an image source.
    """

    def __init__(self, *, source: AbstractImageSource, caption: Amender | None = None) -> None:
        super().__init__(source=source)
        self.caption = caption if caption is not None else ReplaceCaption()

    def amend(self, context: Context, selected: Sequence[Selected]) -> Amended:
        """Return two edits for each sample for which both a caption and an image are available."""
        captions = self.caption.amend(context, selected)
        caption_of = {edit.sample_id: edit for edit in captions.edits}
        candidates = [
            candidate for candidate in selected if candidate.sample.sample_id in caption_of
        ]
        requests = self._requests(context, captions)
        pictures = self.pictures(requests, seed=context.seed)
        edits, unchanged, notes = [], list(captions.unchanged), list(captions.notes)
        for candidate, picture in zip(candidates, pictures, strict=True):
            notes += picture_notes(picture)
            if picture.path is None:
                unchanged.append(candidate.sample.sample_id)
            else:
                edits += [
                    caption_of[candidate.sample.sample_id],
                    replacement(context, candidate, picture),
                ]
        return Amended(edits=tuple(edits), unchanged=tuple(unchanged), notes=tuple(notes))

    def _requests(self, context: Context, captions: Amended) -> list[ImageRequest]:
        """Image requests for the samples that get another caption, in their order."""
        by_id = context.view.roster.by_id
        samples = [
            replace(context.live[by_id[edit.sample_id].row], caption=str(edit.value))
            for edit in captions.edits
        ]
        return [image_request(context.view, sample) for sample in samples]

    @property
    def works_ahead(self) -> bool:
        """Return whether the source works ahead; true only if new captions need no model."""
        return self.caption.amends_at_once and super().works_ahead

    def expect(self, context: Context, selected: Sequence[Selected]) -> None:
        """Let the source start on likely images, unless a model must first generate their captions.

        A model's captions would be written here, amid the epoch, and by each process for what its
        own losses select, while `PhotoCaptions` needs all processes to ask for the same photos.
        """
        if not self.caption.amends_at_once:
            return
        requests = self._requests(context, self.caption.amend(context, selected))
        self._source.expect(requests, seed=context.seed)
