"""The evidence lower bound of captions, by its parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from captioning.config.ranges import NonNegativeFloat
from captioning.models.layers.gaussian import Gaussian
from captioning.models.layers.latents import Chain
from captioning.models.layers.packing import Packing
from captioning.models.layers.weighted_mean import LEAST

# A dimension of a latent is active if its divergence is above this, in nats a word.
ACTIVE_NATS = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class LossWeights:
    """Weights of the parts of the loss in one phase of training.

    Attributes:
        nll: negative log-likelihood of the words.
        kl: divergence of the posteriors from the priors.
        nll_nn, kl_nn: the same of filled contexts of other photos, where batches have them.
    """

    nll: NonNegativeFloat = 1.0
    kl: NonNegativeFloat = 1.0
    nll_nn: NonNegativeFloat = 0.0
    kl_nn: NonNegativeFloat = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The parts of the bound, a value a caption.

    Attributes:
        nll: ``(B,)`` summed over words, in nats.
        kl_context, kl_objects: ``(B, Z)`` summed over words, by dimension, in nats.
        lengths: ``(B,)`` words, the end counted.
        context, objects: the drawn latents.
        priors: prior distributions of both.
        masked: the sums and lengths with words by their weights, where these are not all 1.
    """

    nll: Tensor
    kl_context: Tensor
    kl_objects: Tensor
    lengths: Tensor
    context: Chain
    objects: Chain
    priors: tuple[Gaussian, Gaussian]
    masked: Terms | None = None

    def with_weights(
        self, weights: Tensor, *, nll: Tensor, kls: Sequence[Tensor], packing: Packing
    ) -> Terms:
        """These terms, and beside them those with weights of words.

        A word's part in the bound is its likelihood and the divergence of its latents.

        Args:
            weights: ``(B, T)`` of the words.
            nll: ``(N,)`` of the words, packed.
            kls: ``(B, T, Z)`` of the words' latents, 0 where there is no word.
            packing: of the captions.
        """
        weights = weights.to(nll)
        kl_context, kl_objects = ((kl * weights[:, :, None]).sum(1) for kl in kls)
        weights = packing.pack(weights[packing.order])
        masked = replace(
            self,
            nll=packing.sum_by_caption(nll * weights),
            kl_context=kl_context,
            kl_objects=kl_objects,
            # a caption without any word left is divided by its length, too
            lengths=packing.sum_by_caption(weights).clamp(min=LEAST),
        )
        return replace(self, masked=masked)

    @property
    def kl(self) -> Tensor:
        """``(B,)`` of both latents, summed over dimensions."""
        return self.kl_context.sum(1) + self.kl_objects.sum(1)

    def log_ratios(self, real: Tensor) -> Tensor:
        """``log p(x | z) p(z) / q(z | x)`` of the drawn latents, ``(B,)`` in nats.

        Args:
            real: ``(B, T) bool`` words that exist.
        """
        ratios = -self.nll
        for chain, prior in zip((self.context, self.objects), self.priors, strict=True):
            gain = prior.log_density(chain.values) - chain.distribution.log_density(chain.values)
            ratios = ratios + (gain * real).sum(1)
        return ratios

    def parts(self) -> dict[str, Tensor]:
        """Logged values: nats a word, and the share of the latents' dimensions that are active.

        A collapsed latent holds no information about its caption: none of its dimensions is active.
        """
        words = self.lengths.sum()
        parts = {"nll": self.nll.detach().sum() / words}
        for name, divergence in (("context", self.kl_context), ("objects", self.kl_objects)):
            by_dimension = divergence.detach().sum(0) / words
            parts[f"kl_{name}"] = by_dimension.sum()
            parts[f"active_{name}"] = (by_dimension > ACTIVE_NATS).float().mean()
        return parts
