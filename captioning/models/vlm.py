"""Any image-to-text model of transformers as a captioner: GIT, BLIP-2, LLaVA, Qwen-VL, ..."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from captioning.models.base import AbstractCaptioner
from captioning.models.layers.cross_entropy import padded_caption_losses
from captioning.models.layers.image_text_parts import ImageTextParts
from captioning.models.layers.low_rank import merged_low_rank
from captioning.models.layers.speaker import Generated, SpeakerState
from captioning.processors import COUNTS, PREFIX, image_text_folder, load_processor
from captioning.ranges import DropRate
from captioning.types import Batch, CaptionLosses
from captioning.vision.image_text import load_image_text

WeightType = Literal["float32", "bfloat16", "float16"]


class Vlm(AbstractCaptioner[SpeakerState]):
    """A network of transformers with its own processor.

    Batches come from `captioning.data.batches.image_text.ImageTextReader`.

    Args:
        pretrained: hub name or folder of the model.
        label_smoothing: of the loss that is back-propagated.
        checkpointing: compute layers again in the backward pass instead of keeping their outputs.
        weights: type of the network's weights. Half precision halves their memory; fine-tune only
            low-rank additions then (``model.lora``), which stay in single precision.
        feature_size: not used.
        **captioner: see `AbstractCaptioner`.

    Raises:
        FileNotFoundError, ConnectionError: no such model.
        ValueError: weights that are missing, or a vocabulary of another size.
    """

    def __init__(
        self,
        *,
        pretrained: str,
        label_smoothing: DropRate = 0.0,
        checkpointing: bool = False,
        weights: WeightType = "float32",
        feature_size: int = 0,
        **captioner: Any,
    ) -> None:
        del feature_size
        super().__init__(**captioner)
        self.network = load_image_text(pretrained, dtype=getattr(torch, weights)).train()
        self.pretrained, self.label_smoothing = pretrained, label_smoothing
        if checkpointing:
            self.network.gradient_checkpointing_enable({"use_reentrant": False})
        self.parts = ImageTextParts(self.network, end_id=self.tokenizer.eos_id)

    def _prompts(self, batch: Batch) -> dict[str, Tensor]:
        """What the processor made of the batch's photos.

        Raises:
            ValueError: the batch comes from another reader.
        """
        tensors = {n: value for n, value in batch.extras.items() if n.startswith(PREFIX)}
        if not tensors:
            raise ValueError("model=vlm reads photos by its own processor: choose features=vlm")
        return tensors

    def losses(self, batch: Batch) -> CaptionLosses:
        """Cross-entropy of the captions' tokens and their end; the prompt has none."""
        tokens, exist = batch.caption_tokens()
        tensors = self._prompts(batch)
        if self.parts.reads_photos:
            of_photos = self.parts.prompts(tensors)
            prompts = rows_of(of_photos, batch.image_index)
        else:
            prompts = self.parts.prompts(rows_of(tensors, batch.image_index))
        logits = self.parts.speaker.read(prompts, tokens[:, 1:-1], exist[:, 1:-1])
        return padded_caption_losses(logits.float(), batch, self.label_smoothing)

    def start(self, batch: Batch) -> SpeakerState:
        """The memory before the first token; photos are read with it."""
        return self.parts.speaker.start(self.parts.prompts(self._prompts(batch)))

    def step(self, tokens: Tensor, state: SpeakerState) -> tuple[Tensor, SpeakerState]:
        """Log-probabilities of the next token; the first call reads photos and prompts."""
        logits, state = self.parts.speaker.step(tokens, state)
        return functional.log_softmax(logits.float(), dim=-1), state

    def generate_tokens(
        self, state: SpeakerState, *, end_ids: Sequence[int], **settings: Any
    ) -> Generated:
        """Captions by the network's own ``generate``, see `Speaker.generate`."""
        return self.parts.speaker.generate(state.inputs, end_ids=end_ids, **settings)

    def save_pretrained(self, folder: str | Path) -> None:
        """Write network and processor in transformers' format, low-rank additions merged."""
        network: Any = merged_low_rank(self.network)
        network.save_pretrained(folder)
        load_processor(image_text_folder(self.pretrained)).save_pretrained(folder)


def rows_of(tensors: dict[str, Tensor], image_index: Tensor) -> dict[str, Tensor]:
    """The tensors of captions from those of their photos.

    Args:
        tensors: of I photos; one of several rows a photo has its ``counts (I,)`` beside it.
        image_index: ``(B,)`` the photo of each caption.
    """
    rows = {}
    for name, value in tensors.items():
        if name.endswith(COUNTS):
            continue
        counts = tensors.get(f"{name}{COUNTS}")
        if counts is None:
            rows[name] = value[image_index]
        else:
            parts = value.split(counts.tolist())
            rows[name] = torch.cat([parts[number] for number in image_index.tolist()])
    return rows
