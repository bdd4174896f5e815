"""Priors of COS-CVAE's latents given the image; see `captioning.models.layers.latents`."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor, nn

from captioning.models.layers.gaussian import Gaussian


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadWords:
    """Memory of G hypotheses in a prior that reads words.

    Attributes:
        context, context_cell: ``(G, H)`` states of the context LSTM.
        objects, objects_cell: ``(G, H')`` states of the objects LSTM.
        latents: ``(G, Zm + Zo)`` last sampled latents; 0 before the first word.
    """

    context: Tensor
    context_cell: Tensor
    objects: Tensor
    objects_cell: Tensor
    latents: Tensor

    def select(self, index: Tensor) -> ReadWords:
        """Select hypotheses by index."""
        return ReadWords(**{f.name: getattr(self, f.name)[index] for f in fields(self)})


class LatentPrior(nn.Module):
    """Priors of both latents given the image and earlier latents.

    They are conditioned on ``conditions (B, T, D')``: the mean feature, and the embedding of the
    previous word if the priors read words.
    """

    def __init__(
        self,
        *,
        feature_size: int,
        context_hidden: int,
        object_hidden: int,
        context_size: int,
        object_size: int,
        vocabulary: int | None = None,
        embedding_size: int = 0,
        bounded: bool = True,
    ) -> None:
        """Create the layers.

        Args:
            feature_size: D of the mean feature.
            context_hidden, object_hidden: hidden sizes of the two LSTMs.
            context_size, object_size: sizes of the two latents, Zm and Zo.
            vocabulary: vocabulary size V; None: the priors read no words.
            embedding_size: size of word embeddings.
            bounded: see `Gaussian.of`.
        """
        super().__init__()
        self.sizes, self.bounded = (context_size, object_size), bounded
        self.embed = None if vocabulary is None else nn.Embedding(vocabulary, embedding_size)
        conditions = feature_size + (0 if vocabulary is None else embedding_size)
        self.context = nn.LSTM(conditions + context_size, context_hidden, batch_first=True)
        inputs = conditions + context_size + object_size
        self.objects = nn.LSTM(inputs, object_hidden, batch_first=True)
        self.to_context = nn.Linear(context_hidden, 2 * context_size)
        self.to_objects = nn.Linear(object_hidden, 2 * object_size)

    def conditions(self, mean: Tensor, words: Tensor) -> Tensor:
        """Return ``(B, T, D')`` for mean features ``(B, D)`` and previous words ``(B, T)``."""
        image = mean[:, None].expand(-1, words.shape[1], -1)
        return image if self.embed is None else torch.cat([image, self.embed(words)], 2)

    def distributions(
        self, mean: Tensor, words: Tensor, context: Tensor, objects: Tensor
    ) -> tuple[Gaussian, Gaussian]:
        """Return both priors for ``context (B, T, Zm)`` and ``objects (B, T, Zo)``."""
        conditions = self.conditions(mean, words)
        return (
            self.context_distributions(conditions, context),
            self.object_distributions(conditions, context, objects),
        )

    def context_distributions(self, conditions: Tensor, context: Tensor) -> Gaussian:
        """Return priors of ``z^m_t`` given earlier ones, for ``context (B, T, Zm)``."""
        states, _ = self.context(torch.cat([conditions, _before(context)], 2))
        return Gaussian.of(self.to_context(states), bounded=self.bounded)

    def object_distributions(
        self, conditions: Tensor, context: Tensor, objects: Tensor
    ) -> Gaussian:
        """Return priors of ``z^o_t`` given earlier ones and ``z^m``, for ``objects (B, T, Zo)``."""
        states, _ = self.objects(torch.cat([conditions, context, _before(objects)], 2))
        return Gaussian.of(self.to_objects(states), bounded=self.bounded)

    def draw_context(self, conditions: Tensor, noise: Tensor, temperature: float) -> Tensor:
        """Sample context latents ``(B, T, Zm)`` with ``noise (B, T, Zm)``."""
        value, state, values = torch.zeros_like(noise[:, 0]), None, []
        for step, step_noise in enumerate(noise.unbind(1)):
            inputs = torch.cat([conditions[:, step], value], 1)[:, None]
            states, state = self.context(inputs, state)
            value = self._drawn(self.to_context, states, step_noise, temperature)
            values.append(value)
        return torch.stack(values, 1)

    def draw_objects(
        self, conditions: Tensor, context: Tensor, noise: Tensor, temperature: float
    ) -> Tensor:
        """Sample object latents ``(B, T, Zo)``, given the context latents."""
        value, state, values = torch.zeros_like(noise[:, 0]), None, []
        for step, step_noise in enumerate(noise.unbind(1)):
            inputs = torch.cat([conditions[:, step], context[:, step], value], 1)[:, None]
            states, state = self.objects(inputs, state)
            value = self._drawn(self.to_objects, states, step_noise, temperature)
            values.append(value)
        return torch.stack(values, 1)

    def _drawn(self, layer: nn.Linear, states: Tensor, noise: Tensor, temperature: float) -> Tensor:
        statistics = layer(states[:, 0])
        return Gaussian.of(statistics, bounded=self.bounded).sample(noise, temperature)

    def draw(self, mean: Tensor, noise: Tensor, temperature: float) -> Tensor:
        """Sample both latents ``(B, T, Zm + Zo)`` for priors that read no words."""
        context_noise, object_noise = noise.split(self.sizes, dim=2)
        conditions = mean[:, None].expand(-1, noise.shape[1], -1)
        context = self.draw_context(conditions, context_noise, temperature)
        objects = self.draw_objects(conditions, context, object_noise, temperature)
        return torch.cat([context, objects], 2)

    def start(self, mean: Tensor) -> ReadWords | None:
        """Return the memory before the first word for ``(G, D)``; None if no words are read."""
        if self.embed is None:
            return None
        context, objects = (
            mean.new_zeros(len(mean), size)
            for size in (self.context.hidden_size, self.objects.hidden_size)
        )
        return ReadWords(
            context=context,
            context_cell=context,
            objects=objects,
            objects_cell=objects,
            latents=mean.new_zeros(len(mean), sum(self.sizes)),
        )

    def read(
        self, words: Tensor, mean: Tensor, noise: Tensor, temperature: float, memory: ReadWords
    ) -> ReadWords:
        """Read one word per hypothesis, and sample the next latents.

        Args:
            words: ``(G,) int64``.
            mean: ``(G, D)``.
            noise: ``(G, Zm + Zo)``.
            temperature: see `Gaussian.sample`.
            memory: memory before the word.
        """
        condition = self.conditions(mean, words[:, None])[:, 0]
        noises = noise.split(self.sizes, dim=1)
        before, objects_before = memory.latents.split(self.sizes, dim=1)
        states, (h, c) = self.context(
            torch.cat([condition, before], 1)[:, None],
            (memory.context[None], memory.context_cell[None]),
        )
        context = self._drawn(self.to_context, states, noises[0], temperature)
        states, (h2, c2) = self.objects(
            torch.cat([condition, context, objects_before], 1)[:, None],
            (memory.objects[None], memory.objects_cell[None]),
        )
        objects = self._drawn(self.to_objects, states, noises[1], temperature)
        return ReadWords(
            context=h[0],
            context_cell=c[0],
            objects=h2[0],
            objects_cell=c2[0],
            latents=torch.cat([context, objects], 1),
        )


def _before(values: Tensor) -> Tensor:
    """Shift by one step: each step's predecessor, zeros before the first."""
    return nn.functional.pad(values[:, :-1], (0, 0, 1, 0))
