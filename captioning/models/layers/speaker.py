"""The part of an image-to-text model that speaks: captions, one token more, or its own search."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from captioning.interfaces import AbstractDecoderState

Inputs = dict[str, Any]
Generated = tuple[Tensor, Tensor]
# Inputs with a place for each token of the text, beside the tokens themselves.
BY_TOKEN = ("attention_mask", "token_type_ids", "mm_token_type_ids")
# What stays for the tokens after the first.
STAYING = (*BY_TOKEN, "position_ids", "encoder_hidden_states", "encoder_attention_mask")
# What the caption's tokens have there: seen, an answer (PaliGemma), text.
OF_CAPTIONS = {"attention_mask": 1, "token_type_ids": 1, "mm_token_type_ids": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeakerState(AbstractDecoderState):
    """The memory of G hypotheses.

    Attributes:
        inputs: of the network's next call, beside tokens; before the first token those of the I
            photos.
        cache: of transformers, or None before the first token.
    """

    inputs: Inputs
    cache: Any = None

    def select(self, index: Tensor) -> SpeakerState:
        """Hypotheses by index; the memory that they come from stays as it is."""
        if self.cache is None:
            raise ValueError("a search reads the first token of each image before it selects")
        inputs = {name: _selected(name, value, index) for name, value in self.inputs.items()}
        cache = _mapped(self.cache, lambda tensor: tensor.index_select(0, index))
        return SpeakerState(inputs=inputs, cache=cache)


def _selected(name: str, value: Any, index: Tensor) -> Any:
    """Rows of an input; positions may have axes in front (Qwen-VL) or stand for all rows."""
    dim = value.dim() - 2 if name == "position_ids" else 0
    rows = torch.zeros_like(index) if value.shape[dim] == 1 else index
    return value.index_select(dim, rows)


def _mapped(cache: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """A cache of transformers with other keys and values, of as many layers; the old one stays.

    Its own ``batch_select_indices`` changes it in place, but searches may go back to a memory.
    """
    new = copy.copy(cache)
    for name, value in vars(cache).items():
        if isinstance(value, Tensor) and value.dim() > 1:
            setattr(new, name, function(value))
        elif isinstance(value, list):
            setattr(new, name, [_mapped_item(item, function) for item in value])
        elif hasattr(value, "get_seq_length"):
            setattr(new, name, _mapped(value, function))
        elif isinstance(value, dict):
            setattr(new, name, dict(value))
    return new


def _mapped_item(item: Any, function: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(item, Tensor):
        return function(item) if item.dim() > 1 else item
    return _mapped(item, function) if hasattr(item, "__dict__") else item


class Speaker:
    """Drives a network of transformers.

    Args:
        network: decodes by ``input_ids`` or ``inputs_embeds``, or by ``decoder_input_ids``.
        start_ids: tokens that a decoder with an encoder of its own begins with; empty without one.
    """

    def __init__(self, network: Any, *, start_ids: tuple[int, ...] = ()) -> None:
        self.network = network
        self.start_ids = start_ids
        self._arguments = frozenset(inspect.signature(network.forward).parameters)

    def read(self, prompts: Inputs, captions: Tensor, exist: Tensor) -> Tensor:
        """Logits of captions under teacher forcing.

        Args:
            prompts: of the B captions.
            captions: ``(B, T) int64`` tokens that are read, without begin token; T may be 0.
            exist: ``(B, T) bool``, False on padding.

        Returns:
            ``(B, T + 1, V)``: at each place before the next token.
        """
        number = captions.shape[1] + 1
        if self.start_ids:
            start = captions.new_tensor(self.start_ids).expand(len(captions), -1)
            inputs = {**prompts, "decoder_input_ids": torch.cat([start, captions], dim=1)}
        else:
            inputs = self._with_captions(prompts, captions, exist)
            if "logits_to_keep" in self._arguments:
                inputs["logits_to_keep"] = number
        return self.network(**inputs, use_cache=False).logits[:, -number:]

    def _with_captions(self, prompts: Inputs, captions: Tensor, exist: Tensor) -> Inputs:
        inputs = dict(prompts)
        for name in BY_TOKEN:
            if name in inputs:
                added = torch.full_like(captions, OF_CAPTIONS[name])
                added = exist if name == "attention_mask" else added
                inputs[name] = torch.cat([inputs[name], added.to(inputs[name])], dim=1)
        if "inputs_embeds" in inputs:
            added = self.network.get_input_embeddings()(captions).to(inputs["inputs_embeds"].dtype)
            inputs["inputs_embeds"] = torch.cat([inputs["inputs_embeds"], added], dim=1)
        else:
            inputs["input_ids"] = torch.cat([inputs["input_ids"], captions], dim=1)
        return inputs

    def step(self, tokens: Tensor, state: SpeakerState) -> tuple[Tensor, SpeakerState]:
        """Logits ``(G, V)`` of the next token, and the memory after ``tokens (G,)``.

        The first call reads the prompts; its tokens, which stand for them, are not looked at.
        """
        if self.start_ids:
            return self._step_of_decoder(tokens, state)
        first = state.cache is None
        inputs = dict(state.inputs) if first else _grown(state.inputs, tokens)
        cache = None if first else _mapped(state.cache, lambda tensor: tensor)
        ids = inputs.pop("input_ids")
        call = self.network.prepare_inputs_for_generation(
            ids,
            next_sequence_length=None if first else 1,
            is_first_iteration=first,
            past_key_values=cache,
            use_cache=True,
            **inputs,
        )
        outputs = self.network(**call, return_dict=True)
        if first:
            inputs = {name: inputs[name] for name in STAYING if name in inputs}
        after = SpeakerState(inputs={**inputs, "input_ids": ids}, cache=outputs.past_key_values)
        return outputs.logits[:, -1], after

    def _step_of_decoder(self, tokens: Tensor, state: SpeakerState) -> tuple[Tensor, SpeakerState]:
        inputs = dict(state.inputs)
        first = state.cache is None
        if first:
            ids = tokens.new_tensor(self.start_ids).expand(len(tokens), -1)
            outputs = self.network(**inputs, decoder_input_ids=ids, use_cache=True)
            kept = {name: inputs[name] for name in ("attention_mask",) if name in inputs}
            after = {**kept, "states": outputs.encoder_last_hidden_state}
        else:
            from transformers.modeling_outputs import BaseModelOutput  # slow

            states = inputs.pop("states")
            outputs = self.network(
                **inputs,
                encoder_outputs=BaseModelOutput(last_hidden_state=states),
                decoder_input_ids=tokens[:, None],
                past_key_values=_mapped(state.cache, lambda tensor: tensor),
                use_cache=True,
            )
            after = {**inputs, "states": states}
        return outputs.logits[:, -1], SpeakerState(inputs=after, cache=outputs.past_key_values)

    def start(self, prompts: Inputs) -> SpeakerState:
        """The memory before the first token of I prompts."""
        inputs = dict(prompts)
        if self.start_ids:
            return SpeakerState(inputs=inputs)
        if "inputs_embeds" in inputs:
            shape = inputs["inputs_embeds"].shape[:2]
            inputs["input_ids"] = torch.zeros(shape, dtype=torch.long, device=self.network.device)
        if "position_ids" in self._arguments:
            places = self.network._prepare_position_ids_for_generation(
                inputs["input_ids"], dict(inputs)
            )
            inputs["position_ids"] = places
        return SpeakerState(inputs=inputs)

    def generate(self, prompts: Inputs, *, end_ids: Sequence[int], **settings: Any) -> Generated:
        """Captions by the network's own search.

        Args:
            prompts: of I photos.
            end_ids: tokens that end a caption.
            **settings: of ``generate``.

        Returns:
            ``(I * M, T)`` tokens after the prompt, and ``(I * M,)`` scores: those of the beam, or
            summed log-probabilities.
        """
        inputs, skipped = dict(prompts), 0
        if self.start_ids:
            start = torch.tensor(self.start_ids, device=self.network.device)
            number = len(next(v for v in inputs.values() if isinstance(v, Tensor)))
            inputs["decoder_input_ids"] = start.expand(number, -1)
            skipped = len(start)
        elif "inputs_embeds" in inputs:
            inputs.pop("input_ids")  # they only hold the places of the vectors
        else:
            skipped = inputs["input_ids"].shape[1]
        outputs = self.network.generate(
            **inputs,
            **settings,
            eos_token_id=list(end_ids),
            return_dict_in_generate=True,
            output_scores=True,
            output_logits=True,
        )
        tokens = outputs.sequences[:, skipped:]
        if getattr(outputs, "sequences_scores", None) is not None:
            return tokens, outputs.sequences_scores
        each = self.network.compute_transition_scores(
            outputs.sequences, outputs.logits, normalize_logits=True
        )
        ends = torch.isin(tokens, torch.tensor(list(end_ids), device=tokens.device)).long()
        after_end = ends.cumsum(1) - ends > 0
        return tokens, each.masked_fill(after_end, 0).sum(1)


def _grown(inputs: Inputs, tokens: Tensor) -> Inputs:
    """The inputs with a place more for ``tokens (G,)``."""
    grown = dict(inputs)
    grown["input_ids"] = torch.cat([inputs["input_ids"], tokens[:, None]], dim=1)
    for name in BY_TOKEN:
        if name in inputs:
            value = inputs[name]
            added = value.new_full((len(value), 1), OF_CAPTIONS[name])
            grown[name] = torch.cat([value, added], dim=1)
    if "position_ids" in inputs:
        places = inputs["position_ids"]
        grown["position_ids"] = torch.cat([places, places[..., -1:] + 1], dim=-1)
    return grown
