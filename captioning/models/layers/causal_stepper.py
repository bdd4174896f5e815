"""Causal language model of transformers as a stepper, for whole texts and single steps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from captioning.interfaces import AbstractDecoderState, AbstractStepper
from captioning.models.layers.cuda_graphs import GraphedPart, Room, trains_on_gpu
from captioning.models.layers.hypothesis_tree import HypothesisTree, additive_mask
from captioning.models.layers.wide_linear import wide_linear
from captioning.runtime.model_folder import memory_key
from captioning.runtime.sample_dropout import drops_by_sample


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptedState(AbstractDecoderState):
    """Decoder memory of hypotheses after their images' prompts.

    Attributes:
        tree: keys and values of prompts and tokens.
        places: ``(I,) int64`` position of the next token; prompts may differ in length.
        first: ``(G, D)`` states of the prompts' last tokens, which predict the first word; None
            after the first word.
    """

    tree: HypothesisTree
    places: Tensor
    first: Tensor | None

    def select(self, index: Tensor) -> PromptedState:
        """Select hypotheses by index."""
        images = torch.unique_consecutive(index // self.tree.read.shape[1])
        return PromptedState(
            tree=self.tree.select(index),
            places=self.places[images],
            first=None if self.first is None else self.first[index],
        )


class CausalStepper(AbstractStepper[PromptedState]):
    """Stepper with weights and code of a causal language model; prompts are vectors.

    Args:
        network: network of transformers, such as ``GPT2LMHeadModel``. It must accept vectors
            instead of tokens, a four-dimensional mask and positions, and its logits must be the
            product of its output layer; `check` tests this.
    """

    def __init__(self, network: nn.Module) -> None:
        self.network: Any = network
        self._graphed: GraphedPart | None = None
        self._room = Room()

    @property
    def words(self) -> nn.Embedding:
        """Word embeddings of the model."""
        return self.network.get_input_embeddings()

    @property
    def limit(self) -> int | None:
        """Maximum number of positions, or None if unlimited."""
        return getattr(self.network.config, "max_position_embeddings", None)

    def read(self, vectors: Tensor) -> Tensor:
        """Return states ``(B, N, D)`` of texts given as word vectors, with causal attention.

        Args:
            vectors: ``(B, N, D)``; padding at the end does not change the states before it.

        Raises:
            ValueError: the text is longer than the model's context.
        """
        number, length, _ = vectors.shape
        self._check_length(length)
        if self._graphed is None or not trains_on_gpu(vectors) or drops_by_sample():
            return self._read(vectors)[0]
        missing = self._room.missing(number, length, self.limit)
        (states,) = self._graphed(functional.pad(vectors, (0, 0, *missing)))
        return states[:number, :length]

    def use_cuda_graphs(self) -> None:
        """Read texts on a GPU by one CUDA graph, padded to the largest batch seen."""
        self._graphed = GraphedPart(self.network.base_model, self._read)

    def _read(self, vectors: Tensor) -> tuple[Tensor]:
        """Compute `read` without CUDA graphs."""
        mask = None
        if vectors.device.type != "cpu":
            # without a mask transformers asks the device whether texts are packed, and waits for it
            mask = _causal_mask(vectors, 1)
        return (self._states(inputs_embeds=vectors, attention_mask=mask, use_cache=False),)

    def logits(self, states: Tensor) -> Tensor:
        """Return logits ``(M, V)`` of states ``(M, D)``."""
        head = self.network.get_output_embeddings()
        if torch.is_grad_enabled():
            return head(states)
        return wide_linear(states, head.weight, head.bias)

    def start(self, prompts: Tensor, lengths: Tensor) -> PromptedState:
        """Read prompts and return the memory after them.

        Args:
            prompts: ``(I, N, D)`` vectors, padded at the end.
            lengths: ``(I,) int64`` number of vectors of each prompt, in [1, N].
        """
        num_images, longest, _ = prompts.shape
        self._check_length(longest)
        empty = HypothesisTree.start(
            num_layers=self.network.config.num_hidden_layers,
            num_images=num_images,
            device=prompts.device,
        )
        places = torch.arange(longest, device=prompts.device)
        exist = places < lengths[:, None]
        tree = replace(empty.read_prompt(longest), read=exist[:, None])
        # Padding attends to the prompt before it: a fully masked row would give NaN.
        states = self._states(
            inputs_embeds=prompts,
            attention_mask=_causal_mask(prompts, num_images),
            position_ids=places.expand(num_images, -1),
            use_cache=True,
            **{memory_key(): tree.cache()},
        )
        last = states[torch.arange(num_images, device=prompts.device), lengths - 1]
        return PromptedState(tree=tree, places=lengths, first=last)

    def step(self, tokens: Tensor, state: PromptedState) -> tuple[Tensor, PromptedState]:
        """Return log-probabilities of the next token; the begin token is not read."""
        logits, after = self.next_logits(tokens, state)
        return functional.log_softmax(logits, dim=-1), after

    def next_logits(self, tokens: Tensor, state: PromptedState) -> tuple[Tensor, PromptedState]:
        """Return logits instead of log-probabilities; otherwise as `step`."""
        if state.first is not None:
            states, after = state.first, replace(state, first=None)
        else:
            states, after = self._read_on(tokens, state)
        return self.logits(states).to(torch.float32), after

    def _read_on(self, tokens: Tensor, state: PromptedState) -> tuple[Tensor, PromptedState]:
        tree = state.tree.grown()
        self._check_length(tree.length)
        num_images, block, _ = tree.read.shape
        vectors = self.words(tokens.view(num_images, block))
        states = self._states(
            inputs_embeds=vectors,
            attention_mask=tree.mask(vectors.dtype),
            position_ids=state.places[:, None].expand(-1, block),
            use_cache=True,
            **{memory_key(): tree.cache()},
        )
        return states.flatten(0, 1), replace(state, tree=tree, places=state.places + 1)

    def _states(self, **inputs: Any) -> Tensor:
        return self.network.base_model(**inputs).last_hidden_state

    def _check_length(self, length: int) -> None:
        if self.limit is not None and length > self.limit:
            raise ValueError(
                f"prompt and caption have {length} tokens, more than the language model's "
                f"context of {self.limit}: lower the maximum length of the tokenizer or the search"
            )

    @torch.no_grad()
    def check(self) -> None:
        """Test on three tokens that whole texts, steps and the model's own code agree.

        Raises:
            ValueError: they differ, because the model needs something unsupported, such as
                windowed attention or scaled logits.
        """
        was_training = self.network.training
        self.network.eval()
        words = self.words.weight
        tokens = torch.arange(3, device=words.device) % len(words)
        name = type(self.network).__name__
        try:
            logits = self.network(input_ids=tokens[None], use_cache=False).logits[0, -1].float()
            read_logits = self.logits(self.read(self.words(tokens[None]))[:, -1])[0].float()
            state = self.start(self.words(tokens[None, :1]), tokens.new_ones(1))
            log_probs = tokens.new_zeros((1, len(words)))
            for token in tokens:
                log_probs, state = self.step(token[None], state)
        except (TypeError, AttributeError, RuntimeError, ValueError) as error:
            raise ValueError(
                f"{name} cannot run step by step ({error}); use another language model"
            ) from error
        finally:
            self.network.train(was_training)
        expected = logits.log_softmax(-1)
        for predicted in (read_logits.log_softmax(-1), log_probs[0]):
            if not torch.allclose(predicted, expected, atol=1e-3, rtol=1e-3):
                raise ValueError(
                    f"{name} predicts different words step by step than with its own code; use a "
                    "language model with plain attention, such as GPT-2 or Llama"
                )


def _causal_mask(vectors: Tensor, number: int) -> Tensor:
    """Return the causal mask ``(number, 1, N, N)`` for texts ``(B, N, D)``, to add to scores."""
    longest = vectors.shape[1]
    causal = torch.ones(longest, longest, dtype=torch.bool, device=vectors.device).tril()
    return additive_mask(causal.expand(number, 1, -1, -1), vectors.dtype)
