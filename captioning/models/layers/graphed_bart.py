"""BART over whole batches on a GPU, encoder and decoder as one CUDA graph each."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from captioning.models.layers.bart_reader import Rows, check_length, encode, keeps_padding, read
from captioning.models.layers.cuda_graphs import GraphedPart, Room, trains_on_gpu
from captioning.models.layers.on_device import on_device
from captioning.runtime.sample_dropout import drops_by_sample


class GraphedBart:
    """`encode` and `read` of small batches, padded to the largest seen.

    Args:
        bart: a ``BartForConditionalGeneration``.
    """

    def __init__(self, bart: Any) -> None:
        self._bart = bart
        self._encoder = GraphedPart(bart.model.encoder, self._encode)
        self._decoder = GraphedPart(bart.model.decoder, self._read)
        self._inputs, self._captions = Room(), Room()

    def can_run(self, tensor: Tensor, num_places: int) -> bool:
        """Whether a batch of so many places is run by graphs where ``tensor`` is computed."""
        return (
            trains_on_gpu(tensor)
            and keeps_padding(num_places, tensor.device)
            and not drops_by_sample()
        )

    def encode(self, inputs: Tensor, exist: Tensor) -> tuple[Tensor, Tensor]:
        """The encoder's states and which of them exist.

        Args:
            inputs: ``(N, S, D)`` embedded and normalised.
            exist: ``(N, S) bool`` on the host, False on padding.

        Returns:
            ``(N, S, D)`` and ``(N, S) bool``, with padding at the ends.
        """
        number, length = exist.shape
        limit = self._bart.config.max_position_embeddings
        missing = self._inputs.missing(number, length, limit)
        rows = Rows.of(_padded_mask(exist, missing), inputs.device, whole=True)
        index = rows.places if rows.index is None else rows.index
        inputs = functional.pad(inputs, (0, 0, *missing))
        (states,) = self._encoder(inputs, index, rows.exist)
        return states[:number, :length], rows.exist[:number, :length]

    def read(
        self,
        tokens: Tensor,
        exist: Tensor,
        memory: Tensor,
        memory_exist: Tensor,
        index: Tensor | None,
    ) -> Tensor:
        """The decoder's states of captions.

        Args:
            tokens: ``(B, T) int64``.
            exist: ``(B, T) bool`` on the host, False on padding, which stands at the end.
            memory: ``(N, S, D)`` the encoder's states.
            memory_exist: ``(N, S) bool``, False on padding.
            index: ``(B,)`` the memory of each caption; None: each has its own, in order.

        Returns:
            ``(R, D)`` at the real places, caption by caption.

        Raises:
            ValueError: captions longer than the decoder.
        """
        decoder = self._bart.model.decoder
        number, length = tokens.shape
        check_length(decoder, length, "a caption", "the tokenizer's or the search's limit")
        if index is not None:
            memory, memory_exist = memory.index_select(0, index), memory_exist[index]
        limit = decoder.embed_positions.num_embeddings - decoder.embed_positions.offset
        missing = self._captions.missing(number, length, limit)
        # The encoder's room, so that batches of other lengths are of the same shape.
        (_, all_places), places = self._inputs.for_sizes(0, 0), memory.shape[1]
        more = (0, max(0, all_places - places), 0, missing[3])
        (states,) = self._decoder(
            functional.pad(tokens, missing),
            functional.pad(memory, (0, 0, *more)),
            _padded_mask(memory_exist, more),
        )
        all_length = length + missing[1]
        captions, steps = exist.nonzero().unbind(1)
        real = on_device(captions * all_length + steps, tokens.device)
        return states.index_select(0, real)

    def _encode(self, inputs: Tensor, index: Tensor, exist: Tensor) -> tuple[Tensor]:
        return (encode(self._bart, inputs, _all(exist, index)),)

    def _read(self, tokens: Tensor, memory: Tensor, exist: Tensor) -> tuple[Tensor]:
        every = torch.ones_like(tokens, dtype=torch.bool)
        return (read(self._bart, tokens, _all(every, None), memory, exist, None),)


def _padded_mask(exist: Tensor, missing: tuple[int, ...]) -> Tensor:
    """Added sequences have one place: attention to nothing would be NaN."""
    padded = functional.pad(exist, missing)
    padded[len(exist) :, :1] = True
    return padded


def _all(exist: Tensor, index: Tensor | None) -> Rows:
    """All places of sequences, in the order of ``index``."""
    places = torch.arange(exist.numel(), device=exist.device)
    number, length = exist.shape
    return Rows(shape=(number, length), index=index, places=places, real=None, exist=exist)
