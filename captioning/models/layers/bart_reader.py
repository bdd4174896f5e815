"""BART over whole batches: attention over padded sequences, all other layers over real tokens.

On a GPU small batches keep their padding, see `keeps_padding`.
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
# Layers of so many tokens or less take a GPU no longer than their start takes the host.
MOST_PADDED = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Which places of padded sequences are computed: the real ones, or all.

    Attributes:
        shape: ``(B, T)`` of the sequences.
        index: ``(M,) int64`` positions of the rows in ``B * T``, sequence by sequence; None: all
            as they stand.
        places: ``(M,) int64`` the same once padding is moved to the sequences' ends, so that the
            draws for a position do not depend on the batch's longest sequence.
        real: ``(R,) int64`` the rows that are real; None: all.
        exist: ``(B, T) bool``, False on padding at the ends.
    """

    shape: tuple[int, int]
    index: Tensor | None
    places: Tensor
    real: Tensor | None
    exist: Tensor

    @classmethod
    def of(cls, exist: Tensor, device: torch.device, *, whole: bool = False) -> Rows:
        """Of a mask ``(B, T) bool`` on the host, where the places are counted, for ``device``.

        ``whole``: padding is computed, however many places there are.
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
        """``(M,) int64`` the sequence of each row."""
        return self.places // self.shape[1]

    @property
    def steps(self) -> Tensor:
        """``(M,) int64`` the place of each row in its sequence."""
        return self.places % self.shape[1]

    def pack(self, padded: Tensor) -> Tensor:
        """``(B, T, D)`` to rows ``(M, D)``."""
        rows = padded.flatten(0, 1)
        return rows if self.index is None else rows.index_select(0, self.index)

    def collect(self, spread: Tensor) -> Tensor:
        """The result of `spread`, or values computed from it, as rows again."""
        rows = spread.flatten(0, 1)
        return rows if self._are_all else rows.index_select(0, self.places)

    def spread(self, rows: Tensor) -> Tensor:
        """Rows ``(M, D)`` to ``(B, T, D)``; padding is at the ends, and of no meaning."""
        if not self._are_all:
            padded = rows.new_zeros(self.shape[0] * self.shape[1], rows.shape[1])
            rows = padded.index_copy(0, self.places, rows)
        return rows.view(*self.shape, -1)

    def without_padding(self, rows: Tensor) -> Tensor:
        """Rows ``(M, D)`` to the real ones ``(R, D)``."""
        return rows if self.real is None else rows.index_select(0, self.real)

    @property
    def _are_all(self) -> bool:
        return len(self.places) == self.shape[0] * self.shape[1]


def keeps_padding(num_places: int, device: torch.device) -> bool:
    """Whether layers compute padding, too.

    Leaving it out saves a processor work. It takes some 250 operations a step, whose start on a GPU
    takes longer than the padding of a small batch.
    """
    return device.type == "cuda" and num_places <= MOST_PADDED


def encode(bart: Any, inputs: Tensor, rows: Rows) -> Tensor:
    """The encoder's states of embedded inputs; padding is never attended to.

    Args:
        bart: a ``BartForConditionalGeneration``.
        inputs: ``(N, S, D)``, normalised.
        rows: their real places.

    Returns:
        ``(N, S, D)``, of no meaning on padding, which is at the ends (`Rows.exist`).
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
    """The decoder's states of captions; each token attends to itself and earlier ones.

    Args:
        bart: a ``BartForConditionalGeneration``.
        tokens: ``(B, T) int64``.
        rows: positions of the real tokens; padding is at the end.
        memory: ``(N, S, D)`` the encoder's states.
        exist: ``(N, S) bool``, False on padding.
        index: ``(B,)`` the memory of each caption; None: each has its own, in order.

    Returns:
        ``(R, D)`` at the real places, caption by caption.

    Raises:
        ValueError: captions longer than the decoder.
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
            # computed once a memory, whatever the number of its captions
            pair = keys_and_values(layer.encoder_attn, memory)
            if index is not None:
                pair = (pair[0][index], pair[1][index])
            attended = _attended(layer.encoder_attn, hidden, rows, pair=pair, mask=mask)
            hidden = layer.encoder_attn_layer_norm(hidden + _dropped(layer, attended))
            hidden = _fed_forward(layer, hidden)
    return rows.without_padding(hidden)


def logits(bart: Any, states: Tensor, num_words: int) -> Tensor:
    """``(R, num_words)`` of states ``(R, D)``: of the first tokens of the vocabulary."""
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
