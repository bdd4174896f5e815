"""BART's decoder as a stepper for searches."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from captioning.interfaces import AbstractStepper
from captioning.models.layers.hypothesis_tree import HypothesisTree, attention_weights
from captioning.models.layers.wide_linear import wide_linear


class BartStepper(AbstractStepper[HypothesisTree]):
    """Stepper that reads an image's hypotheses together, with weights of a transformers BART.

    Args:
        bart: a ``BartForConditionalGeneration`` in evaluation mode. Its decoder's ``forward``
            is not used: it would give an image's hypotheses different positions, and its
            products of few rows with large matrices are slow on CPUs (see `wide_linear`).
    """

    def __init__(self, bart: Any) -> None:
        self.bart = bart
        self.decoder = bart.model.decoder

    def start(self, images: Tensor, images_exist: Tensor | None = None) -> HypothesisTree:
        """Compute the images' keys and values, and return the memory before the first token.

        Args:
            images: ``(I, S, D)`` encoder output.
            images_exist: ``(I, S) bool``, False on padding; None: no padding.
        """
        image_pairs = [keys_and_values(layer.encoder_attn, images) for layer in self.decoder.layers]
        return HypothesisTree.start(
            num_layers=len(image_pairs),
            num_images=len(images),
            image_pairs=image_pairs,
            images=images,
            images_exist=images_exist,
            device=images.device,
        )

    def step(self, tokens: Tensor, state: HypothesisTree) -> tuple[Tensor, HypothesisTree]:
        """Return log-probabilities of the next token."""
        logits, after = self.next_logits(tokens, state)
        return functional.log_softmax(logits, dim=-1), after

    def next_logits(
        self, tokens: Tensor, state: HypothesisTree, looks: list[Tensor] | None = None
    ) -> tuple[Tensor, HypothesisTree]:
        """Return logits instead of log-probabilities; otherwise as `step`.

        Args:
            tokens: see `step`.
            state: see `step`.
            looks: receives each layer's attention ``(G, S)`` to the encoder states, averaged over
                heads.
        """
        decoder, after = self.decoder, state.grown()
        place = decoder.embed_positions.weight[state.length + decoder.embed_positions.offset]
        hidden = decoder.layernorm_embedding(decoder.embed_tokens(tokens) + place)
        mask, num_images = after.mask(hidden.dtype), len(state.read)
        for layer, nodes, image_pair in zip(
            decoder.layers, after.layers, state.image_pairs, strict=True
        ):
            attention = layer.self_attn
            read = nodes.update(
                _by_head(attention, attention.k_proj, hidden, num_images),
                _by_head(attention, attention.v_proj, hidden, num_images),
            )
            hidden = layer.self_attn_layer_norm(hidden + _attended(attention, hidden, read, mask))
            if looks is not None:
                attention = layer.encoder_attn
                queries = _by_head(attention, attention.q_proj, hidden, num_images)
                looks.append(attention_weights(queries, image_pair[0], state.images_mask))
            attended = _attended(layer.encoder_attn, hidden, image_pair, state.images_mask)
            hidden = layer.encoder_attn_layer_norm(hidden + attended)
            inner = layer.activation_fn(_product(layer.fc1, hidden))
            hidden = layer.final_layer_norm(hidden + _product(layer.fc2, inner))
        head, bias = self.bart.lm_head.weight, self.bart.final_logits_bias[0]
        return wide_linear(hidden, head, bias).to(torch.float32), after


def _product(layer: nn.Linear, rows: Tensor) -> Tensor:
    return wide_linear(rows, layer.weight, layer.bias)


def _by_head(attention: Any, layer: nn.Linear, hidden: Tensor, num_images: int) -> Tensor:
    """Apply a layer to ``hidden (G, D)`` and split by image and head: ``(I, heads, K, d)``."""
    product = _product(layer, hidden)
    return product.reshape(num_images, -1, attention.num_heads, attention.head_dim).transpose(1, 2)


def _attended(
    attention: Any, hidden: Tensor, read: tuple[Tensor, Tensor], mask: Tensor | None
) -> Tensor:
    """Attend from hypotheses ``hidden (G, D)`` to keys and values ``(I, heads, S, d)``."""
    keys, values = read
    queries = _by_head(attention, attention.q_proj, hidden, len(keys))
    attended = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
    return _product(attention.out_proj, attended.transpose(1, 2).reshape(hidden.shape))


def keys_and_values(attention: Any, images: Tensor) -> tuple[Tensor, Tensor]:
    """Return keys and values ``(I, heads, S, d)`` of images ``(I, S, D)``."""
    shape = (*images.shape[:2], -1, attention.head_dim)
    keys, values = attention.k_proj(images), attention.v_proj(images)
    return keys.view(shape).transpose(1, 2), values.view(shape).transpose(1, 2)
