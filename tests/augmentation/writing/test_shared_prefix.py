"""Rows that share a prefix get the logits of rows that have it each."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn

from augmentation.writing.causal_writer import (
    FAMILIES,
    can_share,
    keep_prefix,
    memory_of_rows,
    share_prefixes,
)
from captioning.runtime.model_folder import memory_key

CONFIGS = {
    "gpt2": "GPT2Config",
    "llama": "LlamaConfig",
    "mistral": "MistralConfig",
    "olmo2": "Olmo2Config",
    "phi3": "Phi3Config",
    "qwen2": "Qwen2Config",
    "qwen3": "Qwen3Config",
    "smollm3": "SmolLM3Config",
}
HEAD, TAIL, NEW = 7, 5, 2


def network_of(family: str) -> nn.Module:
    """Two heads of four share keys and values, but in GPT-2."""
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "vocab_size": 100}
    sizes = {"num_hidden_layers": 3, "num_attention_heads": 4, "hidden_size": 32}
    further = {} if family == "gpt2" else {"num_key_value_heads": 2, "intermediate_size": 64}
    config = getattr(transformers, CONFIGS[family])(**ids, **sizes, **further)
    torch.manual_seed(0)
    network = transformers.AutoModelForCausalLM.from_config(config).eval()
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.3)
    return network


class Rows:
    """Four rows with a common beginning, of which one ends after the first step."""

    def __init__(self, network: Any, *, shared: bool) -> None:
        draws = torch.Generator().manual_seed(1)
        self.network = network
        head = torch.randint(1, 100, (1, HEAD), generator=draws)
        self.tails = torch.randint(1, 100, (4, TAIL), generator=draws)
        self.new = torch.randint(1, 100, (3, NEW), generator=draws)
        self.mask = torch.ones(4, TAIL, dtype=torch.long)
        self.mask[1, :2], self.mask[2, :4] = 0, 0
        self.positions = (self.mask.cumsum(1) - 1).clamp(min=0) + HEAD
        memory = network(input_ids=head, use_cache=True)[memory_key()]
        if shared:
            keep_prefix(network, memory)
            self.memory: Any = memory_of_rows(network, TAIL + NEW)
        else:
            memory.batch_repeat_interleave(4)
            self.memory = memory
            self.mask = torch.cat([self.mask.new_ones(4, HEAD), self.mask], 1)

    def logits(self) -> Tensor:
        """Of all steps."""
        found = [self._step(self.tails)]
        left = torch.tensor([0, 2, 3])
        self.memory.batch_select_indices(left)
        self.mask, self.positions = self.mask[left], self.positions[left]
        for tokens in self.new.split(1, dim=1):
            self.mask = torch.cat([self.mask, self.mask.new_ones(3, 1)], 1)
            self.positions = self.positions[:, -1:] + 1
            found.append(self._step(tokens))
        return torch.cat(found)

    def _step(self, tokens: Tensor) -> Tensor:
        output = self.network(
            input_ids=tokens,
            attention_mask=self.mask,
            position_ids=self.positions,
            **{memory_key(): self.memory},
        )
        return output.logits[:, -1]


@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_logits_are_those_of_rows_with_their_own_copies(family: str) -> None:
    network = network_of(family)
    assert network.config.model_type == family
    expected = Rows(network, shared=False).logits()
    share_prefixes(network)
    torch.testing.assert_close(Rows(network, shared=True).logits(), expected, atol=1e-5, rtol=1e-5)
    keep_prefix(network, None)  # and what has no prefix is read as ever
    torch.testing.assert_close(Rows(network, shared=False).logits(), expected, atol=1e-5, rtol=1e-5)


def test_windows_and_other_families_keep_their_own_attention() -> None:
    network = network_of("mistral")
    network.config.sliding_window = 20
    assert can_share(network, 20)
    assert not can_share(network, 21)
    network.config.model_type = "gemma2"
    share_prefixes(network)
    assert network.config._attn_implementation == "sdpa"
    assert not can_share(network, 2)
