"""Answer prompts with a causal language model of transformers, in batches with shared examples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import eager_mask

from augmentation.writing.gap_filling import GapFilling, SentenceState
from augmentation.writing.prompt import Prompt
from augmentation.writing.writers import AbstractWriter, Answer
from captioning.config.ranges import Device, NonNegativeFloat, NonNegativeInt, PositiveInt, Share
from captioning.runtime.devices import chosen_device
from captioning.runtime.model_folder import memory_key
from captioning.text.causal import causal_source, imported, leading_ids, load_causal

# What many prompts begin with is read once, and kept once for all rows.
#
# A language model's memory of a batch of prompts is mostly of the examples that they share (a
# seventh of it is of their own). Here attention goes to both memories, and the shared one is one
# large matrix product for all rows instead of a small one a row.
SHARED_PREFIX = "shared_prefix"
# Families whose attention is a softmax of scaled products and nothing else.
FAMILIES = ("gpt2", "llama", "mistral", "olmo2", "phi3", "qwen2", "qwen3", "smollm3")


class RoomyLayer(DynamicLayer):
    """Key-value cache of one layer, with preallocated memory for more tokens.

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
        """Append ``(B, heads, T, size)``, and return all keys and values so far."""
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
        """Keep only the cached rows with the given indices."""
        self._stored = [stored[indices] for stored in self._stored]
        self._show()

    def _show(self) -> tuple[Tensor, Tensor]:
        self.keys, self.values = (stored[:, :, : self._length] for stored in self._stored)
        return self.keys, self.values


def can_share(network: nn.Module, longest: int) -> bool:
    """Return whether rows of up to ``longest`` tokens can share a prefix in this network."""
    config: Any = network.config
    window = getattr(config, "sliding_window", None)
    return config.model_type in FAMILIES and (window is None or window >= longest)


def share_prefixes(network: nn.Module) -> None:
    """Patch a network of `FAMILIES` so that its attention can use a shared prefix."""
    config: Any = network.config
    if config.model_type in FAMILIES:
        network.set_attn_implementation(SHARED_PREFIX)  # pyright: ignore[reportCallIssue]


def keep_prefix(network: nn.Module, memory: DynamicCache | None) -> None:
    """Set the key-value cache of the prefix that all rows share; None removes it."""
    for module in network.modules():
        place = getattr(module, "layer_idx", None)
        if place is not None:
            layer: Any = None if memory is None else memory.layers[place]
            pair = None if layer is None else (layer.keys[0], layer.values[0])
            module.__dict__[SHARED_PREFIX] = pair


def memory_of_rows(network: nn.Module, room: int) -> Cache:
    """Empty key-value cache of rows with up to ``room`` tokens after their prefix."""
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
    """Attention to the prefix and to a row's own tokens in one softmax.

    Args:
        module: an attention layer; its prefix are ``(K, P, D)`` keys and values.
        query: ``(B, H, T, D)``.
        key, value: ``(B, K, S, D)`` of the rows; H is a multiple of K.
        attention_mask: ``(B, 1, T, S)``, added to the scores of the row's own tokens.
        scaling: scaling of the scores; None: one by the root of D.
        **settings: settings for layers without a prefix.

    Returns:
        ``(B, T, H, D)``, and None in the place of the weights.
    """
    pair = module.__dict__.get(SHARED_PREFIX)
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


AttentionInterface.register(SHARED_PREFIX, attend)
AttentionMaskInterface.register(SHARED_PREFIX, eager_mask)


LINE_END = "\n"


class CausalWriter(AbstractWriter):
    """Samples sentences from a causal model; shared examples are encoded once for all prompts.

    Args:
        name: ``"smollm2"``, a folder of a transformers model, or such a model's name on the hub.
        temperature: sampling temperature; 0 selects the most likely token.
        top_p: share of probability that is sampled from.
        max_new_tokens: maximum new tokens of a sentence.
        max_small_words: sentences hold the required words, in order, with at most so many small
            words before each, see `GapFilling`; None: free text.
        chat: the prompt is given as turns of a chat, in the form that the model was trained on, and
            the answer may have several lines; False: as running text, and a line's end ends it.
        precision: ``"float32"`` or ``"bfloat16"``.
        device: ``"auto"`` takes a GPU if there is one.

    Raises:
        ModuleNotFoundError, FileNotFoundError, ConnectionError, ValueError: see
            `captioning.text.causal.load_causal`; or a wrong setting.
    """

    def __init__(
        self,
        *,
        name: str = "smollm2",
        temperature: NonNegativeFloat = 0.3,
        top_p: Share = 0.9,
        max_new_tokens: PositiveInt = 32,
        max_small_words: NonNegativeInt | None = None,
        chat: bool = False,
        precision: str = "float32",
        device: Device = "auto",
    ) -> None:
        if precision not in ("float32", "bfloat16"):
            raise ValueError(f"precision must be float32 or bfloat16: got {precision!r}")
        if temperature < 0 or not 0 < top_p <= 1:
            raise ValueError(
                "temperature must not be negative and top_p must lie in (0, 1]: got "
                f"{temperature} and {top_p}"
            )
        self._device, self.uses_gpu = chosen_device(device), device != "cpu"
        self._temperature, self._top_p, self._max_new = temperature, top_p, max_new_tokens
        self._tokenizer = imported("transformers").AutoTokenizer.from_pretrained(
            **causal_source(name)
        )
        if chat and not self._tokenizer.chat_template:
            raise ValueError(
                f"{name}: the tokenizer has no chat template: set method.writer.chat=false"
            )
        self._chat = chat
        network: Any = load_causal(name, dtype=getattr(torch, precision)).to(self._device)
        self._network = network.eval().requires_grad_(False)
        share_prefixes(self._network)
        self._stops = self._stop_tokens()
        self._filling: GapFilling | None = None
        if max_small_words is not None:
            end = min(self._stops)
            self._filling = GapFilling(self._tokenizer, end=end, max_small_words=max_small_words)

    def _stop_tokens(self) -> frozenset[int]:
        """Tokens that end an answer; in plain text mode also tokens with a line break."""
        stops = set(self._tokenizer.all_special_ids)
        if not self._chat:
            for text, token in self._tokenizer.get_vocab().items():
                if LINE_END in self._tokenizer.convert_tokens_to_string([text]):
                    stops.add(token)
        return frozenset(stops)

    @torch.inference_mode()
    def answers(self, prompts: Sequence[Prompt], *, seed: int) -> list[Answer]:
        """See `AbstractWriter`.

        Raises:
            ValueError: prompts with different examples, longer ones than the model takes, or ones
                without required words where ``max_small_words`` is set.
            MemoryError: the GPU's memory is too small for the batch.
        """
        if not prompts:
            return []
        opening = prompts[0].opening()
        if any(prompt.opening() != opening for prompt in prompts):
            raise ValueError("all prompts of one call must have the same examples")
        if self._filling is not None and not all(prompt.required_tokens for prompt in prompts):
            raise ValueError(
                "max_small_words applies to sentence templates only, not to prompts: set "
                "method.writer.max_small_words=null (writer@method.writer=smollm2_free)"
            )
        head, tails = self._prompt_ids(prompts)
        self._check_length(len(head) + max(map(len, tails)) + self._max_new)
        sentences = (
            []
            if self._filling is None
            else self._filling.new_sentences([p.required_tokens for p in prompts])
        )
        draw = partial(self._draw, generator=torch.Generator(self._device).manual_seed(seed))
        tokens, mask = (tensor.to(self._device) for tensor in padded_left(tails))
        positions = (mask.cumsum(1) - 1).clamp(min=0) + len(head)
        room = tokens.shape[1] + self._max_new
        try:
            cache, mask = self._read_prefix(head, mask, room)
            rows, sums = self._sample(tokens, mask, positions, cache, draw, sentences)
        except torch.OutOfMemoryError as error:
            raise MemoryError(
                f"out of memory with {len(prompts)} prompts in a batch: lower "
                "method.pace.batch_size, and choose another out="
            ) from error
        finally:
            keep_prefix(self._network, None)
        return [
            Answer(
                text=self._tokenizer.decode(row).strip(),
                likelihood=total / len(row) if row else None,
            )
            for row, total in zip(rows, sums, strict=True)
        ]

    def _check_length(self, length: int) -> None:
        max_length = getattr(self._network.config, "max_position_embeddings", length)
        if length > max_length:
            raise ValueError(
                f"prompt and answer need up to {length} tokens, but the language model reads at "
                f"most {max_length}: use fewer examples (method.prompts.num_examples)"
            )

    def _prompt_ids(self, prompts: Sequence[Prompt]) -> tuple[list[int], list[list[int]]]:
        """Tokens that all prompts share at the start, and one or more further tokens of each."""
        if not self._chat:
            (opening,) = self._ids([prompts[0].opening()])
            tails = self._ids([prompt.ending() for prompt in prompts])
            return [*leading_ids(self._tokenizer), *opening], tails
        talks = [prompt.messages() for prompt in prompts]
        whole = self._ids(
            self._tokenizer.apply_chat_template(talks, tokenize=False, add_generation_prompt=True)
        )
        shortest = min(map(len, whole)) - 1
        columns = zip(*(tokens[:shortest] for tokens in whole), strict=True)
        common = sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, columns))
        return whole[0][:common], [tokens[common:] for tokens in whole]

    def _ids(self, texts: list[str]) -> list[list[int]]:
        return self._tokenizer(texts, add_special_tokens=False)["input_ids"]

    def _read_prefix(self, head: list[int], mask: Tensor, room: int) -> tuple[Any, Tensor]:
        """Key-value cache of rows that begin with ``head``, and their attention mask."""
        output = self._network(input_ids=torch.tensor([head], device=self._device), use_cache=True)
        if can_share(self._network, len(head) + room):
            keep_prefix(self._network, output[memory_key()])
            return memory_of_rows(self._network, room), mask
        memory = output[memory_key()]
        memory.batch_repeat_interleave(len(mask))
        return memory, torch.cat([mask.new_ones(len(mask), len(head)), mask], 1)

    def _sample(
        self,
        tokens: Tensor,
        mask: Tensor,
        positions: Tensor,
        cache: Any,
        draw: Callable[[Tensor], Tensor],
        lines: Sequence[SentenceState],
    ) -> tuple[list[list[int]], list[float]]:
        """Sample tokens of each row up to a line break, and the sum of their log-probabilities.

        Rows that have ended are no longer computed.
        """
        answers: list[list[int]] = [[] for _ in range(len(tokens))]
        sums = [0.0] * len(tokens)
        numbers = list(range(len(tokens)))
        for _ in range(self._max_new):
            logits = (
                self._network(
                    input_ids=tokens,
                    attention_mask=mask,
                    position_ids=positions,
                    logits_to_keep=1,
                    **{memory_key(): cache},
                )
                .logits[:, -1]
                .float()
            )
            if self._filling is None:
                next_tokens = draw(logits)
            else:
                next_tokens = self._filling.choose(logits, [lines[n] for n in numbers], draw)
            log_probs = logits.gather(1, next_tokens[:, None]).squeeze(1) - logits.logsumexp(1)
            # a GPU is waited for twice a step, not once a sentence
            chosen: list[int] = next_tokens.tolist()
            gains: list[float] = log_probs.tolist()
            rows = [row for row, token in enumerate(chosen) if token not in self._stops]
            for row in rows:
                answers[numbers[row]].append(chosen[row])
                sums[numbers[row]] += gains[row]
            if not rows:
                break
            if len(rows) < len(chosen):
                active = torch.tensor(rows, device=tokens.device)
                cache.batch_select_indices(active)
                numbers = [numbers[row] for row in rows]
                next_tokens, mask, positions = next_tokens[active], mask[active], positions[active]
            tokens, positions = next_tokens[:, None], positions[:, -1:] + 1
            mask = torch.cat([mask, mask.new_ones(len(mask), 1)], 1)
        return answers, sums

    def _draw(self, logits: Tensor, generator: torch.Generator) -> Tensor:
        """Draw tokens ``(B,) int64`` from logits ``(B, V)``."""
        if self._temperature == 0:
            return logits.argmax(1)
        values, order = (logits / self._temperature).topk(min(64, logits.shape[1]), dim=1)
        shares = values.softmax(1)
        shares = shares.masked_fill(shares.cumsum(1) - shares > self._top_p, 0.0)
        tokens = torch.multinomial(shares, 1, generator=generator)
        return order.gather(1, tokens).squeeze(1)


def padded_left(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Left-padded tokens ``(B, T) int64`` and their mask."""
    longest = max(map(len, rows))
    tokens = torch.tensor([[*[0] * (longest - len(row)), *row] for row in rows])
    mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows])
    return tokens, mask
