"""Decoders as networks that ONNX can hold: a captioner's `onnx_form` gives its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True, kw_only=True)
class OnnxForm:
    """A captioner's decoder in two networks.

    Attributes:
        memory: features of photos ``(N, R, D)`` to the decoder's input for each photo.
        step: tokens, the decoder's input, states; to log-probabilities ``(N, V)``, new states.
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
    """The form of `captioning.models.updown.UpDown`: a step reads the last word and four states."""
    return OnnxForm(
        memory=UpDownMemory(model),
        step=UpDownStep(model),
        names=("keys", "values", "mean_gates"),
        state_sizes=(model.query.in_features,) * 4,
        reads="token",
        prefix=(model.tokenizer.bos_id,),
    )


def blip_form(model: Any) -> OnnxForm:
    """The form of `captioning.models.blip.Blip`: a step reads all words, and keeps nothing."""
    return OnnxForm(
        memory=BlipMemory(model),
        step=BlipStep(model),
        names=("states",),
        state_sizes=(),
        reads="prefix",
        prefix=(model.tokenizer.bos_id, *model.prompt.tolist()),
    )


class UpDownMemory(nn.Module):
    """Keys, values and the mean's gates of a photo's regions."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """``(N, R, A)``, ``(N, R, D)`` and ``(N, 4H)``."""
        keys, values, gates = self.model.read_regions(features, None)
        return keys, values, gates + self.model.words_to_gates.bias


class UpDownStep(nn.Module):
    """A plain step of UpDown: `captioning.models.updown.UpDown.step` without its shortcuts."""

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
        """See `OnnxForm.step`; states are h1, c1, h2 and c2."""
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
    """An LSTM's new state; gates are ordered input, forget, output, candidate."""
    enter, forget, leave, candidate = gates.chunk(4, dim=1)
    cell = torch.sigmoid(forget) * cell + torch.sigmoid(enter) * torch.tanh(candidate)
    return torch.sigmoid(leave) * torch.tanh(cell), cell


class BlipMemory(nn.Module):
    """A photo's states as the decoder reads them."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, features: Tensor) -> Tensor:
        """``(N, S, D)``."""
        return features if self.model.project is None else self.model.project(features)


class BlipStep(nn.Module):
    """BLIP's decoder over all tokens so far; nothing is kept between steps."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.decoder = model.decoder

    def forward(self, tokens: Tensor, states: Tensor) -> Tensor:
        """``(N, V)`` after the last of ``tokens (N, T)``."""
        pairs = self.decoder.project_images(states)
        index = torch.arange(tokens.shape[0], device=tokens.device)
        last = self.decoder.read(tokens, pairs, index, None)[:, -1]
        return functional.log_softmax(self.decoder.logits(last), dim=-1)
