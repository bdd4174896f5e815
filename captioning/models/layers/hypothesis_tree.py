"""Memory of a transformer decoder in search: keys and values stored per image, never reordered.

The tokens read by an image's hypotheses form a tree. Every token is stored once, at its
node; a hypothesis is a path, given by a mask over the nodes. A decoder thus reads the hypotheses
of an image like neighbours in one sequence:

- the search reorders a few rows of the mask, not the keys and values;
- keys and values of the image are stored once per image, not per hypothesis;
- a decoder of the transformers library runs with its own weights and code, if it accepts a
  four-dimensional mask and token positions.

A step of K hypotheses per image adds K nodes, as many as a cache of K rows would add tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer, EncoderDecoderCache

from captioning.interfaces import AbstractDecoderState

# Number of steps for which memory is allocated at a time, per hypothesis.
ROOM = 8


@dataclass(slots=True)
class _Store:
    """Allocated keys and values ``(I, heads, C, d)``, and the number of used nodes."""

    keys: Tensor
    values: Tensor
    used: int


class _TreeLayer(DynamicLayer):
    """Nodes of one layer; new nodes are appended in place while there is memory.

    A state and its successors share a store. The first state to append after its nodes uses the
    free memory; the next state finds it used and copies to its own store. A state thus never
    changes, however often it is stepped.
    """

    def __init__(self, store: _Store | None = None) -> None:
        super().__init__()
        self.keys: Any
        self.values: Any
        self.store = store
        if store is not None:
            self.keys = store.keys[:, :, : store.used]
            self.values = store.values[:, :, : store.used]
            self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        """Append nodes ``(I, heads, K, d)``, and return all nodes."""
        before = self.keys.shape[2] if self.is_initialized else 0
        after = before + key_states.shape[2]
        store = self.store
        if store is None or store.used != before or store.keys.shape[2] < after:
            store = self._moved(key_states, value_states, before)
        store.keys[:, :, before:after] = key_states
        store.values[:, :, before:after] = value_states
        store.used = after
        self.store, self.is_initialized = store, True
        self.keys, self.values = store.keys[:, :, :after], store.values[:, :, :after]
        return self.keys, self.values

    def _moved(self, key_states: Tensor, value_states: Tensor, before: int) -> _Store:
        """Copy the present nodes to a new store with free memory."""
        images, heads, new, size = key_states.shape
        room = (images, heads, before + ROOM * new, size)
        store = _Store(key_states.new_empty(room), value_states.new_empty(room), before)
        if before:
            store.keys[:, :, :before], store.values[:, :, :before] = self.keys, self.values
        return store

    def view(self) -> _TreeLayer:
        """Return a layer with the same nodes; appending to it does not change this layer."""
        copied = _TreeLayer()
        copied.store, copied.keys, copied.values = self.store, self.keys, self.values
        copied.is_initialized = self.is_initialized
        return copied

    def of(self, images: Tensor) -> _TreeLayer:
        """Return the nodes of some of the images, in a separate store."""
        copied = _TreeLayer()
        copied.keys, copied.values = self.keys[images], self.values[images]
        copied.is_initialized = True
        return copied


@dataclass(frozen=True, slots=True, kw_only=True)
class HypothesisTree(AbstractDecoderState):
    """Decoder memory of G hypotheses in blocks of equal size K, one block per image.

    Attributes:
        read: ``(I, K, N) bool`` which of the image's N nodes belong to each hypothesis.
        length: number of tokens read per hypothesis: the position of the next token.
        layers: keys and values of the nodes, one layer per decoder layer.
        image_pairs: keys and values ``(I, heads, S, d)`` of the image, one pair per decoder layer;
            empty for a decoder without cross-attention.
        images: ``(I, S, D)`` states from which the pairs were computed, or None.
        images_mask: ``(I, 1, 1, S)`` 0 at existing states, very low at padding; None: no padding.
        num_words: how many of the S states belong to words read before the image.
    """

    read: Tensor
    length: int
    layers: tuple[_TreeLayer, ...]
    image_pairs: tuple[tuple[Tensor, Tensor], ...] = ()
    images: Tensor | None = None
    images_mask: Tensor | None = None
    num_words: int = 0

    @classmethod
    def start(
        cls,
        *,
        num_layers: int,
        num_images: int,
        image_pairs: Sequence[tuple[Tensor, Tensor]] = (),
        images: Tensor | None = None,
        images_exist: Tensor | None = None,
        device: torch.device | str = "cpu",
    ) -> HypothesisTree:
        """Return the memory of one hypothesis per image that has read nothing.

        Args:
            num_layers: number of decoder layers.
            num_images: number of images I.
            image_pairs: see the class.
            images: see the class.
            images_exist: ``(I, S) bool`` mask of ``images``; None: no padding.
            device: device of the decoder.
        """
        mask = None
        if images is not None and images_exist is not None:
            mask = additive_mask(images_exist[:, None, None], images.dtype)
        return cls(
            read=torch.zeros((num_images, 1, 0), dtype=torch.bool, device=device),
            length=0,
            layers=tuple(_TreeLayer() for _ in range(num_layers)),
            image_pairs=tuple(image_pairs),
            images=images,
            images_mask=mask,
        )

    def select(self, index: Tensor) -> HypothesisTree:
        """Select hypotheses by index; keys and values are copied only if an image is dropped."""
        num_images, block, nodes = self.read.shape
        images = torch.unique_consecutive(index // block)
        read = self.read.flatten(0, 1)[index].view(len(images), len(index) // len(images), nodes)
        if len(images) == num_images:
            return replace(self, read=read)
        return replace(
            self,
            read=read,
            layers=tuple(layer.of(images) if nodes else layer for layer in self.layers),
            image_pairs=tuple((keys[images], values[images]) for keys, values in self.image_pairs),
            images=None if self.images is None else self.images[images],
            images_mask=None if self.images_mask is None else self.images_mask[images],
        )

    def grown(self) -> HypothesisTree:
        """Return the next state, to be filled by a decoder step with one token per hypothesis."""
        num_images, block, _ = self.read.shape
        new_nodes = torch.eye(block, dtype=torch.bool, device=self.read.device)
        return replace(
            self,
            read=torch.cat([self.read, new_nodes.expand(num_images, -1, -1)], dim=2),
            length=self.length + 1,
            layers=tuple(layer.view() for layer in self.layers),
        )

    def read_prompt(self, length: int) -> HypothesisTree:
        """Return the state after a prompt of ``length`` tokens, one hypothesis per image.

        Raises:
            ValueError: tokens were read before.
        """
        if self.length:
            raise ValueError(f"a prompt must come first: got {self.length} tokens before it")
        num_images = len(self.read)
        read = torch.ones((num_images, 1, length), dtype=torch.bool, device=self.read.device)
        return replace(
            self, read=read, length=length, layers=tuple(layer.view() for layer in self.layers)
        )

    def cache(self) -> Cache:
        """The layers as a cache for transformers' decoders, which a step fills."""
        self_cache: Any = DynamicCache()
        self_cache.layers = list(self.layers)
        if not self.image_pairs:
            return self_cache
        cross_cache: Any = DynamicCache()
        cross_cache.layers = [_TreeLayer(_Store(k, v, k.shape[2])) for k, v in self.image_pairs]
        return EncoderDecoderCache(self_cache, cross_cache)

    def mask(self, dtype: torch.dtype) -> Tensor:
        """Return ``(I, 1, K, N)``: 0 at a hypothesis' own nodes, very low at other nodes."""
        return additive_mask(self.read[:, None], dtype)


def additive_mask(allowed: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a mask to add to attention scores: 0 where allowed, very low elsewhere."""
    zero = torch.zeros(allowed.shape, dtype=dtype, device=allowed.device)
    return zero.masked_fill(~allowed, torch.finfo(dtype).min)


def attention_weights(queries: Tensor, keys: Tensor, mask: Tensor | None) -> Tensor:
    """Return attention weights averaged over heads, which fused attention does not return.

    Args:
        queries: ``(I, heads, K, d)`` of the hypotheses.
        keys: ``(I, heads, S, d)``.
        mask: mask to add to scores, such as `HypothesisTree.images_mask`.

    Returns:
        ``(I * K, S) float32``; rows sum to 1.
    """
    scores = (queries @ keys.transpose(2, 3)).float() * queries.shape[-1] ** -0.5
    scores = scores if mask is None else scores + mask.float()
    return scores.softmax(-1).mean(1).flatten(0, 1)
