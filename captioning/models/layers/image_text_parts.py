"""Connect photos and prompts to the text decoder of an image-to-text model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from captioning.models.layers.speaker import Inputs, Speaker, SpeakerState
from captioning.text.prompts import ENDS_WITH_SEPARATOR
from captioning.vision.prompt_tensors import COUNTS, PREFIX, is_of_pixels, with_indices

WITH_QFORMER = ("blip-2", "instructblip")
# Networks with a separate text decoder; photos are read before it.
SPOKEN_BY = {
    "blip": "text_decoder",
    "blip-2": "language_model",
    "instructblip": "language_model",
    "kosmos-2": "text_model",
    "kosmos-2.5": "text_model",
}
# Networks whose attention depends on the prompt's end, so a shared prompt gives other losses.
UNSHARED = ("minimax_m3_vl", "unlimited_ocr")
# Name parts of layers without LoRA weights: they select experts or keys, or their
# weights are used outside the layer.
NOT_ADDED = {"gate", "router", "indexer", "altup"}
GIVEN = "mm_encoder_outputs"
"""Name of a network's input for the outputs of its image encoder, instead of pixels."""
OF_PHOTOS = ("vision", "visual", "image")  # in names within some decoders


class ImageTextParts:
    """A network of transformers, split into images, prompts and a `Speaker`.

    Most networks are their own speaker. BLIP, BLIP-2, InstructBLIP and Kosmos-2 have a separate
    text network; their photos are read here, once for all captions of a photo.

    Args:
        network: an image-to-text model of transformers.
    """

    def __init__(self, network: Any) -> None:
        self.network = network
        self.kind = network.config.model_type
        spoken = getattr(network, SPOKEN_BY[self.kind]) if self.kind in SPOKEN_BY else network
        self.speaker = Speaker(spoken, start_ids=_start_ids(spoken))

    @property
    def reads_photos(self) -> bool:
        """Whether `prompts` reads the photos, so one call per photo is enough."""
        return self.speaker.network is not self.network

    @property
    def shares_prompts(self) -> bool:
        """Whether captions of a photo may share its prompt in training."""
        return self.kind not in UNSHARED

    @property
    def attends(self) -> bool:
        """Whether the model cross-attends to positions in the photo (not a Q-Former's queries)."""
        has_encoder = bool(self.speaker.start_ids) and self.kind not in WITH_QFORMER
        return has_encoder or self.kind == "blip"

    def attend_step(
        self, tokens: Tensor, state: SpeakerState
    ) -> tuple[Tensor, SpeakerState, Tensor]:
        """Make `Speaker.attend_step`, with the weights ``(G, C)`` of the photo's states only.

        Raises:
            ValueError: prompts with photos at different positions.
        """
        log_probs, after, weights = self.speaker.attend_step(tokens, state)
        image_token = getattr(self.network.config, "image_token_id", None)
        if self.kind != "blip" and image_token is not None:
            places = after.inputs["input_ids"] == image_token
            if not (places == places[:1]).all():
                raise ValueError("attention needs equal prompts: use one photo per batch")
            weights = weights[:, places[0]]
            weights = weights / weights.sum(1, keepdim=True)
        return log_probs, after, weights

    def prompts(
        self, tensors: Mapping[str, Tensor], images: Mapping[str, Any] | None = None
    ) -> Inputs:
        """Return the speaker's inputs for I photos.

        Args:
            tensors: tensors from `captioning.vision.prompt_tensors.PromptedProcessor`.
            images: outputs of the image encoder (`GIVEN`), instead of pixels.
        """
        if images is not None:
            tensors = {n: v for n, v in tensors.items() if not is_of_pixels(n.removeprefix(PREFIX))}
        inputs: Inputs = {
            name.removeprefix(PREFIX): value
            for name, value in with_indices(self.kind, tensors).items()
            if not name.endswith(COUNTS)
        }
        if images is not None:
            inputs[GIVEN] = images
        if not self.speaker.start_ids:
            inputs = self._without_end(inputs)
        if self.kind == "blip":
            return self._of_blip(inputs)
        if self.kind in WITH_QFORMER:
            return self._of_qformer(inputs)
        return self._of_kosmos(inputs) if self.kind.startswith("kosmos") else inputs

    def language_layers(self, owner: nn.Module) -> list[str]:
        """Return names within ``owner`` of the language model's linear layers.

        The head and layers that select experts are left out.
        """
        text: Any = self.speaker.network if self.reads_photos else self.network.get_decoder()
        head = self.network.get_output_embeddings() or text.get_output_embeddings()
        layers = {
            id(layer)
            for name, layer in text.named_modules()
            if (isinstance(layer, nn.Linear) or type(layer).__name__ == "Conv1D")
            and layer is not head
            and not any(word in name for word in OF_PHOTOS)
            and not NOT_ADDED & {*name.split(".")}
        }
        return [name for name, layer in owner.named_modules() if id(layer) in layers]

    def start(self, tensors: Mapping[str, Tensor]) -> SpeakerState:
        """Return the memory before the first token of I photos; tensors may be on the CPU.

        Args:
            tensors: see `prompts`; they are moved to the network's device and pixels to its type.
        """
        device, dtype = self.network.device, self.network.dtype
        moved = {
            name: value.to(device, dtype if value.is_floating_point() else value.dtype)
            for name, value in tensors.items()
        }
        return self.speaker.start(self.prompts(moved))

    def _without_end(self, inputs: Inputs) -> Inputs:
        """Remove the end token that some tokenizers append even to prompts before a caption."""
        if self.kind not in ENDS_WITH_SEPARATOR:
            return inputs
        length = inputs["input_ids"].shape[1]
        return {
            name: value[:, :-1] if value.dim() == 2 and value.shape[1] == length else value
            for name, value in inputs.items()
        }

    def _of_blip(self, inputs: Inputs) -> Inputs:
        """Insert BLIP's begin token, which its tokenizer does not know."""
        states = self.network.vision_model(pixel_values=inputs["pixel_values"]).last_hidden_state
        ids = inputs["input_ids"].clone()
        ids[:, 0] = self.network.config.text_config.bos_token_id
        return {
            "input_ids": ids,
            "attention_mask": inputs["attention_mask"],
            "encoder_hidden_states": states,
            "encoder_attention_mask": states.new_ones(states.shape[:2], dtype=torch.long),
        }

    def _of_qformer(self, inputs: Inputs) -> Inputs:
        """Insert the Q-Former's outputs in the prompt's vectors, in place of image tokens."""
        names = ("pixel_values", "qformer_input_ids", "qformer_attention_mask")
        of_image = {name: inputs[name] for name in names if name in inputs}
        read = self.network.get_image_features(**of_image, return_dict=True).pooler_output
        vectors = self.network.get_input_embeddings()(inputs["input_ids"])
        places = (inputs["input_ids"] == self.network.config.image_token_id)[..., None]
        vectors = vectors.masked_scatter(places, read.to(vectors.dtype))
        return {"inputs_embeds": vectors, "attention_mask": inputs["attention_mask"]}

    def _of_kosmos(self, inputs: Inputs) -> Inputs:
        """Insert the photo's vectors in the prompt at the positions of a mask."""
        network = self.network
        if self.kind == "kosmos-2":
            states = network.vision_model(inputs.pop("pixel_values")).last_hidden_state
            states = network.vision_model.model.post_layernorm(states)
        else:
            patches = inputs.pop("flattened_patches")
            states = network.vision_model(flattened_patches=patches).last_hidden_state
            for name in ("width", "height"):  # of the patches, which the network does not read
                inputs.pop(name, None)
        vectors = nn.functional.normalize(states, dim=-1)
        return {**inputs, "image_embeds": network.image_to_text_projection(vectors)[0]}


def _start_ids(network: Any) -> tuple[int, ...]:
    """Return the start tokens of an encoder-decoder, including its forced first token."""
    if not network.config.is_encoder_decoder:
        return ()
    settings, text = network.generation_config, network.config.get_text_config(decoder=True)
    ids = []
    for name in ("decoder_start_token_id", "forced_bos_token_id"):
        value = getattr(settings, name, None)
        value = getattr(text, name, None) if value is None else value
        ids += [] if value is None else [int(value)]
    if not ids:
        raise ValueError(
            f"{type(network).__name__}: generation_config.json lacks decoder_start_token_id, the "
            f"token that begins texts; add it"
        )
    return tuple(ids)
