"""GRPO: rewards of sampled captions relative to their photo's mean, with a clipped ratio."""

from __future__ import annotations

from typing import Any, Literal, final

import torch
import torch.distributed as dist
from torch import Tensor

from captioning.config.ranges import NonNegativeFloat, PositiveFloat, PositiveInt, Seed
from captioning.models.adapt import without_low_rank
from captioning.models.base import AbstractCaptioner
from captioning.models.layers.on_device import on_device
from captioning.models.layers.weighted_mean import mean_of
from captioning.training.objectives.rewards import AbstractReward
from captioning.training.objectives.self_critical import (
    AbstractRewardObjective,
    Draws,
    described,
    max_length,
)
from captioning.types import Batch, CaptionLosses, Mean, Sample

EPSILON = 1e-4  # beside the spread of rewards, as TRL's


@final
class Grpo(AbstractRewardObjective):
    """Group-relative policy optimisation, token by token (GRPO; Shao et al., 2024, equation 3).

    The advantage of a draw is its reward minus the mean of its photo's K draws, divided by their
    standard deviation (with K - 1; ``scale_rewards=none`` omits it: Liu et al., "Dr. GRPO", 2025).
    The loss of a token is ``-min(r A, clip(r, 1 - clip_low, 1 + clip_high) A) + beta * KL``: r is
    the token's probability divided by its probability when drawn. KL is the published estimate
    ``exp(d) - d - 1``, d the log-probability by the base minus that by the model. The base is
    ``model.pretrained`` without low-rank additions: it takes a pass, and no memory.

    Args:
        reward: reward of a caption.
        num_samples: K, captions drawn a photo; at least 2.
        temperature: temperature of the draws; 1: the model's own distribution, to which r refers.
        num_updates: number of updates of the model with the same draws; r is 1 in the first.
        clip_low, clip_high: limits on the fall and rise of r; above 0.
        beta: weight of the KL; 0: none.
        scale_rewards: divide advantages by the standard deviation of rewards of the photo
            (``"group"``) or of the batch (``"batch"``), or not at all (``"none"``).
        mean: mean of the tokens' losses: over all ``"tokens"`` of the batch (Yu et al., "DAPO",
            2025; TRL's default), over each caption's tokens and then over ``"captions"``, as
            published, or over captions of the greatest ``"length"`` (Dr. GRPO).
        likelihood_weight: weight of the likelihood loss that is added; 0: none.
        seed: the run's seed.

    Raises:
        ValueError: fewer than 2 captions.
    """

    def __init__(
        self,
        *,
        reward: AbstractReward,
        num_samples: PositiveInt = 8,
        temperature: PositiveFloat = 1.0,
        num_updates: PositiveInt = 1,
        clip_low: PositiveFloat = 0.2,
        clip_high: PositiveFloat = 0.2,
        beta: NonNegativeFloat = 0.0,
        scale_rewards: Literal["group", "batch", "none"] = "group",
        mean: Literal["tokens", "captions", "length"] = "tokens",
        likelihood_weight: NonNegativeFloat = 0.0,
        seed: Seed = 0,
    ) -> None:
        if num_samples < 2:
            raise ValueError(
                "objective.num_samples must be at least 2, as a photo's draws are compared: got "
                f"{num_samples}"
            )
        super().__init__(
            reward=reward,
            num_samples=num_samples,
            temperature=temperature,
            likelihood_weight=likelihood_weight,
            seed=seed,
        )
        self.num_updates, self.beta = num_updates, beta
        self.clip_low, self.clip_high = clip_low, clip_high
        self.scale_rewards, self.mean = scale_rewards, mean

    def _advantages(
        self, model: AbstractCaptioner[Any], batch: Batch, rewards: Tensor, samples: list[Sample]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """See `AbstractRewardObjective`; also logs the share of photos with equal rewards."""
        spread = rewards.std(1, keepdim=True)
        centred = rewards - rewards.mean(1, keepdim=True)
        logged = {"rewards_alike": (spread == 0).float().mean()}
        if self.scale_rewards == "none":
            return centred, logged
        if self.scale_rewards == "batch":
            spread = _spread(rewards, self._counted(batch), batch.rows.device)
        return centred / (spread + EPSILON), logged

    def _policy(
        self, model: AbstractCaptioner[Any], batch: Batch, draws: Draws
    ) -> tuple[Mean, dict[str, Tensor]]:
        """See `AbstractRewardObjective`."""
        captions = described(batch, draws.drawn, model.tokenizer.bos_id, by_token=True)
        exist = (draws.drawn.lengths > 0).flatten()
        weights = self._counted(batch)
        weights = exist.float() if weights is None else exist * weights
        if self.beta and "base" not in draws.kept:
            with torch.no_grad(), without_low_rank(model):
                draws.kept["base"] = _token_nll(model, model.losses(captions))

        def loss(found: CaptionLosses, part: Batch, places: Tensor) -> Mean:
            nll = _token_nll(model, found)
            own = on_device(places, nll.device)
            kept = {name: value[own, : nll.shape[1]] for name, value in draws.kept.items()}
            advantages = on_device(draws.advantages[places], nll.device).to(nll)[:, None]
            of_tokens = self._of_tokens(nll, advantages, kept)
            return self._mean(of_tokens, _exist(part), weights[own], max_length(model))

        result = self._scored(model, captions, loss)
        nll = _token_nll(model, result).detach()
        logged = self._logged(nll, _exist(captions), draws)
        draws.kept.setdefault("drawn", nll)
        return result.means[0], logged

    def _of_tokens(self, nll: Tensor, advantages: Tensor, kept: dict[str, Tensor]) -> Tensor:
        """Loss of each token, shape ``(B, T)``."""
        ratio = (kept.get("drawn", nll.detach()) - nll).exp()
        clipped = ratio.clamp(1 - self.clip_low, 1 + self.clip_high)
        loss = -torch.minimum(ratio * advantages, clipped * advantages)
        return loss + self.beta * divergence(nll, kept["base"]) if self.beta else loss

    def _mean(self, losses: Tensor, exist: Tensor, weights: Tensor, longest: int) -> Mean:
        """Mean of the token losses ``(B, T)``, with a weight ``(B,)`` per caption."""
        if self.mean == "tokens":
            return mean_of(losses.flatten(), (exist * weights[:, None]).flatten())
        lengths = exist.sum(1) if self.mean == "captions" else longest
        return mean_of((losses * exist).sum(1) / lengths, weights)

    def _logged(self, nll: Tensor, exist: Tensor, draws: Draws) -> dict[str, Tensor]:
        """Values to log: the share of tokens with a clipped ratio, and the mean KL per token."""
        logged = {}
        if "drawn" in draws.kept:
            ratio = (draws.kept["drawn"] - nll).exp()
            rises = on_device(draws.advantages, nll.device)[:, None]
            high = (ratio > 1 + self.clip_high) & (rises > 0)
            low = (ratio < 1 - self.clip_low) & (rises < 0)
            logged["clipped"] = ((high | low) * exist).sum() / exist.sum()
        if self.beta:
            logged["kl"] = (divergence(nll, draws.kept["base"]) * exist).sum() / exist.sum()
        return logged


def divergence(nll: Tensor, base: Tensor) -> Tensor:
    """Estimated KL divergence from a base model per token (DeepSeekMath, equation 4).

    Args:
        nll: negative log-likelihoods of tokens that the model drew.
        base: negative log-likelihoods of the same tokens by the base.
    """
    further = nll - base
    return further.exp() - further - 1


def _exist(captions: Batch) -> Tensor:
    """Mask of real tokens, ``(B, T - 1) float32``: 1 at each token but the first, 0 on padding."""
    _, exist = captions.caption_tokens()
    return exist[:, 1:].float()


def _token_nll(model: AbstractCaptioner[Any], losses: CaptionLosses) -> Tensor:
    if losses.token_nll is None:
        raise ValueError(
            f"objective=grpo needs the log-likelihood of each token, and "
            f"{type(model).__name__}.losses gives none (CaptionLosses.token_nll): choose another "
            "model= or objective=self_critical"
        )
    return losses.token_nll


def _spread(rewards: Tensor, weights: Tensor | None, device: torch.device) -> Tensor:
    """Standard deviation of rewards ``(I, K)`` over all processes, each photo counted once."""
    counts = torch.ones_like(rewards) if weights is None else weights.cpu().view_as(rewards)
    values = rewards.double()
    sums = torch.stack([counts.sum(), (counts * values).sum(), (counts * values**2).sum()])
    if dist.is_available() and dist.is_initialized():
        sums = sums.to(device)
        dist.all_reduce(sums)
    number, total, squares = sums.cpu()
    return ((squares - total**2 / number) / (number - 1)).clamp(min=0).sqrt().to(rewards)
