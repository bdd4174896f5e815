"""Captions of photos outside training, by any image-to-text model of transformers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from PIL import Image

from captioning.config.ranges import Device, PositiveInt
from captioning.decoding.search import AbstractSearch
from captioning.decoding.words_to_tokens import bind_search, find_captions
from captioning.models.layers.image_text_parts import ImageTextParts
from captioning.models.layers.speaker import SpeakerState
from captioning.runtime.devices import chosen_device
from captioning.runtime.processors import WeightType, load_image_text
from captioning.text.tokenizers.image_text import ImageTextTokenizer
from captioning.types import Prediction
from captioning.vision.prompt_tensors import PromptedProcessor


class PhotoCaptioner:
    """An image-to-text model that writes captions.

    Args:
        pretrained: hub name or folder of the model.
        search: finds its captions; `captioning.decoding.generate.GenerateSearch` is its own.
        prompt, template: see `captioning.text.prompts.prompt_format`.
        options: of the processor's call.
        batch_size: photos at once.
        device: ``"auto"`` takes an accelerator if there is one.
        weights: type of the weights; half precision is for accelerators.

    Raises:
        FileNotFoundError, ConnectionError: no such model.
        ValueError: weights that are missing, or a processor that does not fit.
    """

    def __init__(
        self,
        *,
        pretrained: str,
        search: AbstractSearch,
        prompt: str = "",
        options: Mapping[str, Any] | None = None,
        template: Mapping[str, Any] | None = None,
        batch_size: PositiveInt = 16,
        device: Device = "auto",
        weights: WeightType = "float32",
    ) -> None:
        self.processor = PromptedProcessor(
            pretrained=pretrained, prompt=prompt, options=options, template=template
        )
        self.tokenizer = ImageTextTokenizer.of_model(
            name=pretrained, prompt=prompt, template=template
        )
        self.search = bind_search(search, self.tokenizer)
        self.batch_size = batch_size
        self.device = chosen_device(device)
        network = load_image_text(pretrained, dtype=getattr(torch, weights)).to(self.device)
        self.parts = ImageTextParts(network)

    @torch.inference_mode()
    def captions(
        self, photos: Sequence[Image.Image], *, keys: Sequence[str] | None = None
    ) -> list[list[Prediction]]:
        """Captions of each photo, best first or in the order in which they were drawn.

        Args:
            photos: RGB, of any size.
            keys: of the photos, for random draws and as ``image_id``; None: their numbers.
        """
        names = [str(number) for number in range(len(photos))] if keys is None else list(keys)
        results: list[list[Prediction]] = []
        for first in range(0, len(photos), self.batch_size):
            part = slice(first, first + self.batch_size)
            results += find_captions(
                self.search,
                self._start(photos[part]),
                stepper=self.parts.speaker,
                tokenizer=self.tokenizer,
                image_ids=names[part],
                device=self.device,
            )
        return results

    def _start(self, photos: Sequence[Image.Image]) -> SpeakerState:
        return self.parts.start(
            self.processor.joined([self.processor.read_photo(photo) for photo in photos])
        )
