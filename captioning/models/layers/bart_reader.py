"""Apply BART to whole batches: padded sequences in attention, real tokens in other layers.

On a GPU, small batches keep their padding in all layers, see `keeps_padding`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from captioning.models.layers.bart_stepper import keys_and_values
from captioning.models.layers.on_device import on_device
from captioning.runtime.sample_dropout import by_sequence, by_token

Pair = tuple[Tensor, Tensor]
# With at most this many tokens, starting a layer's operations takes longer than computing them.
MOST_PADDED = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Positions of padded sequences that are computed: only real tokens, or all.

    Attributes:
        shape: ``(B, T)`` of the sequences.
        index: ``(M,) int64`` row positions in ``B * T``, sequence by sequence; None: all
            positions in order.
        places: ``(M,) int64`` positions after padding is moved to the end, so that random
            draws of a position do not depend on the batch's longest sequence.
        real: ``(R,) int64`` rows of real tokens; None: all rows.
        exist: ``(B, T) bool``, False on padding at the end.
    """

    shape: tuple[int, int]
    index: Tensor | None
    places: Tensor
    real: Tensor | None
    exist: Tensor

    @classmethod
    def of(cls, exist: Tensor, device: torch.device, *, whole: bool = False) -> Rows:
        """Build rows for ``device`` from a mask ``(B, T) bool`` on the CPU.

        ``whole``: compute padding, too, whatever the number of positions.
        """
        first = torch.arange(exist.shape[1]) < exist.sum(1, keepdim=True)
        real, every = first.flatten().nonzero().squeeze(1), torch.arange(exist.numel())
        index, places = exist.flatten().nonzero().squeeze(1), real
        if whole or keeps_padding(exist.numel(), device):
            order = exist.logical_not().byte().argsort(dim=1, stable=True)
            index, places = every.view_as(exist).gather(1, order).flatten(), every
        return cls(
            shape=(exist.shape[0], exist.shape[1]),
            index=None if index.equal(every) else on_device(index, device),
            places=on_device(places, device),
            real=None if len(real) == len(places) else on_device(real, device),
            exist=on_device(first, device),
        )

    @property
    def sequences(self) -> Tensor:
        """``(M,) int64`` sequence of each row."""
        return self.places // self.shape[1]

    @property
    def steps(self) -> Tensor:
        """``(M,) int64`` position of each row in its sequence."""
        return self.places % self.shape[1]

    def pack(self, padded: Tensor) -> Tensor:
        """Select rows ``(M, D)`` from ``(B, T, D)``."""
        rows = padded.flatten(0, 1)
        return rows if self.index is None else rows.index_select(0, self.index)

    def collect(self, spread: Tensor) -> Tensor:
        """Undo `spread`: return its result, or values computed from it, as rows."""
        rows = spread.flatten(0, 1)
        return rows if self._are_all else rows.index_select(0, self.places)

    def spread(self, rows: Tensor) -> Tensor:
        """Scatter rows ``(M, D)`` to ``(B, T, D)``; padding at the end has arbitrary values."""
        if not self._are_all:
            padded = rows.new_zeros(self.shape[0] * self.shape[1], rows.shape[1])
            rows = padded.index_copy(0, self.places, rows)
        return rows.view(*self.shape, -1)

    def without_padding(self, rows: Tensor) -> Tensor:
        """Select the real rows ``(R, D)`` from rows ``(M, D)``."""
        return rows if self.real is None else rows.index_select(0, self.real)

    @property
    def _are_all(self) -> bool:
        return len(self.places) == self.shape[0] * self.shape[1]


def keeps_padding(num_places: int, device: torch.device) -> bool:
    """Whether layers compute padding, too.

    Leaving out padding saves work on a CPU. It needs some 250 operations per step, whose start on a
    GPU takes longer than the padding of a small batch.
    """
    return device.type == "cuda" and num_places <= MOST_PADDED


def encode(bart: Any, inputs: Tensor, rows: Rows) -> Tensor:
    """Return the encoder's states of embedded inputs, without attention to padding.

    Args:
        bart: a ``BartForConditionalGeneration``.
        inputs: ``(N, S, D)``, normalised.
        rows: positions of real tokens.

    Returns:
        ``(N, S, D)`` with arbitrary values in padding at the end (`Rows.exist`).
    """
    mask = rows.exist[:, None, None]
    encoder = bart.model.encoder
    with by_token(rows.sequences, rows.steps):
        hidden = _dropped(encoder, rows.pack(inputs))
        for layer in encoder.layers:
            attended = _attended(layer.self_attn, hidden, rows, mask=mask)
            hidden = layer.self_attn_layer_norm(hidden + _dropped(layer, attended))
            hidden = _fed_forward(layer, hidden)
    return rows.spread(hidden)


def read(
    bart: Any,
    tokens: Tensor,
    rows: Rows,
    memory: Tensor,
    exist: Tensor,
    index: Tensor | None,
) -> Tensor:
    """Return the decoder's states of captions, with causal attention.

    Args:
        bart: a ``BartForConditionalGeneration``.
        tokens: ``(B, T) int64``.
        rows: positions of real tokens; padding is at the end.
        memory: ``(N, S, D)`` encoder states.
        exist: ``(N, S) bool``, False on padding.
        index: ``(B,)`` encoder state of each caption; None: one per caption, in order.

    Returns:
        ``(R, D)`` at the real positions, caption by caption.

    Raises:
        ValueError: captions longer than the decoder's maximum.
    """
    decoder = bart.model.decoder
    check_length(decoder, tokens.shape[1], "a caption", "the tokenizer's or the search's limit")
    inputs = decoder.embed_tokens(tokens) + positions(decoder, tokens.shape[1])
    mask = (exist if index is None else exist[index])[:, None, None]
    with by_token(rows.sequences, rows.steps):
        hidden = _dropped(decoder, decoder.layernorm_embedding(rows.pack(inputs)))
        for layer in decoder.layers:
            attended = _attended(layer.self_attn, hidden, rows)
            hidden = layer.self_attn_layer_norm(hidden + _dropped(layer, attended))
            # computed once per encoder state, whatever the number of its captions
            pair = keys_and_values(layer.encoder_attn, memory)
            if index is not None:
                pair = (pair[0][index], pair[1][index])
            attended = _attended(layer.encoder_attn, hidden, rows, pair=pair, mask=mask)
            hidden = layer.encoder_attn_layer_norm(hidden + _dropped(layer, attended))
            hidden = _fed_forward(layer, hidden)
    return rows.without_padding(hidden)


def logits(bart: Any, states: Tensor, num_words: int) -> Tensor:
    """Return logits ``(R, num_words)`` of states ``(R, D)`` for the vocabulary's first tokens."""
    weight, bias = bart.lm_head.weight[:num_words], bart.final_logits_bias[0, :num_words]
    return functional.linear(states, weight, bias)


def positions(stack: Any, length: int) -> Tensor:
    """Return embeddings ``(T, D)`` of the first ``length`` positions."""
    offset = stack.embed_positions.offset
    return stack.embed_positions.weight[offset : offset + length]


def check_length(stack: Any, length: int, text_kind: str, remedy: str) -> None:
    """Raise an error if a text has more tokens than the model has positions.

    Raises:
        ValueError: the text is too long.
    """
    limit = stack.embed_positions.num_embeddings - stack.embed_positions.offset
    if length > limit:
        raise ValueError(
            f"{text_kind} of {length} tokens, including begin and end, exceeds the model's "
            f"{limit} positions: lower {remedy}"
        )


def _fed_forward(layer: Any, hidden: Tensor) -> Tensor:
    inner = layer.activation_fn(layer.fc1(hidden))
    inner = functional.dropout(inner, layer.activation_dropout, layer.training)
    return layer.final_layer_norm(hidden + _dropped(layer, layer.fc2(inner)))


def _attended(
    attention: Any,
    hidden: Tensor,
    rows: Rows,
    *,
    pair: Pair | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Attend from rows to keys and values ``pair``; None: causal self-attention."""
    queries = _by_head(attention, rows.spread(attention.q_proj(hidden)))
    if pair is None:
        keys, values = attention.k_proj(hidden), attention.v_proj(hidden)
        pair = (
            _by_head(attention, rows.spread(keys)),
            _by_head(attention, rows.spread(values)),
        )
    with by_sequence():
        attended = functional.scaled_dot_product_attention(
            queries,
            *pair,
            attn_mask=mask,
            dropout_p=attention.dropout if attention.training else 0.0,
            is_causal=mask is None,
        )
    return attention.out_proj(rows.collect(attended.transpose(1, 2).flatten(2)))


def _by_head(attention: Any, padded: Tensor) -> Tensor:
    """Split ``(B, T, D)`` by head: ``(B, heads, T, d)``."""
    return padded.unflatten(2, (attention.num_heads, attention.head_dim)).transpose(1, 2)


def _dropped(block: Any, states: Tensor) -> Tensor:
    return functional.dropout(states, block.dropout, block.training)
