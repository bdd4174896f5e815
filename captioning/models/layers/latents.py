"""Latents of every word: posteriors given the caption, and priors given the image.

COS-CVAE (Mahajan and Roth, 2020): a word has a context latent ``z^m`` and an object latent
``z^o``. With v the mean of the image's regions, x^m the caption with placeholders for its objects
and x^o these objects:

    q(z^m_t | z^m_{t-1}, x^m)             `ContextPosterior`
    q(z^o_t | z^o_{t-1}, z^m_t, x^o, v)   `ObjectPosterior`
    p(z^m_t | z^m_{<t}, v), p(z^o_t | z^o_{<t}, z^m_{<=t}, v)   `LatentPrior`

By default priors read no words, as in the paper. Latents are then sampled before the first word,
and all hypotheses of a search share them. In the authors' code priors read the previous word, too
(`captioning.models.layers.latent_form.LatentForm`), and each hypothesis has its own latents.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from captioning.models.layers.cuda_graphs import (
    AbstractGraphedPart,
    Function,
    Graphed,
    Room,
    trains_on_gpu,
)
from captioning.models.layers.gaussian import Gaussian
from captioning.models.layers.latent_form import LatentForm
from captioning.models.layers.latent_prior import LatentPrior
from captioning.models.layers.object_split import NUM_PLACEHOLDERS
from captioning.models.layers.on_device import on_device


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """Latents ``(B, T, Z)`` sampled one after the other, and their distributions."""

    values: Tensor
    distribution: Gaussian


def _draw(
    bounded: bool, statistics: Tensor, noise: Tensor, previous: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Sample a chain; return values, means and log-variances ``(B, T, Z)``; see `DrawChain`."""
    value, values, distributions = torch.zeros_like(noise[:, 0]), [], []
    for step in range(noise.shape[1]):
        given = statistics[:, step] + functional.linear(value, previous)
        distribution = Gaussian.of(given, bounded=bounded)
        value = distribution.sample(noise[:, step])
        distributions.append(distribution)
        values.append(value)
    means = torch.stack([distribution.mean for distribution in distributions], 1)
    log_variances = torch.stack([distribution.log_variance for distribution in distributions], 1)
    return torch.stack(values, 1), means, log_variances


class DrawChain:
    """Sample ``z_t`` given ``statistics (B, T, 2Z)`` of the words and ``z_{t-1}``.

    Args:
        bounded: see `Gaussian.of`.
    """

    def __init__(self, *, bounded: bool) -> None:
        self._draw = partial(_draw, bounded)
        self._graphed: Graphed | None = None
        self._room = Room()

    def use_cuda_graphs(self) -> None:
        """Sample on a GPU by one CUDA graph; a step of the chain has some 25 operations."""
        self._graphed = Graphed(self._draw)

    def __call__(self, statistics: Tensor, previous: nn.Linear, noise: Tensor) -> Chain:
        """Sample with standard normal ``noise (B, T, Z)``."""
        if self._graphed is None or not trains_on_gpu(noise):
            drawn = self._draw(statistics, noise, previous.weight)
        else:
            drawn = self.padded(self._graphed, statistics, noise, previous.weight)
        values, means, log_variances = drawn
        distribution = Gaussian(mean=means, log_variance=log_variances)
        return Chain(values=values, distribution=distribution)

    def padded(
        self, draw: Function, statistics: Tensor, noise: Tensor, previous: Tensor
    ) -> tuple[Tensor, ...]:
        """Pad to the largest number of captions and steps seen, then sample."""
        captions, steps = noise.shape[:2]
        missing = (0, 0, *self._room.missing(captions, steps))
        drawn = draw(functional.pad(statistics, missing), functional.pad(noise, missing), previous)
        return tuple(values[:captions, :steps] for values in drawn)


def _states(gru: nn.GRU, inputs: Tensor, lengths: Tensor) -> Tensor:
    """Return a GRU's outputs, ``(B, T, H)``; 0 after a sequence's end.

    ``lengths (B,)`` are on the CPU. Sequences are sorted here because torch would wait for the
    device.
    """
    ordered, order = torch.sort(lengths, descending=True)
    places = on_device(order.argsort(), inputs.device)
    inputs = inputs.index_select(0, on_device(order, inputs.device))
    outputs, _ = gru(pack_padded_sequence(inputs, ordered, batch_first=True))
    padded, _ = pad_packed_sequence(outputs, batch_first=True, total_length=inputs.shape[1])
    return padded.index_select(0, places)


class ContextPosterior(nn.Module):
    """Posterior of context latents, from the caption with placeholders read in both directions."""

    def __init__(
        self,
        *,
        size: int,
        embedding_size: int,
        hidden_size: int,
        latent_size: int,
        bounded: bool = True,
    ) -> None:
        """Create the layers.

        Args:
            size: vocabulary size with placeholders.
            embedding_size: size of word embeddings.
            hidden_size: hidden size H of the GRU per direction.
            latent_size: Z.
            bounded: see `Gaussian.of`.
        """
        super().__init__()
        self.draw = DrawChain(bounded=bounded)
        self.embed = nn.Embedding(size, embedding_size)
        self.gru = nn.GRU(embedding_size, hidden_size, batch_first=True, bidirectional=True)
        self.statistics = nn.Linear(2 * hidden_size, 2 * latent_size)
        self.previous = nn.Linear(latent_size, 2 * latent_size, bias=False)

    def forward(self, context: Tensor, lengths: Tensor, noise: Tensor) -> tuple[Chain, Tensor]:
        """Read contexts and sample latents.

        Args:
            context: ``(B, T) int64`` words and placeholders.
            lengths: ``(B,) int64`` on the CPU.
            noise: ``(B, T, Z)`` standard normal.

        Returns:
            The latents, and a summary of the context ``(B, H)``.
        """
        states = _states(self.gru, self.embed(context), lengths)
        both = states.sum(1) / on_device(lengths, states.device)[:, None]
        summary = torch.stack(both.chunk(2, dim=1)).mean(0)
        return self.draw(self.statistics(states), self.previous, noise), summary


class ObjectPosterior(nn.Module):
    """Posterior of object latents, from the object words, the image and the context."""

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
        all_slots: bool = False,
        bounded: bool = True,
    ) -> None:
        """Create the layers.

        Args:
            size: vocabulary size with placeholders, which are never read.
            embedding_size: size of word embeddings.
            feature_size: size of the mean feature.
            summary_size: size of the context's summary.
            hidden_size: hidden size of the GRU.
            context_size: size of the context latents.
            latent_size: Z.
            all_slots: read padding in place of missing objects, too.
            bounded: see `Gaussian.of`.
        """
        super().__init__()
        self.all_slots, self.draw = all_slots, DrawChain(bounded=bounded)
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
        """Read objects and sample latents.

        Args:
            objects: ``(B, O) int64``, padded.
            counts: ``(B,) int64`` numbers of objects, on the CPU; 0 is read as one padding token.
            mean: ``(B, D)`` mean features.
            summary: ``(B, H)`` summaries of the contexts.
            context: ``(B, T, Zm)`` context latents.
            noise: ``(B, T, Z)`` standard normal.
        """
        counts = counts.clamp(min=objects.shape[1] if self.all_slots else 1)
        image_context = torch.cat([mean, summary], 1)[:, None].expand(-1, objects.shape[1], -1)
        states = _states(self.gru, torch.cat([self.embed(objects), image_context], 2), counts)
        object_states = states.sum(1) / on_device(counts, states.device)[:, None]
        object_states = object_states[:, None].expand(-1, context.shape[1], -1)
        statistics = self.statistics(torch.cat([object_states, context], 2))
        return self.draw(statistics, self.previous, noise)


class Latents(nn.Module, AbstractGraphedPart):
    """Both posteriors and the prior of COS-CVAE's latents."""

    def __init__(
        self,
        *,
        size: int,
        embedding_size: int,
        feature_size: int,
        hidden_sizes: tuple[int, int],
        sizes: tuple[int, int],
        form: LatentForm,
    ) -> None:
        """Create the parts.

        Args:
            size: vocabulary size with two placeholders.
            embedding_size: size of word embeddings.
            feature_size: D of the mean feature.
            hidden_sizes: hidden sizes of the GRUs and LSTMs of context and objects.
            sizes: sizes of the two latents, Zm and Zo.
            form: variant of the model, see `LatentForm`.
        """
        super().__init__()
        words: dict[str, Any] = {
            "embedding_size": embedding_size,
            "bounded": form.bounded_variances,
        }
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
            all_slots=form.all_object_slots,
            **words,
        )
        self.prior = LatentPrior(
            feature_size=feature_size,
            context_hidden=hidden_sizes[0],
            object_hidden=hidden_sizes[1],
            context_size=sizes[0],
            object_size=sizes[1],
            vocabulary=size - NUM_PLACEHOLDERS if form.prior_reads_words else None,
            **words,
        )
        if form.plain_start:
            self._start_plainly()
            return
        prior = self.prior
        for layer in (
            self.context.statistics,
            self.objects.statistics,
            prior.to_context,
            prior.to_objects,
        ):
            # Initially all are nearly standard normal, so training begins without divergence.
            nn.init.normal_(layer.weight, std=0.01)
            nn.init.zeros_(layer.bias)

    def use_cuda_graphs(self) -> None:
        """Use CUDA graphs in training, see `DrawChain`."""
        self.context.draw.use_cuda_graphs()
        self.objects.draw.use_cuda_graphs()

    def _start_plainly(self) -> None:
        """Initialise as if the layer of the statistics read the previous latent, too."""
        for posterior in (self.context, self.objects):
            statistics, previous = posterior.statistics, posterior.previous
            bound = (statistics.in_features + previous.in_features) ** -0.5
            for parameter in (*statistics.parameters(), *previous.parameters()):
                nn.init.uniform_(parameter, -bound, bound)
