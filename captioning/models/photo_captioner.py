"""Captions of photos outside training, by any image-to-text model of transformers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional

from captioning.decoding.search import AbstractSearch
from captioning.decoding.words import bind_search, find_captions
from captioning.interfaces import AbstractStepper
from captioning.models.layers.image_text_parts import ImageTextParts
from captioning.models.layers.speaker import Generated, SpeakerState
from captioning.processors import PromptedProcessor
from captioning.ranges import Device, PositiveInt
from captioning.text.tokenizers.image_text import ImageTextTokenizer
from captioning.types import Prediction
from captioning.vision.image_text import load_image_text

WeightType = Literal["float32", "bfloat16", "float16"]


class PhotoCaptioner(AbstractStepper[SpeakerState]):
    """An image-to-text model that writes captions, or answers questions about photos.

    Args:
        pretrained: hub name or folder of the model.
        search: finds its captions; `captioning.decoding.generate.GenerateSearch` is its own.
        prompt: see `captioning.processors.prompt_format`.
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
        batch_size: PositiveInt = 16,
        device: Device = "auto",
        weights: WeightType = "float32",
    ) -> None:
        self.processor = PromptedProcessor(pretrained=pretrained, prompt=prompt, options=options)
        self.tokenizer = ImageTextTokenizer.of_model(name=pretrained, prompt=prompt)
        self.search = bind_search(search, self.tokenizer)
        self.batch_size = batch_size
        self.device = torch.device(best_device() if device == "auto" else device)
        network = load_image_text(pretrained, dtype=getattr(torch, weights)).to(self.device)
        self.parts = ImageTextParts(network, end_id=self.tokenizer.eos_id)
        self._settings = {"prompt": prompt, "options": dict(options or {}), "search": repr(search)}
        self._weights = weights

    @property
    def name(self) -> str:
        """Of the model, for origins of captions: its folder's or hub's last part."""
        return self.processor.folder.name

    @property
    def identity(self) -> str:
        """Name and hash of weights, prompt and search, as caches of captions are named."""
        digest = hashlib.sha256(json.dumps(self._settings, sort_keys=True, default=str).encode())
        digest.update(self._weights.encode())
        for parameter in self.parts.network.parameters():
            # a few numbers and the sum of each tensor tell models apart
            values = parameter.detach().flatten().float()
            digest.update(torch.cat([values[:8], values.sum()[None]]).cpu().numpy().tobytes())
        return f"{self.name}-{digest.hexdigest()[:16]}"

    def step(self, tokens: Tensor, state: SpeakerState) -> tuple[Tensor, SpeakerState]:
        """Log-probabilities ``(G, V)`` of the next token; the first call reads the photos."""
        logits, state = self.parts.speaker.step(tokens, state)
        return functional.log_softmax(logits.float(), dim=-1), state

    def generate_tokens(
        self, state: SpeakerState, *, end_ids: Sequence[int], **settings: Any
    ) -> Generated:
        """Captions by the network's own ``generate``."""
        return self.parts.speaker.generate(state.inputs, end_ids=end_ids, **settings)

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
                self.start(photos[part]),
                stepper=self,
                tokenizer=self.tokenizer,
                image_ids=names[part],
                device=self.device,
            )
        return results

    def start(self, photos: Sequence[Image.Image]) -> SpeakerState:
        """The memory before the first token of each photo's answer."""
        tensors = self.processor.joined([self.processor.read_photo(photo) for photo in photos])
        moved = {name: self._moved(value) for name, value in tensors.items()}
        return self.parts.speaker.start(self.parts.prompts(moved))

    def _moved(self, value: Tensor) -> Tensor:
        dtype = self.parts.network.dtype if value.is_floating_point() else value.dtype
        return value.to(self.device, dtype)


def best_device() -> str:
    """An accelerator if there is one."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return "cpu" if accelerator is None else accelerator.type
