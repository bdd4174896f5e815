"""BLIP's text decoder: a BERT that reads from left to right and looks at the image."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from transformers.models.blip.modeling_blip_text import BlipTextLMHeadModel

from captioning.models.layers.hypothesis_tree import HypothesisTree
from captioning.models.layers.wide_linear import wide_linear

Pair = tuple[Tensor, Tensor]


class BlipDecoder(nn.Module):
    """The weights of a decoder of transformers, read by whole captions and by single tokens.

    Its own ``forward`` is not called. Here an image's keys and values are made once for all of its
    captions and hypotheses, attention is torch's fused one, and words are predicted at the places
    that are asked for alone; the numbers are the same.

    Args:
        text: the decoder.
        checkpointing: compute layers again in the backward pass instead of keeping what they made.
    """

    def __init__(self, text: BlipTextLMHeadModel, *, checkpointing: bool = False) -> None:
        super().__init__()
        self.text = text
        self.checkpointing = checkpointing

    @property
    def layers(self) -> nn.ModuleList:
        """The layers, from the words up."""
        return self.text.bert.encoder.layer

    def look(self, images: Tensor) -> list[Pair]:
        """Keys and values ``(I, heads, S, d)`` of images ``(I, S, D)``, a pair a layer."""
        found = []
        for layer in self.layers:
            attention = layer.crossattention.self
            pair = (_by_head(attention, product(images)) for product in _of(attention))
            found.append(tuple(pair))
        return found

    def read(
        self, tokens: Tensor, seen: list[Pair], image_index: Tensor, exist: Tensor | None
    ) -> Tensor:
        """States of captions, each token's made of those up to it.

        Args:
            tokens: ``(B, T) int64``; padding may stand at the end and gets states as well.
            seen: see `look`.
            image_index: ``(B,)`` the image of each caption.
            exist: ``(I, S) bool``, False on padding of the images; None: all exist.

        Returns:
            ``(B, T, D)``.
        """
        hidden = self._embedded(tokens, 0)
        mask = None if exist is None else exist[image_index, None, None]
        for layer, (keys, values) in zip(self.layers, seen, strict=True):
            pair = (keys[image_index], values[image_index])
            if self.checkpointing and self.training:
                hidden = checkpoint(_whole, layer, hidden, pair, mask, use_reentrant=False)
            else:
                hidden = _whole(layer, hidden, pair, mask)
        return hidden

    def start(self, images: Tensor, exist: Tensor | None = None) -> HypothesisTree:
        """The memory before the first token; `look` with what search needs."""
        return HypothesisTree.start(
            num_layers=len(self.layers),
            num_images=len(images),
            seen=self.look(images),
            images=images,
            images_exist=exist,
            device=images.device,
        )

    def read_on(self, tokens: Tensor, state: HypothesisTree) -> tuple[Tensor, HypothesisTree]:
        """States ``(G, D)`` of one more token ``(G,)`` of each hypothesis."""
        after = state.grown()
        hidden = self._embedded(tokens.unsqueeze(1), state.length).squeeze(1)
        mask, num_images = after.mask(hidden.dtype), len(state.read)
        for layer, nodes, seen in zip(self.layers, after.layers, state.seen, strict=True):
            attention = layer.attention.self
            rows = hidden.view(num_images, -1, hidden.shape[-1])
            own = [_by_head(attention, product(rows)) for product in _of(attention)]
            read = nodes.update(*own)
            rows = _attended(layer.attention, rows, read, mask)
            rows = _attended(layer.crossattention, rows, seen, state.images_mask)
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
        return embeddings(tokens, past_key_values_length=first)


def _whole(layer: nn.Module, hidden: Tensor, seen: Pair, mask: Tensor | None) -> Tensor:
    """A layer over whole captions."""
    attention = layer.attention.self
    own = tuple(_by_head(attention, product(hidden)) for product in _of(attention))
    hidden = _attended(layer.attention, hidden, own, None, causal=True)
    return layer.feed_forward_chunk(_attended(layer.crossattention, hidden, seen, mask))


def _of(attention: nn.Module) -> tuple[nn.Linear, nn.Linear]:
    return attention.key, attention.value


def _by_head(attention: nn.Module, states: Tensor) -> Tensor:
    """``(B, T, D)`` by head: ``(B, heads, T, d)``."""
    heads, size = attention.num_attention_heads, attention.attention_head_size
    return states.view(*states.shape[:-1], heads, size).transpose(1, 2)


def _attended(
    block: nn.Module, hidden: Tensor, read: Pair, mask: Tensor | None, *, causal: bool = False
) -> Tensor:
    """What ``hidden (B, T, D)`` takes from keys and values, added and normalised."""
    attention = block.self
    found = functional.scaled_dot_product_attention(
        _by_head(attention, attention.query(hidden)),
        *read,
        attn_mask=mask,
        dropout_p=attention.dropout.p if attention.training else 0.0,
        is_causal=causal,
    )
    return block.output(found.transpose(1, 2).flatten(2), hidden)
