"""The memory of a transformer decoder under search: keys and values kept by image, never reordered.

The tokens that the hypotheses of an image have read form a tree. Every token is kept once, at its
node; a hypothesis is a path, given by a mask over the nodes. So a decoder reads the hypotheses of
an image as if they were neighbours in one sequence:

- the search's reordering moves a few rows of the mask, not the keys and values;
- keys and values of the image have one copy an image, not one a hypothesis;
- a decoder of the transformers library runs with its own weights and code, as long as it takes a
  mask of four dimensions and the tokens' positions.

A step of K hypotheses an image adds K nodes, as many as a cache of K rows would add tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer, EncoderDecoderCache

from captioning.interfaces import AbstractDecoderState

# Number of steps that room is allocated for at a time, for each hypothesis.
ROOM = 8


@dataclass(slots=True)
class _Store:
    """Room for keys and values ``(I, heads, C, d)``, and the number of used nodes."""

    keys: Tensor
    values: Tensor
    used: int


class _TreeLayer(DynamicLayer):
    """One layer's nodes; new ones are written after the others, where there is room.

    A state and its successors share a store. The first to write after its nodes uses the room
    there; the next finds it used and moves to a store of its own. So a state never changes, however
    often it is stepped.
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
        """Add the nodes ``(I, heads, K, d)``; all nodes are returned."""
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
        """A new store with the present nodes, and room for further ones."""
        images, heads, new, size = key_states.shape
        room = (images, heads, before + ROOM * new, size)
        store = _Store(key_states.new_empty(room), value_states.new_empty(room), before)
        if before:
            store.keys[:, :, :before], store.values[:, :, :before] = self.keys, self.values
        return store

    def view(self) -> _TreeLayer:
        """The same nodes; additions to the view do not change this layer."""
        copied = _TreeLayer()
        copied.store, copied.keys, copied.values = self.store, self.keys, self.values
        copied.is_initialized = self.is_initialized
        return copied

    def of(self, images: Tensor) -> _TreeLayer:
        """The nodes of some of the images, in a separate store."""
        copied = _TreeLayer()
        copied.keys, copied.values = self.keys[images], self.values[images]
        copied.is_initialized = True
        return copied


@dataclass(frozen=True, slots=True, kw_only=True)
class HypothesisTree(AbstractDecoderState):
    """The memory of G hypotheses in blocks of equal size K, one block an image.

    Attributes:
        read: ``(I, K, N) bool`` which of the image's N nodes each hypothesis has read.
        length: tokens that each hypothesis has read: the position of its next one.
        layers: keys and values of the nodes, a layer of the decoder each.
        image_pairs: keys and values ``(I, heads, S, d)`` of the image, a pair a layer of the
            decoder; empty for a decoder that attends to its own tokens alone.
        images: ``(I, S, D)`` states that the pairs were computed from, or None.
        images_mask: ``(I, 1, 1, S)`` 0 where a state exists and very low elsewhere; None: all do.
        num_words: how many of the S states are of words that were read before the image.
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
        """One hypothesis an image that has read nothing.

        Args:
            num_layers: the decoder's number of layers.
            num_images: I.
            image_pairs: see the class.
            images: see the class.
            images_exist: ``(I, S) bool`` of ``images``; None: all exist.
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
        """Hypotheses by index; keys and values are not copied unless an image is dropped."""
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
        """The next state, which a decoder's step over one token a hypothesis then fills."""
        num_images, block, _ = self.read.shape
        new_nodes = torch.eye(block, dtype=torch.bool, device=self.read.device)
        return replace(
            self,
            read=torch.cat([self.read, new_nodes.expand(num_images, -1, -1)], dim=2),
            length=self.length + 1,
            layers=tuple(layer.view() for layer in self.layers),
        )

    def read_prompt(self, length: int) -> HypothesisTree:
        """As `grown`, for the first ``length`` tokens of the single hypothesis of each image.

        Raises:
            ValueError: tokens have been read already.
        """
        if self.length:
            raise ValueError(f"a prompt must be read first: got {self.length} tokens before it")
        num_images = len(self.read)
        read = torch.ones((num_images, 1, length), dtype=torch.bool, device=self.read.device)
        return replace(
            self, read=read, length=length, layers=tuple(layer.view() for layer in self.layers)
        )

    def cache(self) -> Cache:
        """The layers as transformers' decoders take them; the decoder's step fills them."""
        self_cache: Any = DynamicCache()
        self_cache.layers = list(self.layers)
        if not self.image_pairs:
            return self_cache
        cross_cache: Any = DynamicCache()
        cross_cache.layers = [_TreeLayer(_Store(k, v, k.shape[2])) for k, v in self.image_pairs]
        return EncoderDecoderCache(self_cache, cross_cache)

    def mask(self, dtype: torch.dtype) -> Tensor:
        """``(I, 1, K, N)`` 0 for the nodes that a hypothesis has read, very low for the others."""
        return additive_mask(self.read[:, None], dtype)


def additive_mask(allowed: Tensor, dtype: torch.dtype) -> Tensor:
    """A term for attention scores: 0 where attention is allowed, very low elsewhere."""
    zero = torch.zeros(allowed.shape, dtype=dtype, device=allowed.device)
    return zero.masked_fill(~allowed, torch.finfo(dtype).min)


def attention_weights(queries: Tensor, keys: Tensor, mask: Tensor | None) -> Tensor:
    """A value that fused attention does not return: its weights, a mean over heads.

    Args:
        queries: ``(I, heads, K, d)`` of the hypotheses.
        keys: ``(I, heads, S, d)``.
        mask: a term for the scores, such as `HypothesisTree.images_mask`.

    Returns:
        ``(I * K, S) float32``; rows sum to 1.
    """
    scores = (queries @ keys.transpose(2, 3)).float() * queries.shape[-1] ** -0.5
    scores = scores if mask is None else scores + mask.float()
    return scores.softmax(-1).mean(1).flatten(0, 1)
