"""Photos and prompts as the processor of an image-to-text model of transformers prepares them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from captioning.data.batches.base import AbstractBatchReader, Epoch, Read, Tensors
from captioning.types import Sample
from captioning.vision.photos import load_rgb
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

    def open(self, epoch: Epoch) -> Read | None:
        """Reads each photo anew."""
        return partial(_read, self.processor) if epoch.has_photos else None


def _read(
    processor: PromptedProcessor,
    captions: Sequence[Sample],
    photos: Sequence[Sample],
    batch: Tensors,
) -> Tensors:
    return processor.joined([processor.read_photo(load_rgb(p.image_path)) for p in photos])
