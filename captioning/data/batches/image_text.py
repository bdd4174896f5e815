"""Photos and prompts as the processor of an image-to-text model of transformers prepares them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from captioning.data.batches.base import AbstractBatchReader, Epoch, Read, Tensors
from captioning.data.data_record import shown
from captioning.types import Sample
from captioning.vision.extremes import refused_photos
from captioning.vision.prompt_tensors import PromptedProcessor


class ImageTextReader(AbstractBatchReader):
    """``Batch.extras`` gets what the processor makes of each photo and the prompt.

    `captioning.vision.prompt_tensors.PromptedProcessor` says which tensors these are.

    Args:
        pretrained: hub name or folder of the model.
        prompt, template: see `captioning.text.prompts.prompt_format`.
        options: of the processor's call, such as ``{size: {height: 224, width: 224}}``.

    Raises:
        FileNotFoundError, ConnectionError: no such model.
        ValueError: its processor does not fit.
    """

    def __init__(
        self,
        *,
        pretrained: str,
        prompt: str = "",
        options: Mapping[str, Any] | None = None,
        template: Mapping[str, Any] | None = None,
    ) -> None:
        self.processor = PromptedProcessor(
            pretrained=pretrained, prompt=prompt, options=options, template=template
        )

    @property
    def pictures(self) -> str:
        """``"pixels"``."""
        return "pixels"

    def check_photos(self, paths: Iterable[Path]) -> None:
        """Try photos of extreme form, which some processors refuse.

        Raises:
            ValueError: refused photos; names the first ones.
        """
        refused = refused_photos(paths, self._problem)
        if refused:
            first, *others = refused
            more = f"; so are {len(others)} more: {shown(map(str, others))}" if others else ""
            raise ValueError(f"{refused[first]}{more}")

    def _problem(self, path: Path) -> str:
        try:
            self.processor.read_file(path)
        except (OSError, ValueError) as error:
            return str(error)
        return ""

    def open(self, epoch: Epoch) -> Read | None:
        """Reads each photo anew."""
        return partial(_read, self.processor) if epoch.has_photos else None


def _read(
    processor: PromptedProcessor,
    captions: Sequence[Sample],
    photos: Sequence[Sample],
    batch: Tensors,
) -> Tensors:
    return processor.joined([processor.read_file(photo.image_path) for photo in photos])
