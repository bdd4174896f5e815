"""Latents of every word: their posteriors given the caption, and their priors given the image.

COS-CVAE (Mahajan and Roth, 2020): a word has a latent ``z^m`` of the context and one of the objects
``z^o``. With v the mean of the image's regions, x^m the caption with placeholders for its objects
and x^o these objects:

    q(z^m_t | z^m_{t-1}, x^m)             `ContextPosterior`
    q(z^o_t | z^o_{t-1}, z^m_t, x^o, v)   `ObjectPosterior`
    p(z^m_t | z^m_{<t}, v), p(z^o_t | z^o_{<t}, z^m_{<=t}, v)   `LatentPrior`

Here priors read no words, as in the paper (in the authors' code they read the previous word). So
latents are drawn before the first word, and all hypotheses of a search share them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from captioning.models.layers.gaussian import Gaussian
from captioning.models.layers.on_device import on_device


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """Latents ``(B, T, Z)`` drawn one after the other, and their distributions."""

    values: Tensor
    distribution: Gaussian


def _chain(statistics: Tensor, previous: nn.Linear, noise: Tensor) -> Chain:
    """Draw ``z_t`` given ``statistics (B, T, 2Z)`` of the words and ``z_{t-1}``."""
    value, values, distributions = torch.zeros_like(noise[:, 0]), [], []
    for step in range(noise.shape[1]):
        distribution = Gaussian.of(statistics[:, step] + previous(value))
        value = distribution.sample(noise[:, step])
        distributions.append(distribution)
        values.append(value)
    distribution = Gaussian(
        mean=torch.stack([distribution.mean for distribution in distributions], 1),
        log_variance=torch.stack([distribution.log_variance for distribution in distributions], 1),
    )
    return Chain(values=torch.stack(values, 1), distribution=distribution)


def _states(gru: nn.GRU, inputs: Tensor, lengths: Tensor) -> Tensor:
    """A GRU's outputs, ``(B, T, H)``; 0 after a sequence's end.

    ``lengths (B,)`` are on the host. Sequences are sorted here because torch would wait for the
    device to do it.
    """
    ordered, order = torch.sort(lengths, descending=True)
    places = on_device(order.argsort(), inputs.device)
    inputs = inputs.index_select(0, on_device(order, inputs.device))
    outputs, _ = gru(pack_padded_sequence(inputs, ordered, batch_first=True))
    padded, _ = pad_packed_sequence(outputs, batch_first=True, total_length=inputs.shape[1])
    return padded.index_select(0, places)


class ContextPosterior(nn.Module):
    """Latents of the context, from the caption with placeholders read in both directions."""

    def __init__(self, *, size: int, embedding_size: int, hidden_size: int, latent_size: int):
        """Make the layers.

        Args:
            size: of the vocabulary with placeholders.
            embedding_size: of its words.
            hidden_size: H of the GRU, in each direction.
            latent_size: Z.
        """
        super().__init__()
        self.embed = nn.Embedding(size, embedding_size)
        self.gru = nn.GRU(embedding_size, hidden_size, batch_first=True, bidirectional=True)
        self.statistics = nn.Linear(2 * hidden_size, 2 * latent_size)
        self.previous = nn.Linear(latent_size, 2 * latent_size, bias=False)

    def forward(self, context: Tensor, lengths: Tensor, noise: Tensor) -> tuple[Chain, Tensor]:
        """Read contexts and draw.

        Args:
            context: ``(B, T) int64`` words and placeholders.
            lengths: ``(B,) int64`` on the host.
            noise: ``(B, T, Z)`` standard normal.

        Returns:
            The latents, and a summary of the context ``(B, H)``.
        """
        states = _states(self.gru, self.embed(context), lengths)
        both = states.sum(1) / on_device(lengths, states.device)[:, None]
        summary = torch.stack(both.chunk(2, dim=1)).mean(0)
        return _chain(self.statistics(states), self.previous, noise), summary


class ObjectPosterior(nn.Module):
    """Latents of the objects, from their words, the image and the context."""

    def __init__(
        self,
        *,
        size: int,
        embedding_size: int,
        feature_size: int,
        summary_size: int,
        hidden_size: int,
        context_size: int,
        latent_size: int,
    ) -> None:
        """Make the layers.

        Args:
            size: of the vocabulary; its placeholders are never read.
            embedding_size: of its words.
            feature_size: of the mean feature.
            summary_size: of the context's summary.
            hidden_size: of the GRU.
            context_size: of the context's latents.
            latent_size: Z.
        """
        super().__init__()
        self.embed = nn.Embedding(size, embedding_size)
        inputs = embedding_size + feature_size + summary_size
        self.gru = nn.GRU(inputs, hidden_size, batch_first=True)
        self.statistics = nn.Linear(hidden_size + context_size, 2 * latent_size)
        self.previous = nn.Linear(latent_size, 2 * latent_size, bias=False)

    def forward(
        self,
        objects: Tensor,
        counts: Tensor,
        mean: Tensor,
        summary: Tensor,
        context: Tensor,
        noise: Tensor,
    ) -> Chain:
        """Read objects and draw.

        Args:
            objects: ``(B, O) int64``, padded.
            counts: ``(B,) int64`` numbers of objects, on the host; 0 is read as one padding token.
            mean: ``(B, D)`` mean features.
            summary: ``(B, H)`` of the contexts.
            context: ``(B, T, Zm)`` their latents.
            noise: ``(B, T, Z)`` standard normal.
        """
        counts = counts.clamp(min=1)
        image_context = torch.cat([mean, summary], 1)[:, None].expand(-1, objects.shape[1], -1)
        states = _states(self.gru, torch.cat([self.embed(objects), image_context], 2), counts)
        object_states = states.sum(1) / on_device(counts, states.device)[:, None]
        object_states = object_states[:, None].expand(-1, context.shape[1], -1)
        return _chain(self.statistics(torch.cat([object_states, context], 2)), self.previous, noise)


class LatentPrior(nn.Module):
    """Priors of both latents given the image, each given the earlier latents."""

    def __init__(
        self,
        *,
        feature_size: int,
        context_hidden: int,
        object_hidden: int,
        context_size: int,
        object_size: int,
    ) -> None:
        """Make the layers.

        Args:
            feature_size: D of the mean feature.
            context_hidden, object_hidden: of the two LSTMs.
            context_size, object_size: of the two latents, Zm and Zo.
        """
        super().__init__()
        self.sizes = (context_size, object_size)
        self.context = nn.LSTM(feature_size + context_size, context_hidden, batch_first=True)
        inputs = feature_size + context_size + object_size
        self.objects = nn.LSTM(inputs, object_hidden, batch_first=True)
        self.to_context = nn.Linear(context_hidden, 2 * context_size)
        self.to_objects = nn.Linear(object_hidden, 2 * object_size)

    def context_distributions(self, mean: Tensor, context: Tensor) -> Gaussian:
        """Priors of ``z^m_t`` given earlier ones, ``mean (B, D)`` and ``context (B, T, Zm)``."""
        states, _ = self.context(torch.cat([_over_time(mean, context), _before(context)], 2))
        return Gaussian.of(self.to_context(states))

    def object_distributions(self, mean: Tensor, context: Tensor, objects: Tensor) -> Gaussian:
        """Priors of ``z^o_t`` given earlier ones and ``z^m``, for ``objects (B, T, Zo)``."""
        image = _over_time(mean, context)
        states, _ = self.objects(torch.cat([image, context, _before(objects)], 2))
        return Gaussian.of(self.to_objects(states))

    def draw_context(self, mean: Tensor, noise: Tensor, temperature: float) -> Tensor:
        """``(B, T, Zm)`` latents of the context for ``noise (B, T, Zm)``, see `Gaussian.sample`."""
        value, state, values = torch.zeros_like(noise[:, 0]), None, []
        for step_noise in noise.unbind(1):
            states, state = self.context(torch.cat([mean, value], 1)[:, None], state)
            value = Gaussian.of(self.to_context(states[:, 0])).sample(step_noise, temperature)
            values.append(value)
        return torch.stack(values, 1)

    def draw_objects(
        self, mean: Tensor, context: Tensor, noise: Tensor, temperature: float
    ) -> Tensor:
        """``(B, T, Zo)`` latents of the objects, given those of the context."""
        value, state, values = torch.zeros_like(noise[:, 0]), None, []
        for step, step_noise in enumerate(noise.unbind(1)):
            inputs = torch.cat([mean, context[:, step], value], 1)[:, None]
            states, state = self.objects(inputs, state)
            value = Gaussian.of(self.to_objects(states[:, 0])).sample(step_noise, temperature)
            values.append(value)
        return torch.stack(values, 1)

    def draw(self, mean: Tensor, noise: Tensor, temperature: float) -> Tensor:
        """Both latents ``(B, T, Zm + Zo)`` for ``noise (B, T, Zm + Zo)``."""
        context_noise, object_noise = noise.split(self.sizes, dim=2)
        context = self.draw_context(mean, context_noise, temperature)
        objects = self.draw_objects(mean, context, object_noise, temperature)
        return torch.cat([context, objects], 2)


class Latents(nn.Module):
    """Both posteriors and the prior."""

    def __init__(
        self,
        *,
        size: int,
        embedding_size: int,
        feature_size: int,
        hidden_sizes: tuple[int, int],
        sizes: tuple[int, int],
    ) -> None:
        """Make the parts.

        Args:
            size: of the vocabulary with two placeholders.
            embedding_size: of its words.
            feature_size: D of the mean feature.
            hidden_sizes: of the GRUs and LSTMs of context and objects.
            sizes: of the two latents, Zm and Zo.
        """
        super().__init__()
        words = {"embedding_size": embedding_size}
        self.context = ContextPosterior(
            size=size, hidden_size=hidden_sizes[0], latent_size=sizes[0], **words
        )
        self.objects = ObjectPosterior(
            size=size,
            feature_size=feature_size,
            summary_size=hidden_sizes[0],
            hidden_size=hidden_sizes[1],
            context_size=sizes[0],
            latent_size=sizes[1],
            **words,
        )
        self.prior = LatentPrior(
            feature_size=feature_size,
            context_hidden=hidden_sizes[0],
            object_hidden=hidden_sizes[1],
            context_size=sizes[0],
            object_size=sizes[1],
        )
        prior = self.prior
        for layer in (
            self.context.statistics,
            self.objects.statistics,
            prior.to_context,
            prior.to_objects,
        ):
            # At first all are nearly standard normal, so that training begins without divergence.
            nn.init.normal_(layer.weight, std=0.01)
            nn.init.zeros_(layer.bias)


def _over_time(mean: Tensor, steps: Tensor) -> Tensor:
    return mean[:, None].expand(-1, steps.shape[1], -1)


def _before(values: Tensor) -> Tensor:
    """Each step's predecessor; zeros before the first."""
    return nn.functional.pad(values[:, :-1], (0, 0, 1, 0))
