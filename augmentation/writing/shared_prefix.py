"""What many prompts begin with is read once, and kept once for all rows.

A language model's memory of a batch of prompts is mostly of the examples that they share (a seventh
of it is of their own). Here attention goes to both memories, and the shared one is one large matrix
product for all rows instead of a small one a row.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import eager_mask

NAME = "shared_prefix"
# Families whose attention is a softmax of scaled products and nothing else.
FAMILIES = ("gpt2", "llama", "mistral", "olmo2", "phi3", "qwen2", "qwen3", "smollm3")


class RoomyLayer(DynamicLayer):
    """Keys and values of rows, in memory that has room for more tokens.

    Args:
        room: tokens of a row at most.
    """

    def __init__(self, room: int) -> None:
        super().__init__()
        self._room, self._length = room, 0
        self._stored: list[Tensor] = []  # keys and values

    def update(
        self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Append ``(B, heads, T, size)``, and return all so far."""
        new = (key_states, value_states)
        rows, heads, tokens = key_states.shape[:3]
        if not self._stored:
            self._stored = [each.new_empty(rows, heads, self._room, each.shape[3]) for each in new]
            self.dtype, self.device, self.is_initialized = key_states.dtype, key_states.device, True
        begin, self._length = self._length, self._length + tokens
        for stored, each in zip(self._stored, new, strict=True):
            stored[:, :, begin : self._length] = each
        return self._show()

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep rows by index."""
        self._stored = [stored[indices] for stored in self._stored]
        self._show()

    def _show(self) -> tuple[Tensor, Tensor]:
        self.keys, self.values = (stored[:, :, : self._length] for stored in self._stored)
        return self.keys, self.values


def can_share(network: nn.Module, longest: int) -> bool:
    """Whether rows of up to ``longest`` tokens can share a prefix in a network of transformers."""
    config: Any = network.config
    window = getattr(config, "sliding_window", None)
    return config.model_type in FAMILIES and (window is None or window >= longest)


def share_prefixes(network: nn.Module) -> None:
    """Let a network of `FAMILIES` attend to a shared prefix once it is given one."""
    config: Any = network.config
    if config.model_type in FAMILIES:
        network.set_attn_implementation(NAME)  # pyright: ignore[reportCallIssue]


def keep_prefix(network: nn.Module, memory: DynamicCache | None) -> None:
    """Set what all rows begin with, the memory of one row; None: nothing."""
    for module in network.modules():
        place = getattr(module, "layer_idx", None)
        if place is not None:
            layer: Any = None if memory is None else memory.layers[place]
            pair = None if layer is None else (layer.keys[0], layer.values[0])
            module.__dict__[NAME] = pair


def memory_of_rows(network: nn.Module, room: int) -> Cache:
    """An empty memory of rows of up to ``room`` tokens after their prefix."""
    config: Any = network.config
    return Cache(layers=[RoomyLayer(room) for _ in range(config.num_hidden_layers)])


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor,
    scaling: float | None = None,
    **settings: Any,
) -> tuple[Tensor, None]:
    """Attention to the prefix and to a row's own tokens, as one softmax.

    Args:
        module: an attention layer; its prefix are ``(K, P, D)`` keys and values.
        query: ``(B, H, T, D)``.
        key, value: ``(B, K, S, D)`` of the rows; H is a multiple of K.
        attention_mask: ``(B, 1, T, S)``, added to the scores of the row's own tokens.
        scaling: of the scores; None: one by the root of D.
        **settings: for layers without a prefix.

    Returns:
        ``(B, T, H, D)``, and None in the place of the weights.
    """
    pair = module.__dict__.get(NAME)
    if pair is None:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **settings
        )
    shared_keys, shared_values = pair
    (rows, heads, tokens, size), groups = query.shape, len(shared_keys)
    each = heads // groups * tokens  # queries of a row to one head of the keys
    query = query.reshape(rows, groups, each, size) * (size**-0.5 if scaling is None else scaling)
    together = query.transpose(0, 1).reshape(groups, rows * each, size)
    shared = torch.bmm(together, shared_keys.transpose(1, 2)).view(groups, rows, each, -1)
    own = query @ key.transpose(2, 3)
    own = (own.view(rows, groups, -1, tokens, key.shape[2]) + attention_mask[:, :, None]).view(
        rows, groups, each, -1
    )
    weights = torch.cat([shared.transpose(0, 1), own], dim=3).softmax(3, torch.float32)
    weights = weights.to(query.dtype)
    length = shared_keys.shape[1]
    to_shared = weights[..., :length].transpose(0, 1).reshape(groups, rows * each, length)
    output = torch.bmm(to_shared, shared_values).view(groups, rows, each, size).transpose(0, 1)
    output = output + weights[..., length:] @ value
    return output.reshape(rows, heads, tokens, size).transpose(1, 2).contiguous(), None


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, eager_mask)
