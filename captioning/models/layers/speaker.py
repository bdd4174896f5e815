"""Text-generating part of an image-to-text model: whole captions, steps, or its own search."""

from __future__ import annotations

import copy
import importlib
import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from captioning.interfaces import AbstractDecoderState, AbstractStepper
from captioning.runtime.model_folder import memory_key

Inputs = dict[str, Any]
Generated = tuple[Tensor, Tensor]
# Value of a caption's token in an input by token; see `captioning.vision.prompt_tensors`.
CAPTION = ".caption"
NEXT = "next_sequence_length"
# Inputs that stay for the tokens after the first, besides inputs by token.
STAYING = ("attention_mask", "position_ids", "encoder_hidden_states", "encoder_attention_mask")
# Networks whose decoders attend to the encoder's pooled states, which the outputs leave out.
POOLED = ("pp_formulanet",)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeakerState(AbstractDecoderState):
    """Decoder memory of G hypotheses.

    Attributes:
        inputs: inputs of the network's next call besides tokens; before the first token those of
            the I photos.
        cache: transformers cache, or None before the first token.
    """

    inputs: Inputs
    cache: Any = None

    def select(self, index: Tensor) -> SpeakerState:
        """Select hypotheses by index; the original memory stays unchanged."""
        if self.cache is None:
            raise ValueError("a search must read the first token of each image before it selects")
        inputs = {name: _selected(name, value, index) for name, value in self.inputs.items()}
        cache = _copied(self.cache)
        cache.reorder_cache(index)
        return SpeakerState(inputs=inputs, cache=cache)


def _selected(name: str, value: Any, index: Tensor) -> Any:
    """Select rows of an input; positions may have leading axes (Qwen-VL) or serve all rows."""
    dim = value.dim() - 2 if name == "position_ids" else 0
    rows = torch.zeros_like(index) if value.shape[dim] == 1 else index
    return value.index_select(dim, rows)


def _copied(cache: Any) -> Any:
    """Copy a transformers cache so that it can be changed in place.

    Searches may return to an earlier memory, but layers and ``reorder_cache`` change it.
    """
    new = copy.copy(cache)
    for name, value in vars(cache).items():
        setattr(new, name, _copied_part(value))
    return new


def _copied_part(part: Any, *, is_state: bool = False) -> Any:
    """Copy a part: keys and values are replaced when they grow; states are written in place."""
    if isinstance(part, Tensor):
        return part.clone() if is_state else part
    if isinstance(part, list):
        return [_copied_part(item) for item in part]
    if isinstance(part, dict):
        return {key: _copied_part(item, is_state=True) for key, item in part.items()}
    return _copied(part) if hasattr(part, "reorder_cache") else part


def changes_in_place(cache: Any) -> bool:
    """Whether a cache has recurrent states, which the network writes in place.

    Gradients cannot pass through such states twice, so captions cannot share them in training.
    """
    parts = [*getattr(cache, "layers", ()), *vars(cache).values()]
    states = [getattr(part, "recurrent_states", None) for part in parts]
    found = [value for group in states if isinstance(group, dict) for value in group.values()]
    return any(isinstance(value, Tensor) for value in found)


class HeadNotLast(Exception):
    """The network changes its logits after its last layer, so the layer cannot be skipped."""


class Speaker(AbstractStepper[SpeakerState]):
    """Stepper over a network of transformers.

    Args:
        network: network called with ``input_ids``, ``inputs_embeds`` or ``decoder_input_ids``.
        start_ids: first tokens of a decoder with its own encoder; otherwise empty.
    """

    def __init__(self, network: Any, *, start_ids: tuple[int, ...] = ()) -> None:
        self.network = network
        self.start_ids = start_ids
        self._arguments = frozenset(inspect.signature(network.forward).parameters)
        self._is_pooled = network.config.model_type in POOLED
        self._options: dict[str, Any] = {}

    @property
    def head(self) -> Any:
        """The last layer, which computes logits; None if the network names no such layer."""
        return self.network.get_output_embeddings()

    @contextmanager
    def without_head(self) -> Iterator[None]:
        """Within this context `read`, `read_prompts` and `read_captions` return the `head`'s input.

        Raises:
            HeadNotLast: the network changes its logits further, such as by scaling them.
        """
        head, read = self.head, []

        def passed_on(states: Tensor) -> Tensor:
            read.append(states)
            return states

        def look(network: Any, args: Any, outputs: Any) -> None:
            if len(read) != 1 or getattr(outputs, "logits", None) is not read.pop():
                raise HeadNotLast(type(network).__name__)

        if head is None:
            raise HeadNotLast(type(self.network).__name__)
        head.forward = passed_on
        hook = self.network.register_forward_hook(look)
        try:
            yield
        finally:
            hook.remove()
            del head.forward

    def read(self, prompts: Inputs, captions: Tensor, exist: Tensor) -> Tensor:
        """Return logits of captions with teacher forcing.

        Args:
            prompts: prompts of the B captions.
            captions: ``(B, T) int64`` input tokens without begin token; T may be 0.
            exist: ``(B, T) bool``, False on padding.

        Returns:
            ``(B, T + 1, V)``: logits before each next token.
        """
        number = captions.shape[1] + 1
        if self.start_ids:
            start = captions.new_tensor(self.start_ids).expand(len(captions), -1)
            inputs = {**prompts, "decoder_input_ids": torch.cat([start, captions], dim=1)}
        else:
            inputs = self._with_captions(prompts, captions, exist)
            if "logits_to_keep" in self._arguments:
                inputs["logits_to_keep"] = number
        return self.network(**_without_captions(inputs), use_cache=False).logits[:, -number:]

    def read_prompts(self, prompts: Inputs, image_index: Tensor) -> tuple[Tensor, SpeakerState]:
        """Read the prompts of I photos once for all their captions.

        A photo may take 1,000 positions and a caption ten, so five captions cost a fifth.

        Args:
            prompts: prompts of the I photos.
            image_index: ``(B,)`` photo of each caption.

        Returns:
            Logits ``(B, V)`` of the captions' first tokens, and the memory before them, whose
            cache is None where the network keeps none in training.
        """
        # the first call looks at no tokens
        logits, state = self.next_logits(image_index, self.start(prompts))
        logits = logits[image_index]
        return logits, state if state.cache is None else state.select(image_index)

    def read_captions(
        self, first: Tensor, state: SpeakerState, captions: Tensor, exist: Tensor
    ) -> Tensor:
        """Continue `read_prompts`, which returned ``first`` and ``state``; otherwise as `read`."""
        if self.start_ids:
            start = captions.new_tensor(self.start_ids).expand(len(captions), -1)
            tokens = torch.cat([start, captions], dim=1)
            return self._decoded(state.inputs, tokens, None).logits[:, len(self.start_ids) - 1 :]
        if not captions.shape[1]:
            return first[:, None]
        outputs, _ = self._read_on(captions, exist, state)
        return torch.cat([first[:, None], outputs.logits], dim=1)

    def _with_captions(self, prompts: Inputs, captions: Tensor, exist: Tensor) -> Inputs:
        if "inputs_embeds" in prompts:
            inputs = _grown({**prompts, "input_ids": captions[:, :0]}, captions, exist)
            inputs.pop("input_ids")
            added = self.network.get_input_embeddings()(captions).to(inputs["inputs_embeds"].dtype)
            return {**inputs, "inputs_embeds": torch.cat([inputs["inputs_embeds"], added], dim=1)}
        return _grown(prompts, captions, exist)

    def step(self, tokens: Tensor, state: SpeakerState) -> tuple[Tensor, SpeakerState]:
        """Return log-probabilities of the next token; the first call reads photos and prompts."""
        logits, state = self.next_logits(tokens, state)
        return functional.log_softmax(logits.float(), dim=-1), state

    def next_logits(self, tokens: Tensor, state: SpeakerState) -> tuple[Tensor, SpeakerState]:
        """Return logits ``(G, V)`` of the next token, and the memory after ``tokens (G,)``.

        The first call reads the prompts; its tokens, which stand for them, are ignored.
        """
        outputs, after = self._outputs(tokens, state)
        return outputs.logits[:, -1], after

    def attend_step(
        self, tokens: Tensor, state: SpeakerState
    ) -> tuple[Tensor, SpeakerState, Tensor]:
        """Make a `step`, with the cross-attention ``(G, S)`` averaged over layers and heads.

        S are the states of the photo, or of photo and prompt, that the network reads.
        """
        usual = self.network.config._attn_implementation
        self.network.set_attn_implementation("eager")  # others keep no weights
        self._options = {"output_attentions": True}
        try:
            outputs, after = self._outputs(tokens, state)
        finally:
            self._options = {}
            self.network.set_attn_implementation(usual)
        log_probs = functional.log_softmax(outputs.logits[:, -1].float(), dim=-1)
        weights = torch.stack([layer[:, :, -1].float() for layer in outputs.cross_attentions])
        return log_probs, after, weights.mean((0, 2))

    def _outputs(self, tokens: Tensor, state: SpeakerState) -> tuple[Any, SpeakerState]:
        if self.start_ids:
            return self._step_of_decoder(tokens, state)
        if state.cache is not None:
            exist = torch.ones_like(tokens[:, None], dtype=torch.bool)
            return self._read_on(tokens[:, None], exist, state)
        inputs = dict(state.inputs)
        ids = inputs.pop("input_ids")
        cache = self._new_cache()
        outputs = self._called(ids, inputs, is_first_iteration=True, **{memory_key(): cache})
        if (read := getattr(outputs, memory_key(), None)) is None:
            raise self._without_memory()
        by_token = {name for name, _ in _by_token(inputs)}
        inputs = {
            name: value
            for name, value in inputs.items()
            if name in STAYING or name in by_token or name.endswith(CAPTION)
        }
        after = SpeakerState(inputs={**inputs, "input_ids": ids}, cache=read)
        return outputs, after

    def _read_on(
        self, tokens: Tensor, exist: Tensor, state: SpeakerState
    ) -> tuple[Any, SpeakerState]:
        """Return the network's outputs for further tokens ``(G, T)``, and the memory after them."""
        inputs = _grown(state.inputs, tokens, exist)
        outputs = self._called(
            inputs["input_ids"],
            {name: value for name, value in inputs.items() if name != "input_ids"},
            is_first_iteration=False,
            **{NEXT: tokens.shape[1], memory_key(): _copied(state.cache)},
        )
        return outputs, SpeakerState(inputs=inputs, cache=outputs[memory_key()])

    def _called(self, ids: Tensor, inputs: Inputs, **generation: Any) -> Any:
        call = self.network.prepare_inputs_for_generation(
            ids, use_cache=True, **generation, **_without_captions(inputs)
        )
        if self.network.training:  # in which some networks ask for what their generate leaves out
            number = ids.shape[1] if generation["is_first_iteration"] else generation[NEXT]
            for name, value in _by_token(inputs):
                if call.get(name) is None and name in self._arguments:
                    call[name] = value[:, -number:]
        return self.network(**call, **self._options, return_dict=True)

    def _without_memory(self) -> ValueError:
        return ValueError(
            f"{type(self.network).__name__} keeps no memory ({memory_key()}) of what it has read, "
            "so it cannot be searched; use another model"
        )

    def _new_cache(self) -> Any:
        """Create an empty cache as ``generate`` does; some networks return none otherwise."""
        supports: Any = getattr(self.network, "_supports_default_dynamic_cache", None)
        if supports is None or not supports():
            return None
        caches: Any = importlib.import_module("transformers.cache_utils")
        return caches.DynamicCache(config=self.network.config.get_text_config(decoder=True))

    def _step_of_decoder(self, tokens: Tensor, state: SpeakerState) -> tuple[Any, SpeakerState]:
        if state.cache is None:
            if "states" in state.inputs:  # as of some networks in training
                raise self._without_memory()
            inputs = _without_captions(state.inputs)
            ids = tokens.new_tensor(self.start_ids).expand(_rows(inputs), -1)
            pooled = self.network.get_encoder()(**inputs) if self._is_pooled else None
            options = {"encoder_outputs": pooled} if self._is_pooled else inputs
            outputs = self.network(
                **options, **self._options, decoder_input_ids=ids, use_cache=True
            )
            kept = {
                name: inputs[name] for name in ("attention_mask", "input_ids") if name in inputs
            }
            states = pooled.pooler_output if pooled else outputs.encoder_last_hidden_state
            after = {**kept, "states": states}
        else:
            after = state.inputs
            outputs = self._decoded(after, tokens[:, None], state.cache)
        return outputs, SpeakerState(inputs=after, cache=getattr(outputs, memory_key()))

    def _decoded(self, inputs: Inputs, tokens: Tensor, cache: Any) -> Any:
        """Return the outputs of a decoder whose encoder states are known."""
        outputs: Any = importlib.import_module("transformers.modeling_outputs")  # slow
        inputs = {name: value for name, value in inputs.items() if name != "input_ids"}
        states = inputs.pop("states")
        encoded = outputs.BaseModelOutput(last_hidden_state=states)
        if self._is_pooled:
            encoded = outputs.BaseModelOutputWithPooling(
                last_hidden_state=states, pooler_output=states
            )
        return self.network(
            encoder_outputs=encoded,
            decoder_input_ids=tokens,
            use_cache=cache is not None,
            **{memory_key(): None if cache is None else _copied(cache)},
            **inputs,
            **self._options,
        )

    def start(self, prompts: Inputs) -> SpeakerState:
        """Return the memory before the first token of I prompts."""
        inputs = dict(prompts)
        if self.start_ids:
            return SpeakerState(inputs=inputs)
        if "inputs_embeds" in inputs:
            shape = inputs["inputs_embeds"].shape[:2]
            inputs["input_ids"] = torch.zeros(shape, dtype=torch.long, device=self.network.device)
        if "position_ids" in self._arguments:
            places = self.network._prepare_position_ids_for_generation(
                inputs["input_ids"], _without_captions(inputs)
            )
            inputs["position_ids"] = places
        return SpeakerState(inputs=inputs)

    def generate_tokens(
        self, state: SpeakerState, *, end_ids: Sequence[int], **settings: Any
    ) -> Generated:
        """Generate captions with the network's own search.

        Args:
            state: the memory before the first token.
            end_ids: tokens that end a caption.
            **settings: arguments of ``generate``.

        Returns:
            ``(I * M, T)`` tokens after the prompt, and ``(I * M,)`` scores: scores of the beam, or
            summed log-probabilities.
        """
        inputs, skipped = _without_captions(state.inputs), 0
        if self.start_ids:
            start = torch.tensor(self.start_ids, device=self.network.device)
            inputs["decoder_input_ids"] = start.expand(_rows(inputs), -1)
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


def _grown(inputs: Inputs, tokens: Tensor, exist: Tensor) -> Inputs:
    """Extend the inputs by ``tokens (G, T)``, some of which are padding."""
    grown, number = dict(inputs), tokens.shape[1]
    grown["input_ids"] = torch.cat([inputs["input_ids"], tokens], dim=1)
    if "attention_mask" in inputs:
        mask = inputs["attention_mask"]
        grown["attention_mask"] = torch.cat([mask, exist.to(mask)], dim=1)
    for name, value in _by_token(inputs):
        added = inputs[f"{name}{CAPTION}"].expand(-1, number, *[-1] * (value.dim() - 2))
        grown[name] = torch.cat([value, added.to(value)], dim=1)
    if "position_ids" in inputs:
        places = inputs["position_ids"]
        added = torch.arange(1, number + 1, device=places.device)
        grown["position_ids"] = torch.cat([places, places[..., -1:] + added], dim=-1)
    return grown


def _by_token(inputs: Inputs) -> list[tuple[str, Tensor]]:
    """Return the inputs with a value per token, except the tokens and their mask."""
    names = [name.removesuffix(CAPTION) for name in inputs if name.endswith(CAPTION)]
    return [(name, inputs[name]) for name in names if name != "attention_mask"]


def _without_captions(inputs: Inputs) -> Inputs:
    """Return the inputs for a network call, without values for captions."""
    return {name: value for name, value in inputs.items() if not name.endswith(CAPTION)}


def _rows(inputs: Inputs) -> int:
    return len(next(value for value in inputs.values() if isinstance(value, Tensor)))
