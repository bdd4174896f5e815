"""Captioners as networks that ONNX can hold: one for photos, one for a step of the decoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from captioning.models.base import AbstractCaptioner
from captioning.models.blip import Blip
from captioning.models.updown import UpDown


@dataclass(frozen=True, kw_only=True)
class Networks:
    """The two halves of a captioner.

    Attributes:
        image: pixels ``(N, 3, H, W) uint8`` to what the decoder reads of each photo.
        step: tokens, what the decoder reads, states; to log-probabilities ``(N, V)``, new states.
        memory: names of what the decoder reads.
        state_sizes: of the states of a hypothesis, ``(N, size)`` each.
        reads: ``"token"``: the last token ``(N,)``; ``"prefix"``: all tokens ``(N, T)``, from
            which everything is computed anew.
        prefix: ids before the first word.
    """

    image: nn.Module
    step: nn.Module
    memory: tuple[str, ...]
    state_sizes: tuple[int, ...]
    reads: Literal["token", "prefix"]
    prefix: tuple[int, ...]


class ImageNetwork(nn.Module):
    """Pixels to features, rounded where a cache rounds them, to what a decoder reads.

    Args:
        backbone: `captioning.vision.backbones.Backbone` or like it.
        memory: makes the decoder's part of features ``(N, R, D)``.
        rounded: whether the features were cached in half precision.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, backbone: Any, memory: nn.Module, *, rounded: bool) -> None:
        super().__init__()
        self.backbone, self.memory, self.rounded = backbone, memory, rounded
        for name in ("mean", "std"):
            values = torch.tensor(getattr(backbone, name)).view(3, 1, 1)
            self.register_buffer(name, 255 * values, persistent=False)

    def forward(self, pixels: Tensor) -> Any:
        """See `Networks.image`."""
        features = self.backbone.grid((pixels.float() - self.mean) / self.std)
        return self.memory(features.half().float() if self.rounded else features)


class UpDownMemory(nn.Module):
    """Keys, values and the mean's gates of a photo's regions."""

    def __init__(self, model: UpDown) -> None:
        super().__init__()
        self.model = model

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """``(N, R, A)``, ``(N, R, D)`` and ``(N, 4H)``."""
        keys, values, gates = self.model.read_regions(features, None)
        return keys, values, gates + self.model.words_to_gates.bias


class UpDownStep(nn.Module):
    """A plain step of UpDown: `captioning.models.updown.UpDown.step` without its shortcuts."""

    def __init__(self, model: UpDown) -> None:
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
        """See `Networks.step`; states are h1, c1, h2 and c2."""
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

    def __init__(self, model: Blip) -> None:
        super().__init__()
        self.model = model

    def forward(self, features: Tensor) -> Tensor:
        """``(N, S, D)``."""
        return features if self.model.project is None else self.model.project(features)


class BlipStep(nn.Module):
    """BLIP's decoder over all tokens so far; nothing is kept between steps."""

    def __init__(self, model: Blip) -> None:
        super().__init__()
        self.decoder = model.decoder

    def forward(self, tokens: Tensor, states: Tensor) -> Tensor:
        """``(N, V)`` after the last of ``tokens (N, T)``."""
        pairs = self.decoder.project_images(states)
        index = torch.arange(tokens.shape[0], device=tokens.device)
        last = self.decoder.read(tokens, pairs, index, None)[:, -1]
        return functional.log_softmax(self.decoder.logits(last), dim=-1)


def networks_of(model: AbstractCaptioner[Any], features: Any) -> Networks:
    """The networks of a captioner.

    Args:
        model: in evaluation mode.
        features: the backbone of cached features; None where the model has its own.

    Raises:
        ValueError: the model has no form for ONNX, or reads regions or features of neither.
    """
    backbone: Any = features if features is not None else model.backbone
    if backbone is None or not all(hasattr(backbone, name) for name in ("grid", "mean", "std")):
        raise ValueError("onnx=true needs a backbone that reads pixels: this run has none")
    bos = model.tokenizer.bos_id
    rounded = features is not None
    if isinstance(model, UpDown):
        sizes = (model.query.in_features,) * 4
        return Networks(
            image=ImageNetwork(backbone, UpDownMemory(model), rounded=rounded),
            step=UpDownStep(model),
            memory=("keys", "values", "mean_gates"),
            state_sizes=sizes,
            reads="token",
            prefix=(bos,),
        )
    if isinstance(model, Blip):
        return Networks(
            image=ImageNetwork(backbone, BlipMemory(model), rounded=rounded),
            step=BlipStep(model),
            memory=("states",),
            state_sizes=(),
            reads="prefix",
            prefix=(bos, *model.prompt.tolist()),
        )
    raise ValueError(
        f"onnx=true: {type(model).__name__} has no form for ONNX; there are UpDown and Blip: "
        "leave it out, the other files are complete without it"
    )
