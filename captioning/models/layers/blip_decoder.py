"""BLIP's text decoder: a BERT that reads from left to right and attends to the image."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from transformers.models.blip.modeling_blip_text import BlipTextLMHeadModel

from captioning.models.layers.hypothesis_tree import HypothesisTree, attention_weights
from captioning.models.layers.wide_linear import wide_linear
from captioning.runtime.sample_dropout import replayed

Pair = tuple[Tensor, Tensor]


class BlipDecoder(nn.Module):
    """The weights of a decoder of transformers, for complete captions and for single tokens.

    Its own ``forward`` is not called. Here an image's keys and values are computed once for all of
    its captions and hypotheses, attention is torch's fused one, and words are predicted only at the
    places that need them; the numbers are the same.

    Args:
        text: the decoder.
        checkpointing: compute layers again in the backward pass instead of keeping their outputs.
    """

    def __init__(self, text: BlipTextLMHeadModel, *, checkpointing: bool = False) -> None:
        super().__init__()
        self.text: Any = text
        self.checkpointing = checkpointing
        self._layer_output: Any = _layer_output

    @property
    def layers(self) -> Any:
        """The layers, from the words up."""
        return self.text.bert.encoder.layer

    def project_images(self, images: Tensor) -> list[Pair]:
        """Keys and values ``(I, heads, S, d)`` of images ``(I, S, D)``, a pair a layer."""
        return [_keys_and_values(layer.crossattention.self, images) for layer in self.layers]

    def read(
        self, tokens: Tensor, image_pairs: list[Pair], image_index: Tensor, exist: Tensor | None
    ) -> Tensor:
        """States of captions; each token attends to itself and earlier ones.

        Args:
            tokens: ``(B, T) int64``; padding may stand at the end and gets states as well.
            image_pairs: see `project_images`.
            image_index: ``(B,)`` the image of each caption.
            exist: ``(I, S) bool``, False on padding of the images; None: all exist.

        Returns:
            ``(B, T, D)``.
        """
        hidden = self._embedded(tokens, 0)
        mask = None if exist is None else exist[image_index, None, None]
        for layer, (keys, values) in zip(self.layers, image_pairs, strict=True):
            pair = (keys[image_index], values[image_index])
            if self.checkpointing and torch.is_grad_enabled():
                output = self._layer_output
                options: dict[str, Any] = {"use_reentrant": False, "context_fn": replayed}
                hidden = checkpoint(output, layer, hidden, pair, mask, **options)
            else:
                hidden = self._layer_output(layer, hidden, pair, mask)
        return hidden

    def compile_layers(self) -> None:
        """Let torch compile the layers of `read`; batches differ in size and length."""
        self._layer_output = torch.compile(_layer_output, dynamic=True)

    def start(self, images: Tensor, exist: Tensor | None = None) -> HypothesisTree:
        """The memory before the first token, with the images' keys and values."""
        return HypothesisTree.start(
            num_layers=len(self.layers),
            num_images=len(images),
            image_pairs=self.project_images(images),
            images=images,
            images_exist=exist,
            device=images.device,
        )

    def read_on(
        self, tokens: Tensor, state: HypothesisTree, looks: list[Tensor] | None = None
    ) -> tuple[Tensor, HypothesisTree]:
        """States ``(G, D)`` of one more token ``(G,)`` of each hypothesis.

        Args:
            tokens: see above.
            state: the memory before them.
            looks: gets the attention ``(G, S)`` to the image of each layer, a mean over heads.
        """
        after = state.grown()
        hidden = self._embedded(tokens.unsqueeze(1), state.length).squeeze(1)
        mask, num_images = after.mask(hidden.dtype), len(state.read)
        for layer, nodes, image_pair in zip(
            self.layers, after.layers, state.image_pairs, strict=True
        ):
            attention = layer.attention.self
            rows = hidden.view(num_images, -1, hidden.shape[-1])
            read = nodes.update(*_keys_and_values(attention, rows))
            rows = _attended(layer.attention, rows, read, mask)
            if looks is not None:
                attention = layer.crossattention.self
                queries = _by_head(attention, attention.query(rows))
                looks.append(attention_weights(queries, image_pair[0], state.images_mask))
            rows = _attended(layer.crossattention, rows, image_pair, state.images_mask)
            hidden = layer.feed_forward_chunk(rows).flatten(0, 1)
        return hidden, after

    def logits(self, states: Tensor) -> Tensor:
        """``(M, V)`` of states ``(M, D)``."""
        head = self.text.cls.predictions
        product = functional.linear if torch.is_grad_enabled() else wide_linear
        return product(head.transform(states), head.decoder.weight, head.decoder.bias)

    def _embedded(self, tokens: Tensor, first: int) -> Tensor:
        """Tokens ``(B, T)`` at the places from ``first`` on: ``(B, T, D)``."""
        embeddings, last = self.text.bert.embeddings, first + tokens.shape[1]
        limit = embeddings.position_embeddings.num_embeddings
        if last > limit:
            raise ValueError(
                f"a caption of {last} tokens, prompt and end counted, is longer than the "
                f"decoder's {limit} places: lower the tokenizer's or the search's limit"
            )
        return embeddings(tokens, position_ids=embeddings.position_ids[:, first:last])


def _layer_output(layer: Any, hidden: Tensor, image_pair: Pair, mask: Tensor | None) -> Tensor:
    """A layer over complete captions."""
    text_pair = _keys_and_values(layer.attention.self, hidden)
    hidden = _attended(layer.attention, hidden, text_pair, None, causal=True)
    return layer.feed_forward_chunk(_attended(layer.crossattention, hidden, image_pair, mask))


def _keys_and_values(attention: Any, states: Tensor) -> Pair:
    """Keys and values ``(B, heads, T, d)`` of states ``(B, T, D)``."""
    return (
        _by_head(attention, attention.key(states)),
        _by_head(attention, attention.value(states)),
    )


def _by_head(attention: Any, states: Tensor) -> Tensor:
    """``(B, T, D)`` by head: ``(B, heads, T, d)``."""
    heads, size = attention.num_attention_heads, attention.attention_head_size
    return states.view(*states.shape[:-1], heads, size).transpose(1, 2)


def _attended(
    block: Any, hidden: Tensor, read: Pair, mask: Tensor | None, *, causal: bool = False
) -> Tensor:
    """Attention of ``hidden (B, T, D)`` to keys and values, added to it and normalised."""
    attention = block.self
    attended = functional.scaled_dot_product_attention(
        _by_head(attention, attention.query(hidden)),
        *read,
        attn_mask=mask,
        dropout_p=attention.dropout.p if attention.training else 0.0,
        is_causal=causal,
    )
    return block.output(attended.transpose(1, 2).flatten(2), hidden)
