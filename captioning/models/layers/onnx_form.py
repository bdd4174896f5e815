"""Decoders as networks for ONNX export, returned by a captioner's `onnx_form`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True, kw_only=True)
class OnnxForm:
    """A captioner's decoder as two networks for ONNX.

    Attributes:
        memory: network from photo features ``(N, R, D)`` to the decoder's input.
        step: network from tokens, decoder input and states to log-probabilities and states.
        names: names of the decoder's inputs.
        state_sizes: state sizes of the states of a hypothesis, ``(N, size)`` each.
        reads: ``"token"``: the last token ``(N,)``; ``"prefix"``: all tokens ``(N, T)``, from which
            the decoder computes everything again.
        prefix: ids before the first word.
    """

    memory: nn.Module
    step: nn.Module
    names: tuple[str, ...]
    state_sizes: tuple[int, ...]
    reads: Literal["token", "prefix"]
    prefix: tuple[int, ...]


def updown_form(model: Any) -> OnnxForm:
    """Return UpDown's ONNX form: a step reads the last word and four states."""
    return OnnxForm(
        memory=UpDownMemory(model),
        step=UpDownStep(model),
        names=("keys", "values", "mean_gates"),
        state_sizes=(model.query.in_features,) * 4,
        reads="token",
        prefix=(model.tokenizer.bos_id,),
    )


def blip_form(model: Any) -> OnnxForm:
    """Return BLIP's ONNX form: a step reads all words, without a cache."""
    return OnnxForm(
        memory=BlipMemory(model),
        step=BlipStep(model),
        names=("states",),
        state_sizes=(),
        reads="prefix",
        prefix=(model.tokenizer.bos_id, *model.prompt.tolist()),
    )


class UpDownMemory(nn.Module):
    """Network that projects a photo's regions to keys, values and the mean's gates."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return keys ``(N, R, A)``, values ``(N, R, D)`` and gates ``(N, 4H)``."""
        keys, values, gates = self.model.read_regions(features, None)
        return keys, values, gates + self.model.words_to_gates.bias


class UpDownStep(nn.Module):
    """Network of one UpDown step, without the shortcuts of `captioning.models.updown.UpDown`."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        tokens: Tensor,
        keys: Tensor,
        values: Tensor,
        mean_gates: Tensor,
        *state: Tensor,
    ) -> tuple[Tensor, ...]:
        """Make a step, see `OnnxForm.step`; states are h1, c1, h2 and c2."""
        model, (h1, c1, h2, c2) = self.model, state
        words = functional.linear(model.read_words(tokens), model.words_to_gates.weight)
        gates = words + mean_gates + model.hidden_to_gates(torch.cat([h2, h1], 1))
        h1, c1 = _cell(gates, c1)
        squashed = torch.tanh(keys + model.query(h1).unsqueeze(1))
        alpha = torch.softmax(squashed @ model.score, dim=1)
        context = (alpha.unsqueeze(2) * values).sum(1)
        h2, c2 = _cell(model.language(torch.cat([context, h1, h2], 1)), c2)
        log_probs = functional.log_softmax(model._logits(h2), dim=-1)
        return log_probs, h1, c1, h2, c2


def _cell(gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """Return an LSTM's new state; gates are ordered input, forget, output, candidate."""
    enter, forget, leave, candidate = gates.chunk(4, dim=1)
    cell = torch.sigmoid(forget) * cell + torch.sigmoid(enter) * torch.tanh(candidate)
    return torch.sigmoid(leave) * torch.tanh(cell), cell


class BlipMemory(nn.Module):
    """Network that prepares a photo's states for the decoder."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, features: Tensor) -> Tensor:
        """Return the states ``(N, S, D)``."""
        return features if self.model.project is None else self.model.project(features)


class BlipStep(nn.Module):
    """Network of BLIP's decoder over all tokens so far, without a cache."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.decoder = model.decoder

    def forward(self, tokens: Tensor, states: Tensor) -> Tensor:
        """Return log-probabilities ``(N, V)`` after the last of ``tokens (N, T)``."""
        pairs = self.decoder.project_images(states)
        index = torch.arange(tokens.shape[0], device=tokens.device)
        last = self.decoder.read(tokens, pairs, index, None)[:, -1]
        return functional.log_softmax(self.decoder.logits(last), dim=-1)
