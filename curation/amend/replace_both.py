"""A bad sample gets another caption of its image, and a picture for that (paper, Figure 1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from augmentation.base import AbstractImageSource, ImageRequest
from curation.amend.replace_caption import ReplaceCaption
from curation.amend.replace_image import (
    AbstractImageAmender,
    image_request,
    picture_notes,
    replacement,
)
from curation.base import AbstractAmender, Amended, Context, Selected


class ReplaceBoth(AbstractImageAmender):
    """Replaces the caption first and then the picture by one for the new caption: both or neither.

    Args:
        source: of the pictures.
        caption: replaces captions, such as `ReplaceCaption` or `ModelCaption`; default a random
            sibling.

    Raises:
        ValueError: no source.
    """

    def __init__(
        self, *, source: AbstractImageSource, caption: AbstractAmender | None = None
    ) -> None:
        super().__init__(source=source)
        self.caption = caption if caption is not None else ReplaceCaption()

    def amend(self, context: Context, selected: Sequence[Selected]) -> Amended:
        """Two edits for each sample for which both a caption and a picture are available."""
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
        """For the samples that get another caption, in their order."""
        by_id = context.view.roster.by_id
        samples = [
            replace(context.live[by_id[edit.sample_id].row], caption=str(edit.value))
            for edit in captions.edits
        ]
        return [image_request(context.view, sample) for sample in samples]

    @property
    def works_ahead(self) -> bool:
        """As the source does, if captions are at hand: pictures are made for the new ones."""
        return self.caption.amends_at_once and super().works_ahead

    def expect(self, context: Context, selected: Sequence[Selected]) -> None:
        """Let the source begin on the likely next pictures, unless their captions take a model.

        A model's captions would be written here, amid the epoch, and by each process for what its
        own losses select, while `PhotoCaptions` needs all processes to ask for the same photos.
        """
        if not self.caption.amends_at_once:
            return
        requests = self._requests(context, self.caption.amend(context, selected))
        self._source.expect(requests, seed=context.seed)
