"""UpDown of two published repositories, stated again from papers and shapes of parameters.

Nothing here imports this project: plain `torch.nn`, one caption and one word at a time. Attributes
have the published names, so ``state_dict()`` has the keys of published checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

State = tuple[Tensor, Tensor, Tensor, Tensor]
Step = Callable[[int, State | None], tuple[Tensor, State]]
"""From a token and the state before: log-probabilities ``(V,)`` of the next one, and the state."""


class Attention(nn.Module):
    """Additive attention of updown-baseline, without biases."""

    def __init__(self, hidden: int, features: int, size: int) -> None:
        super().__init__()
        self._query_vector_projection_layer = nn.Linear(hidden, size, bias=False)
        self._image_features_projection_layer = nn.Linear(features, size, bias=False)
        self._attention_layer = nn.Linear(size, 1, bias=False)

    def forward(self, query: Tensor, regions: Tensor) -> Tensor:
        keys = self._image_features_projection_layer(regions)
        sums = torch.tanh(keys + self._query_vector_projection_layer(query))
        return torch.softmax(self._attention_layer(sums)[:, 0], 0) @ regions


class BaselineCell(nn.Module):
    def __init__(self, features: int, words: int, hidden: int, size: int) -> None:
        super().__init__()
        self._attention_lstm_cell = nn.LSTMCell(words + features + 2 * hidden, hidden)
        self._butd_attention = Attention(hidden, features, size)
        self._language_lstm_cell = nn.LSTMCell(features + 2 * hidden, hidden)


class Baseline(nn.Module):
    """nocaps-org/updown-baseline: 0 is padding and unknown, 1 begins and ends."""

    def __init__(self, *, vocabulary: int, features: int, tied: bool) -> None:
        super().__init__()
        words, hidden = 6, 9
        self._embedding_layer = nn.Embedding(vocabulary, words, padding_idx=0)
        self._updown_cell = BaselineCell(features, words, hidden, 5)
        if tied:
            self._output_projection = nn.Sequential(nn.Linear(hidden, words), nn.Tanh())
            self._output_layer = nn.Linear(words, vocabulary, bias=False)
            self._output_layer.weight = self._embedding_layer.weight
        else:
            self._output_projection = nn.Identity()
            self._output_layer = nn.Linear(hidden, vocabulary)

    def stepper(self, regions: Tensor) -> Step:
        """The model before one image's regions ``(R, D)``."""
        cell = self._updown_cell

        def step(token: int, state: State | None) -> tuple[Tensor, State]:
            h1, c1, h2, c2 = state or (torch.zeros(1, 9),) * 4
            word = self._embedding_layer(torch.tensor([token]))
            inputs = torch.cat([word, regions.mean(0, keepdim=True), h1, h2], 1)
            h1, c1 = cell._attention_lstm_cell(inputs, (h1, c1))
            context = cell._butd_attention(h1, regions)[None]
            h2, c2 = cell._language_lstm_cell(torch.cat([context, h1, h2], 1), (h2, c2))
            logits = self._output_layer(self._output_projection(h2))
            return torch.log_softmax(logits[0], 0), (h1, c1, h2, c2)

        return step

    def loss(self, regions: Tensor, words: Sequence[int]) -> Tensor:
        """Of a caption's words, summed. The end is written after as many as are known."""
        known = sum(word != 0 for word in words)
        tokens = [1, *words, 0]
        tokens[known + 1] = 1
        return caption_loss(self.stepper(regions), tokens, padding=0)


class Core(nn.Module):
    def __init__(self, words: int, hidden: int, size: int) -> None:
        super().__init__()
        self.att_lstm = nn.LSTMCell(words + 2 * hidden, hidden)
        self.lang_lstm = nn.LSTMCell(2 * hidden, hidden)
        self.attention = nn.ModuleDict(
            {"h2att": nn.Linear(hidden, size), "alpha_net": nn.Linear(size, 1)}
        )


class Ruotianluo(nn.Module):
    """ruotianluo/ImageCaptioning.pytorch: 0 is padding, begin and end."""

    def __init__(self, *, vocabulary: int, features: int) -> None:
        super().__init__()
        words, hidden, size = 6, 9, 5
        self.embed = nn.Sequential(nn.Embedding(vocabulary, words), nn.ReLU())
        self.fc_embed = nn.Sequential(nn.Linear(features, hidden), nn.ReLU())
        self.att_embed = nn.Sequential(nn.Linear(features, hidden), nn.ReLU())
        self.logit = nn.Linear(hidden, vocabulary)
        self.ctx2att = nn.Linear(hidden, size)
        self.core = Core(words, hidden, size)

    def stepper(self, regions: Tensor) -> Step:
        """The model before one image's regions ``(R, D)``."""
        mean, values, core = self.fc_embed(regions.mean(0)), self.att_embed(regions), self.core
        keys = self.ctx2att(values)

        def step(token: int, state: State | None) -> tuple[Tensor, State]:
            h1, c1, h2, c2 = state or (torch.zeros(1, 9),) * 4
            word = self.embed(torch.tensor([token]))
            h1, c1 = core.att_lstm(torch.cat([h2, mean[None], word], 1), (h1, c1))
            sums = torch.tanh(keys + core.attention["h2att"](h1))
            weights = torch.softmax(core.attention["alpha_net"](sums)[:, 0], 0)
            h2, c2 = core.lang_lstm(torch.cat([(weights @ values)[None], h1], 1), (h2, c2))
            return torch.log_softmax(self.logit(h2)[0], 0), (h1, c1, h2, c2)

        return step

    def loss(self, regions: Tensor, words: Sequence[int]) -> Tensor:
        """Of a caption's words, summed."""
        return caption_loss(self.stepper(regions), [0, *words, 0], padding=None)


def caption_loss(step: Step, tokens: Sequence[int], padding: int | None) -> Tensor:
    """Negative log-likelihood of all tokens but the first and ``padding``, summed."""
    state, total = None, torch.zeros(())
    for token, following in pairwise(tokens):
        log_probs, state = step(token, state)
        if following != padding:
            total = total - log_probs[following]
    return total


Hypothesis = tuple[float, list[int], State | None, bool]  # score, tokens, state, has ended


def held_beam(step: Step, *, boundary: int, size: int, per_node: int, steps: int) -> list[int]:
    """Beam search of AllenNLP 0.8.4: ended captions stay, the best after all steps is returned."""
    beam: list[Hypothesis] = [(0.0, [], None, False)]
    for number in range(steps):
        candidates: list[Hypothesis] = []
        for score, tokens, state, has_ended in beam:
            if has_ended:
                candidates.append((score, tokens, state, True))
                continue
            log_probs, after = step(tokens[-1] if tokens else boundary, state)
            values, words = log_probs.topk(per_node if number else size)
            for value, word in zip(values.tolist(), words.tolist(), strict=True):
                candidates.append((score + value, [*tokens, word], after, word == boundary))
        beam = sorted(candidates, key=lambda hypothesis: -hypothesis[0])[:size]
    return beam[0][1]


def leaving_beam(step: Step, *, size: int, steps: int, unknown: int) -> list[int]:
    """ruotianluo's: a caption leaves the beam as it ends; those cut off are as good."""
    beam: list[Hypothesis] = [(0.0, [], None, False)]
    finished: list[Hypothesis] = []
    for number in range(steps):
        candidates: list[Hypothesis] = []
        for score, tokens, state, _ in beam:
            log_probs, after = step(tokens[-1] if tokens else 0, state)
            for word, value in enumerate(log_probs.tolist()):
                if word != unknown:
                    candidates.append((score + value, [*tokens, word], after, word == 0))
        best = sorted(candidates, key=lambda hypothesis: -hypothesis[0])[:size]
        last = number == steps - 1
        finished += [hypothesis for hypothesis in best if hypothesis[3] or last]
        beam = [hypothesis for hypothesis in best if not hypothesis[3]]
    return max(finished, key=lambda hypothesis: hypothesis[0])[1]
