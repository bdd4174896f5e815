"""COS-CVAE: diverse captions from latents split into context and objects (Mahajan and Roth, 2020).

Every word has a latent of the caption's context and one of its objects
(`captioning.models.layers.latents`); an UpDown decoder reads both. What is trained is the negative
of the evidence lower bound, ``-log p(x | z, v) + KL(q || p)``, in two phases of different weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from captioning.models.base import AbstractCaptioner
from captioning.models.layers.cross_entropy import token_losses
from captioning.models.layers.gaussian import Gaussian
from captioning.models.layers.keyed_noise import keyed_noise
from captioning.models.layers.latent_decoder import LatentDecoder, LatentState, Seen
from captioning.models.layers.latents import Chain, ContextPosterior, LatentPrior, ObjectPosterior
from captioning.models.layers.object_split import ObjectSplit
from captioning.models.layers.packing import Packing
from captioning.models.layers.weighted_mean import weighted_mean
from captioning.text.object_words import build_object_words
from captioning.types import Batch, CaptionLosses

# A dimension of a latent is active if the caption moves it by so many nats a word.
ACTIVE_NATS = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class LossWeights:
    """What each part of the loss counts, in one phase of training.

    Attributes:
        nll: negative log-likelihood of the words.
        kl: divergence of the posteriors from the priors.
    """

    nll: float = 1.0
    kl: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The parts of the bound, a value a caption.

    Attributes:
        nll: ``(B,)`` summed over words, in nats.
        kl_context, kl_objects: ``(B, Z)`` summed over words, by dimension, in nats.
        lengths: ``(B,) int64`` words, the end counted.
        context, objects: the latents that were drawn.
        expected: the priors' laws of both.
    """

    nll: Tensor
    kl_context: Tensor
    kl_objects: Tensor
    lengths: Tensor
    context: Chain
    objects: Chain
    expected: tuple[Gaussian, Gaussian]

    @property
    def kl(self) -> Tensor:
        """``(B,)`` of both latents, summed over dimensions."""
        return self.kl_context.sum(1) + self.kl_objects.sum(1)


class CosCvae(AbstractCaptioner):
    """A conditional variational auto-encoder of captions, with sequential latents.

    Args:
        feature_size: D of the regions as they come.
        objects: words that name objects, ``"coco"`` or a file, see
            `captioning.text.object_words.build_object_words`.
        attention_lstm_size, language_lstm_size, attention_size: of the decoder.
        embedding_size: of the decoder's words.
        posterior_embedding_size: of the posteriors' words.
        projection_size: regions are embedded to this size with ReLU and dropout; None: used as
            they come.
        context_hidden, object_hidden: of the posteriors' GRUs and of the priors' LSTMs.
        context_size, object_size: of the latents.
        num_objects: tokens of objects that the posterior reads, at most.
        max_steps: words that latents are drawn for when captions are generated.
        dropout: on embedded features and on the language LSTM's output.
        word_dropout: share of the decoder's words that are read as the unknown word in training, so
            that the latents are worth reading.
        first, later: weights of the loss in the two phases, see `LossWeights`.
        first_epochs: epochs of the first phase.
        free_nats: divergence of each latent that costs nothing, in nats a word of the caption
            (Kingma et al., 2016): latents do not collapse below it. 0 in the authors' code.
        reduction: ``"token_mean"`` over the batch's words, or ``"caption_sum"``: summed over a
            caption's words and averaged over captions, as the authors do.
        seed: of the latents' noise, with each caption's row and the number of updates.
        **captioner: see `AbstractCaptioner`.
    """

    loss_is_bound = True

    def __init__(
        self,
        *,
        feature_size: int,
        objects: str = "coco",
        attention_lstm_size: int = 2048,
        language_lstm_size: int = 1024,
        attention_size: int = 2048,
        embedding_size: int = 1000,
        posterior_embedding_size: int = 300,
        projection_size: int | None = None,
        context_hidden: int = 1024,
        object_hidden: int = 256,
        context_size: int = 64,
        object_size: int = 64,
        num_objects: int = 5,
        max_steps: int = 24,
        dropout: float = 0.0,
        word_dropout: float = 0.5,
        first: Mapping[str, float] | None = None,
        later: Mapping[str, float] | None = None,
        first_epochs: int = 1,
        free_nats: float = 0.0,
        reduction: str = "token_mean",
        seed: int = 0,
        **captioner: Any,
    ) -> None:
        super().__init__(**captioner)
        if reduction not in ("token_mean", "caption_sum"):
            raise ValueError(f"reduction must be token_mean or caption_sum: got {reduction!r}")
        if not 0 <= word_dropout < 1:
            raise ValueError(f"word_dropout must be in [0, 1): got {word_dropout}")
        self.reduction, self.num_objects, self.max_steps = reduction, num_objects, max_steps
        self.seed, self.first_epochs, self.free_nats = seed, first_epochs, free_nats
        self.phases = (LossWeights(**(first or {})), LossWeights(**(later or {})))
        # A normal number below it drops the word that it is drawn for.
        self.drop_below = torch.special.ndtri(torch.tensor(word_dropout)).item()
        self.split = ObjectSplit(tokenizer=self.tokenizer, words=build_object_words(objects))
        self.project = None
        if projection_size is not None:
            self.project = nn.Sequential(
                nn.Linear(feature_size, projection_size), nn.ReLU(), nn.Dropout(dropout)
            )
        features = projection_size or feature_size
        self.decoder = LatentDecoder(
            vocabulary=len(self.tokenizer),
            feature_size=features,
            attention_lstm_size=attention_lstm_size,
            language_lstm_size=language_lstm_size,
            attention_size=attention_size,
            embedding_size=embedding_size,
            latent_size=context_size + object_size,
            dropout=dropout,
        )
        self._say_common_words(self.decoder.output.bias)
        self.context_posterior = ContextPosterior(
            size=self.split.size,
            embedding_size=posterior_embedding_size,
            hidden_size=context_hidden,
            latent_size=context_size,
        )
        self.object_posterior = ObjectPosterior(
            size=len(self.tokenizer),
            embedding_size=posterior_embedding_size,
            feature_size=features,
            summary_size=context_hidden,
            hidden_size=object_hidden,
            context_size=context_size,
            latent_size=object_size,
        )
        self.prior = LatentPrior(
            feature_size=features,
            context_hidden=context_hidden,
            object_hidden=object_hidden,
            context_size=context_size,
            object_size=object_size,
        )

    @property
    def weights(self) -> LossWeights:
        """Weights of the loss in the present phase."""
        return self.phases[int(self.current_epoch >= self.first_epochs)]

    def _look(self, batch: Batch) -> Seen:
        regions = self._regions(batch).to(self.decoder.score.dtype)
        if self.project is not None:
            regions = self.project(regions)
        return self.decoder.look(regions, batch.region_mask)

    def losses(self, batch: Batch) -> CaptionLosses:
        """The negative bound of each caption, weighted as the phase wants it."""
        terms = self.terms(batch)
        free = self.free_nats * terms.lengths
        charged = sum(kl.sum(1).clamp(min=free) for kl in (terms.kl_context, terms.kl_objects))
        loss = self.weights.nll * terms.nll + self.weights.kl * charged
        bound = (terms.nll + terms.kl) / terms.lengths
        return CaptionLosses(
            total=self._reduced(loss, terms.lengths, batch.weights),
            per_sample=bound.detach(),
            parts=_parts(terms),
        )

    def _reduced(self, losses: Tensor, lengths: Tensor, weights: Tensor | None) -> Tensor:
        """One number from captions' sums ``(B,)``."""
        if self.reduction == "caption_sum":
            return weighted_mean(losses, weights)
        counted = lengths if weights is None else weights * lengths
        return weighted_mean(losses / lengths, counted)

    def terms(self, batch: Batch, number: int | None = None) -> Terms:
        """The parts of the bound, with latents drawn from the posteriors.

        Args:
            batch: images and captions.
            number: of the draw; None for the number of updates so far.
        """
        packing = Packing.of(batch.token_mask[:, 1:].sum(1))
        # The longest caption of the batch, whatever padding it has.
        tokens = batch.tokens[:, : len(packing.sizes) + 1]
        targets, real = tokens[:, 1:], batch.token_mask[:, 1 : len(packing.sizes) + 1, None]
        number = self.global_step if number is None else number
        noise = self._noise(batch.rows, packing.lengths, number)
        seen = self._look(batch)
        # Densities and their divergence are as fine as their exponents: never in half precision.
        with torch.autocast(self.device.type, enabled=False):
            mean = seen.mean.to(noise.dtype)[batch.image_index]
            context, objects = self._posteriors(targets, packing.lengths, mean, noise)
            expected = self._priors(mean, context.values, objects.values)
        latents = torch.cat([context.values, objects.values], 2)
        words = self._dropped(tokens[:, :-1], noise[:, :, -1])
        logits = self.decoder.logits(words, latents, seen, batch.image_index, packing)
        wanted = packing.pack(targets[packing.order])
        nll, _ = token_losses(logits.to(self.decoder.score.dtype), wanted)
        kl_context, kl_objects = (
            (chain.law.divergence(law) * real).sum(1)
            for chain, law in zip((context, objects), expected, strict=True)
        )
        return Terms(
            nll=packing.sum_by_caption(nll),
            kl_context=kl_context,
            kl_objects=kl_objects,
            lengths=packing.lengths,
            context=context,
            objects=objects,
            expected=expected,
        )

    def _noise(self, rows: Tensor, lengths: Tensor, number: int) -> Tensor:
        """``(B, T, Zm + Zo + 1)`` for both latents and for the words that are dropped."""
        keys = [(self.seed, row, number) for row in rows.tolist()]
        noise = keyed_noise(keys, lengths.tolist(), sum(self.prior.sizes) + 1)
        return noise.to(self.decoder.score)

    def _posteriors(
        self, targets: Tensor, lengths: Tensor, mean: Tensor, noise: Tensor
    ) -> tuple[Chain, Chain]:
        """Latents of context and objects of ``targets (B, T)``."""
        for_context, for_objects, _ = noise.split((*self.prior.sizes, 1), dim=2)
        numbers = self.split.numbers(targets)
        context, summary = self.context_posterior(
            self.split.context(targets, numbers), lengths, for_context
        )
        words, counts = self.split.objects(targets, numbers, self.num_objects)
        return context, self.object_posterior(
            words, counts, mean, summary, context.values, for_objects
        )

    def _priors(self, mean: Tensor, context: Tensor, objects: Tensor) -> tuple[Gaussian, Gaussian]:
        return (
            self.prior.context_given(mean, context),
            self.prior.objects_given(mean, context, objects),
        )

    def _dropped(self, words: Tensor, chances: Tensor) -> Tensor:
        """Words ``(B, T)`` of which some are unknown while the model trains; never the first."""
        if not self.training:
            return words
        dropped = (chances < self.drop_below) & (words != self.tokenizer.bos_id)
        return words.masked_fill(dropped, self.tokenizer.unk_id)

    @torch.no_grad()
    def log_likelihood(self, batch: Batch, *, num_draws: int) -> Tensor:
        """Estimates of ``log p(caption | image)``, ``(B,)`` in nats, by importance sampling.

        ``log mean_k p(x | z_k) p(z_k) / q(z_k | x)`` over draws from the posteriors (Burda et al.,
        2016): at least the bound on average, and nearer the more draws there are.

        Args:
            batch: images and captions.
            num_draws: draws a caption.
        """
        found = []
        for number in range(num_draws):
            terms = self.terms(batch, number)
            ratios = -terms.nll
            for chain, law in zip((terms.context, terms.objects), terms.expected, strict=True):
                gain = law.log_density(chain.values) - chain.law.log_density(chain.values)
                ratios = ratios + (gain * batch.token_mask[:, 1:]).sum(1)
            found.append(ratios)
        return torch.stack(found).logsumexp(0) - torch.log(ratios.new_tensor(num_draws))

    def start(self, batch: Batch) -> LatentState:
        """The memory with the latents at their means; `LatentState.drawn` gives others."""
        seen = self._look(batch)
        seen = replace(seen, mean=seen.mean.to(self.decoder.score.dtype))
        noise = seen.mean.new_zeros(len(seen.mean), self.max_steps, sum(self.prior.sizes))
        return self.decoder.start(seen, self.prior.draw(seen.mean, noise, 0.0), self.prior)

    def step(self, tokens: Tensor, state: LatentState) -> tuple[Tensor, LatentState]:
        """Log-probabilities of the next word."""
        return self.decoder.step(tokens, state)


def _parts(terms: Terms) -> dict[str, Tensor]:
    """What is logged: nats a word, and the share of the latents' dimensions that are active.

    A latent that has collapsed says nothing of its caption: none of its dimensions is active.
    """
    words = terms.lengths.sum()
    parts = {"nll": terms.nll.detach().sum() / words}
    for name, divergence in (("context", terms.kl_context), ("objects", terms.kl_objects)):
        by_dimension = divergence.detach().sum(0) / words
        parts[f"kl_{name}"] = by_dimension.sum()
        parts[f"active_{name}"] = (by_dimension > ACTIVE_NATS).float().mean()
    return parts
