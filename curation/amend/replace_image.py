"""REPLACEIMG: a bad pair of image and caption gets another image (paper, section 3.3)."""

from __future__ import annotations

from collections.abc import Sequence

from augmentation.base import AbstractImageSource, ImageRequest, Picture
from captioning.data.roster import CurationView
from captioning.types import Edit, Sample
from curation.base import LEFT_ALONE, AbstractAmender, Amended, Context, Selected


class AbstractImageAmender(AbstractAmender):
    """Shared part of all amenders that take pictures from a source.

    Args:
        source: of the pictures.

    Raises:
        ValueError: no source.
    """

    changes_images = True

    def __init__(self, *, source: AbstractImageSource) -> None:
        self._source = require_source(source)

    def start(self, view: CurationView) -> None:
        """Let the source get ready."""
        self._source.start(view.roster)

    @property
    def works_ahead(self) -> bool:
        """As the source does."""
        return self._source.works_ahead

    def pictures(self, requests: Sequence[ImageRequest], *, seed: int) -> list[Picture]:
        """What the source answers; it then leaves its accelerator to training."""
        pictures = self._source.images(requests, seed=seed)
        self._source.release()
        return pictures

    def close(self) -> None:
        """Close the source."""
        self._source.close()


class ReplaceImage(AbstractImageAmender):
    """Gives each selected sample a picture made or found for its caption, which it keeps.

    The number of samples never changes. A sample for which there is no picture stays as it is, and
    is counted with the reason. A sample that is selected again gets yet another picture.

    Args:
        source: of the pictures.

    Raises:
        ValueError: no source.
    """

    def amend(self, context: Context, selected: Sequence[Selected]) -> Amended:
        """One replacement for each selected sample for which there is a picture."""
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
        """Let the source begin on the likely next pictures."""
        requests = [image_request(context.view, candidate.sample) for candidate in selected]
        self._source.expect(requests, seed=context.seed)


def require_source(source: AbstractImageSource) -> AbstractImageSource:
    """``source`` if it is one.

    Raises:
        ValueError: it is not.
    """
    if not isinstance(source, AbstractImageSource):
        raise ValueError(
            "replacing images needs a source of pictures: choose one with "
            "curation/image_source=NAME (see configs/curation/image_source)"
        )
    return source


def image_request(view: CurationView, sample: Sample) -> ImageRequest:
    """The request to a source for a picture of ``sample``, whose caption is the final one."""
    other_captions = [other.caption for other in view.pool(sample.image_id)]
    captions = tuple(dict.fromkeys((sample.caption, *other_captions)))
    return ImageRequest(sample=sample, captions=captions, photos=view.photos(sample.sample_id))


def replacement(context: Context, candidate: Selected, picture: Picture) -> Edit:
    """The edit that puts a picture in."""
    return context.edit(candidate, "replace_image", value=str(picture.path), origin=picture.origin)


def picture_notes(picture: Picture) -> list[str]:
    """The notes of a source's answer, which reports count."""
    return [*picture.notes, *([f"{LEFT_ALONE}{picture.problem}"] if picture.path is None else [])]
