"""BART's decoder as searches step it."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import BartForConditionalGeneration

from captioning.interfaces import AbstractStepper
from captioning.models.layers.hypothesis_tree import HypothesisTree


class BartStepper(AbstractStepper):
    """Reads hypotheses of an image side by side, with the weights of a BART of transformers.

    Args:
        bart: the model, in evaluation mode. Its decoder's layers are called one by one, as its own
            ``forward`` would give the hypotheses of an image different positions.
    """

    def __init__(self, bart: BartForConditionalGeneration) -> None:
        self.bart = bart
        self.decoder = bart.model.decoder

    def start(self, images: Tensor, images_exist: Tensor | None = None) -> HypothesisTree:
        """The memory before the first token; keys and values of the images are made here, once.

        Args:
            images: ``(I, S, D)`` the encoder's output.
            images_exist: ``(I, S) bool``, False on padding; None: nothing is padding.
        """
        seen = [_keys_and_values(layer.encoder_attn, images) for layer in self.decoder.layers]
        return HypothesisTree.start(
            num_layers=len(seen),
            num_images=len(images),
            seen=seen,
            images=images,
            images_exist=images_exist,
            device=images.device,
        )

    def step(self, tokens: Tensor, state: HypothesisTree) -> tuple[Tensor, HypothesisTree]:
        """Log-probabilities of the next token."""
        decoder, after = self.decoder, state.grown()
        words = decoder.embed_tokens(tokens.view(len(state.read), -1))
        place = decoder.embed_positions.weight[state.length + decoder.embed_positions.offset]
        hidden = decoder.layernorm_embedding(words + place)
        cache, mask = after.cache(), after.mask(hidden.dtype)
        for layer in decoder.layers:
            hidden = layer(
                hidden,
                mask,
                state.images,
                encoder_attention_mask=state.images_mask,
                past_key_values=cache,
            )
        head, bias = self.bart.lm_head.weight, self.bart.final_logits_bias[0]
        logits = functional.linear(hidden.flatten(0, 1), head, bias)
        return functional.log_softmax(logits.to(torch.float32), dim=-1), after


def _keys_and_values(attention: nn.Module, images: Tensor) -> tuple[Tensor, Tensor]:
    """``(I, heads, S, d)`` each."""
    shape = (*images.shape[:2], -1, attention.head_dim)
    keys, values = attention.k_proj(images), attention.v_proj(images)
    return keys.view(shape).transpose(1, 2), values.view(shape).transpose(1, 2)
