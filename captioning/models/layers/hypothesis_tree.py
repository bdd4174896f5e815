"""The memory of a transformer decoder under search: keys and values kept by image, never reordered.

What the hypotheses of an image have read is a tree. Every token that was read is kept once, at its
node; a hypothesis is a path, told from the others by a mask over the nodes. So a decoder reads the
hypotheses of an image as if they were neighbours in one sequence:

- the search's reordering moves a few rows of the mask, not the keys and values;
- what is attended to in the image has one copy an image, not one a hypothesis;
- a decoder of the transformers library does it all with its own weights and code, as long as it
  takes a mask of four dimensions and the tokens' positions.

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

# Nodes for which room is made at a time, for each hypothesis.
ROOM = 8


@dataclass(slots=True)
class _Store:
    """Room for keys and values ``(I, heads, C, d)``, and how many nodes of it are taken."""

    keys: Tensor
    values: Tensor
    taken: int


class _TreeLayer(DynamicLayer):
    """One layer's nodes; new ones are written behind the others, where there is room.

    States that came from one another share a store. The first to write behind its nodes takes the
    room there; another one finds it taken and moves to a store of its own. So a state never
    changes, however often it is stepped.
    """

    def __init__(self, store: _Store | None = None) -> None:
        super().__init__()
        self.keys: Any
        self.values: Any
        self.store = store
        if store is not None:
            self.keys = store.keys[:, :, : store.taken]
            self.values = store.values[:, :, : store.taken]
            self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        """Add the nodes ``(I, heads, K, d)``; all nodes are returned."""
        before = self.keys.shape[2] if self.is_initialized else 0
        after = before + key_states.shape[2]
        store = self.store
        if store is None or store.taken != before or store.keys.shape[2] < after:
            store = self._moved(key_states, value_states, before)
        store.keys[:, :, before:after] = key_states
        store.values[:, :, before:after] = value_states
        store.taken = after
        self.store, self.is_initialized = store, True
        self.keys, self.values = store.keys[:, :, :after], store.values[:, :, :after]
        return self.keys, self.values

    def _moved(self, key_states: Tensor, value_states: Tensor, before: int) -> _Store:
        """A new store with the nodes so far, and room for those to come."""
        images, heads, new, size = key_states.shape
        room = (images, heads, before + ROOM * new, size)
        store = _Store(key_states.new_empty(room), value_states.new_empty(room), before)
        if before:
            store.keys[:, :, :before], store.values[:, :, :before] = self.keys, self.values
        return store

    def view(self) -> _TreeLayer:
        """The same nodes; what is added to the view is not seen here."""
        copied = _TreeLayer()
        copied.store, copied.keys, copied.values = self.store, self.keys, self.values
        copied.is_initialized = self.is_initialized
        return copied

    def of(self, images: Tensor) -> _TreeLayer:
        """The nodes of some of the images, in a store of their own."""
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
        seen: keys and values ``(I, heads, S, d)`` of what is attended to in the image, a pair a
            layer of the decoder; empty for a decoder that attends to nothing but its own tokens.
        images: ``(I, S, D)`` what they were made from, or None.
        images_mask: ``(I, 1, 1, S)`` 0 where it exists and very low elsewhere; None: all does.
    """

    read: Tensor
    length: int
    layers: tuple[_TreeLayer, ...]
    seen: tuple[tuple[Tensor, Tensor], ...] = ()
    images: Tensor | None = None
    images_mask: Tensor | None = None

    @classmethod
    def start(
        cls,
        *,
        num_layers: int,
        num_images: int,
        seen: Sequence[tuple[Tensor, Tensor]] = (),
        images: Tensor | None = None,
        images_exist: Tensor | None = None,
        device: torch.device | str = "cpu",
    ) -> HypothesisTree:
        """One hypothesis an image that has read nothing.

        Args:
            num_layers: of the decoder.
            num_images: I.
            seen: see the class.
            images: see the class.
            images_exist: ``(I, S) bool`` of ``images``, or None where all does.
            device: where the decoder lives.
        """
        mask = None
        if images is not None and images_exist is not None:
            mask = additive_mask(images_exist[:, None, None], images.dtype)
        return cls(
            read=torch.zeros((num_images, 1, 0), dtype=torch.bool, device=device),
            length=0,
            layers=tuple(_TreeLayer() for _ in range(num_layers)),
            seen=tuple(seen),
            images=images,
            images_mask=mask,
        )

    def select(self, index: Tensor) -> HypothesisTree:
        """Hypotheses by index; keys and values stay where they are while no image is dropped."""
        num_images, block, nodes = self.read.shape
        images = torch.unique_consecutive(index // block)
        read = self.read.flatten(0, 1)[index].view(len(images), len(index) // len(images), nodes)
        if len(images) == num_images:
            return replace(self, read=read)
        return replace(
            self,
            read=read,
            layers=tuple(layer.of(images) if nodes else layer for layer in self.layers),
            seen=tuple((keys[images], values[images]) for keys, values in self.seen),
            images=None if self.images is None else self.images[images],
            images_mask=None if self.images_mask is None else self.images_mask[images],
        )

    def grown(self) -> HypothesisTree:
        """The state that a decoder's step over one token a hypothesis turns into the next one."""
        num_images, block, _ = self.read.shape
        own = torch.eye(block, dtype=torch.bool, device=self.read.device)
        return replace(
            self,
            read=torch.cat([self.read, own.expand(num_images, -1, -1)], dim=2),
            length=self.length + 1,
            layers=tuple(layer.view() for layer in self.layers),
        )

    def read_prompt(self, length: int) -> HypothesisTree:
        """As `grown`, for the first ``length`` tokens of the one hypothesis of each image.

        Raises:
            ValueError: something has been read already.
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
        own: Any = DynamicCache()
        own.layers = list(self.layers)
        if not self.seen:
            return own
        cross: Any = DynamicCache()
        cross.layers = [_TreeLayer(_Store(k, v, k.shape[2])) for k, v in self.seen]
        return EncoderDecoderCache(own, cross)

    def mask(self, dtype: torch.dtype) -> Tensor:
        """``(I, 1, K, N)`` 0 for the nodes that a hypothesis has read, very low for the others."""
        return additive_mask(self.read[:, None], dtype)


def additive_mask(allowed: Tensor, dtype: torch.dtype) -> Tensor:
    """What is added to attention's scores: 0 where it is allowed, very low elsewhere."""
    zero = torch.zeros(allowed.shape, dtype=dtype, device=allowed.device)
    return zero.masked_fill(~allowed, torch.finfo(dtype).min)
