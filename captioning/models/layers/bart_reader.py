"""BART over whole batches: attention over padded sequences, all other layers over real tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from captioning.models.layers.bart_stepper import keys_and_values
from captioning.models.layers.on_device import on_device
from captioning.sample_dropout import by_sequence, by_token

Pair = tuple[Tensor, Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Which places of padded sequences are real; rows are those places, sequence by sequence.

    Attributes:
        shape: ``(B, T)`` of the sequences.
        index: ``(M,) int64`` positions of the real places in ``B * T``.
        places: ``(M,) int64`` the same once padding is moved to the sequences' ends, so that what
            is drawn for a place does not depend on the batch's longest sequence.
        exist: ``(B, T) bool``, False on padding at the ends.
    """

    shape: tuple[int, int]
    index: Tensor
    places: Tensor
    exist: Tensor

    @classmethod
    def of(cls, exist: Tensor, device: torch.device) -> Rows:
        """Of a mask ``(B, T) bool`` on the host, where the places are counted, for ``device``."""
        index = exist.flatten().nonzero().squeeze(1)
        first = torch.arange(exist.shape[1]) < exist.sum(1, keepdim=True)
        return cls(
            shape=(exist.shape[0], exist.shape[1]),
            index=on_device(index, device),
            places=on_device(first.flatten().nonzero().squeeze(1), device),
            exist=on_device(first, device),
        )

    @property
    def sequences(self) -> Tensor:
        """``(M,) int64`` the sequence of each row."""
        return self.places // self.shape[1]

    @property
    def steps(self) -> Tensor:
        """``(M,) int64`` the place of each row in its sequence."""
        return self.places % self.shape[1]

    def pack(self, padded: Tensor) -> Tensor:
        """``(B, T, D)`` to rows ``(M, D)``."""
        return padded.flatten(0, 1).index_select(0, self.index)

    def collect(self, spread: Tensor) -> Tensor:
        """What `spread` gave, or was computed of it, as rows again."""
        return spread.flatten(0, 1).index_select(0, self.places)

    def spread(self, rows: Tensor) -> Tensor:
        """Rows ``(M, D)`` to ``(B, T, D)``, with 0 on padding at the ends."""
        padded = rows.new_zeros(self.shape[0] * self.shape[1], rows.shape[1])
        return padded.index_copy(0, self.places, rows).view(*self.shape, -1)


def encode(bart: Any, inputs: Tensor, rows: Rows) -> Tensor:
    """The encoder's states of embedded inputs; padding is never attended to.

    Args:
        bart: a ``BartForConditionalGeneration``.
        inputs: ``(N, S, D)``, normalised.
        rows: their real places.

    Returns:
        ``(N, S, D)``, 0 on padding, which is at the ends (`Rows.exist`).
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
    index: Tensor,
) -> Tensor:
    """The decoder's states of captions; each token attends to itself and earlier ones.

    Args:
        bart: a ``BartForConditionalGeneration``.
        tokens: ``(B, T) int64``.
        rows: their real places; padding stands at the end.
        memory: ``(N, S, D)`` the encoder's states.
        exist: ``(N, S) bool``, False on padding.
        index: ``(B,)`` the memory of each caption.

    Returns:
        ``(M, D)`` at the real places, caption by caption.

    Raises:
        ValueError: captions longer than the decoder.
    """
    decoder = bart.model.decoder
    check_length(decoder, tokens.shape[1], "a caption", "the tokenizer's or the search's limit")
    inputs = decoder.embed_tokens(tokens) + positions(decoder, tokens.shape[1])
    mask = exist[index, None, None]
    with by_token(rows.sequences, rows.steps):
        hidden = _dropped(decoder, decoder.layernorm_embedding(rows.pack(inputs)))
        for layer in decoder.layers:
            attended = _attended(layer.self_attn, hidden, rows)
            hidden = layer.self_attn_layer_norm(hidden + _dropped(layer, attended))
            # computed once a memory, whatever the number of its captions
            keys, values = keys_and_values(layer.encoder_attn, memory)
            memory_pair = (keys[index], values[index])
            attended = _attended(layer.encoder_attn, hidden, rows, pair=memory_pair, mask=mask)
            hidden = layer.encoder_attn_layer_norm(hidden + _dropped(layer, attended))
            hidden = _fed_forward(layer, hidden)
    return hidden


def logits(bart: Any, states: Tensor, num_words: int) -> Tensor:
    """``(M, num_words)`` of states ``(M, D)``: of the first tokens of the vocabulary."""
    weight, bias = bart.lm_head.weight[:num_words], bart.final_logits_bias[0, :num_words]
    return functional.linear(states, weight, bias)


def positions(stack: Any, length: int) -> Tensor:
    """``(T, D)`` embeddings of the first ``length`` positions of an encoder or decoder."""
    offset = stack.embed_positions.offset
    return stack.embed_positions.weight[offset : offset + length]


def check_length(stack: Any, length: int, text_kind: str, remedy: str) -> None:
    """Refuse more tokens than an encoder or decoder has positions for.

    Raises:
        ValueError: there are more.
    """
    limit = stack.embed_positions.num_embeddings - stack.embed_positions.offset
    if length > limit:
        raise ValueError(
            f"{text_kind} of {length} tokens, begin and end counted, is longer than the model's "
            f"{limit} places: lower {remedy}"
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
    """Attention of rows to the keys and values ``pair``; None: to themselves, causal if no mask."""
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
    """``(B, T, D)`` by head: ``(B, heads, T, d)``."""
    return padded.unflatten(2, (attention.num_heads, attention.head_dim)).transpose(1, 2)


def _dropped(block: Any, states: Tensor) -> Tensor:
    return functional.dropout(states, block.dropout, block.training)
