"""Self-critical sequence training: rewards of captions sampled from the model.

The baseline of a sampled caption's reward is the reward of the greedy caption (Rennie et al., CVPR
2017), or the mean reward of the photo's other samples (Luo, 2020: "A better variant of
self-critical sequence training"), which needs no further search and varies less.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal, final

import numpy as np
import torch
from torch import Tensor, nn

from captioning.config.ranges import NonNegativeFloat, PositiveFloat, PositiveInt, Seed
from captioning.decoding.greedy import GreedySearch
from captioning.decoding.sampling import Sampling
from captioning.decoding.search import AbstractSearch
from captioning.decoding.words_to_tokens import request_of
from captioning.models.base import AbstractCaptioner
from captioning.models.layers.on_device import on_device
from captioning.models.layers.weighted_mean import mean_of
from captioning.training.objectives.rewards import AbstractReward, judged, try_reward
from captioning.types import CAPTION_REWARD, REWARD, Batch, CaptionLosses, Control, Mean, Sample

# `Batch.extras` with a row a caption; those of drawn captions are not known, all others are of
# pictures.
OF_CAPTIONS = ("context_tokens", "context_lengths", "object_words", "region_words")


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """Sampled captions, K for each of I photos.

    Attributes:
        tokens: ``(I, K, T) int64`` without the begin token, padded.
        lengths: ``(I, K) int64``, 0 if there is no caption.
        texts: I * K captions, photo by photo.
        ended: I * K flags, True for a caption with its end token.
    """

    tokens: Tensor
    lengths: Tensor
    texts: list[str]
    ended: list[bool]


@dataclass(slots=True, kw_only=True)
class Draws:
    """Values shared by all updates with the same sampled captions.

    Attributes:
        step: epoch and batch.
        drawn: captions.
        advantages: ``(I * K,)`` on the CPU, 0 for captions that do not exist.
        likelihood: losses of the true captions.
        logged: named scalars.
        recorded: see `CaptionLosses.recorded`.
        kept: values by name that an objective keeps for the next update.
    """

    step: tuple[int, int]
    drawn: Drawn
    advantages: Tensor
    likelihood: CaptionLosses
    logged: dict[str, Tensor]
    recorded: dict[str, Tensor]
    kept: dict[str, Tensor] = field(default_factory=dict)


class AbstractRewardObjective(ABC):
    """Train on rewards: make sampled captions more probable if their reward is above average.

    Captions are sampled and scored without dropout, so that both use the same distribution; photos
    are encoded once. Losses per caption (for curation) are computed on the true captions, as under
    `objective=likelihood`. Masked words of true captions change the likelihood loss that is added,
    and neither rewards nor draws.

    Args:
        reward: reward of a caption.
        num_samples: K, captions drawn a photo.
        temperature: temperature of the draws; 1: the model's own distribution.
        likelihood_weight: weight of the likelihood loss that is added; 0: none.
        seed: the run's seed; a draw depends on it, the epoch, the batch and the photo alone.

    Attributes:
        several_means: whether the likelihood loss is added, which has its own denominator.
        num_updates: number of updates of the model with the same draws.
        judges_captions: whether the rewards of the true captions are recorded, too.
    """

    num_updates = 1
    judges_captions = False

    def __init__(
        self,
        *,
        reward: AbstractReward,
        num_samples: int,
        temperature: float,
        likelihood_weight: float,
        seed: int,
    ) -> None:
        self.reward, self.num_samples, self.temperature = reward, num_samples, temperature
        self.likelihood_weight, self.seed = likelihood_weight, seed
        self.several_means = likelihood_weight > 0
        self._view: Any = None
        self._samples: dict[int, Sample] = {}
        self._draws: Draws | None = None

    def __call__(
        self, model: AbstractCaptioner[Any], batch: Batch, batch_idx: int
    ) -> CaptionLosses:
        """Compute the losses of a training step; references come from the epoch's samples.

        Raises:
            ValueError: a reward is missing, not finite or always the same.
        """
        datamodule: Any = getattr(model.trainer, "datamodule", None)
        is_first = self._view is None
        if is_first:
            self.reward.start(datamodule.train.samples)
        if (view := datamodule.view) is not self._view:
            self.open(view.samples())
            self._view = view
        if is_first:
            try_reward(self.reward, [s for s in self._samples.values() if s.weight > 0])
        return self.losses(model, batch, (model.current_epoch, batch_idx))

    def open(self, samples: Sequence[Sample]) -> None:
        """Set the samples of the coming epoch."""
        self._samples = {sample.row: sample for sample in samples}
        self.reward.open([sample for sample in samples if sample.weight > 0])

    def losses(
        self, model: AbstractCaptioner[Any], batch: Batch, step: tuple[int, int]
    ) -> CaptionLosses:
        """Compute the losses of a batch of the opened samples.

        If `num_updates` is above 1, further calls in the same step are further updates.

        Args:
            model: the captioner.
            batch: photos with their true captions.
            step: epoch and batch, for the seed.

        Raises:
            ValueError: the model gives no likelihoods with gradient.
        """
        batch = model.encoded(batch)
        draws = self._draws
        if draws is None or draws.step != step:
            draws = self._new_draws(model, batch, step)
            self._draws = draws if self.num_updates > 1 else None
        elif self.likelihood_weight:
            draws.likelihood = self._likelihood(model, batch)
        with evaluating(model):
            policy, logged = self._policy(model, batch, draws)
        likelihood, weight = draws.likelihood, self.likelihood_weight
        own = likelihood.means or (Mean(value=likelihood.total, number=len(batch)),)
        own_losses = {"likelihood": likelihood.total.detach(), "policy": policy.value.detach()}
        return CaptionLosses(
            total=policy.value + weight * likelihood.total,
            per_sample=likelihood.per_sample,
            parts=draws.logged | logged | own_losses,
            nll=likelihood.nll,
            smoothed=likelihood.smoothed,
            token_nll=likelihood.token_nll,
            means=(policy, *(replace(mean, value=weight * mean.value) for mean in own)),
            recorded=draws.recorded,
        )

    @abstractmethod
    def _advantages(
        self, model: AbstractCaptioner[Any], batch: Batch, rewards: Tensor, samples: list[Sample]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Turn rewards ``(I, K)`` into advantages ``(I, K)``, and return further values to log.

        Args:
            model: in evaluation mode.
            batch: encoded.
            rewards: rewards of the drawn captions.
            samples: I, one of each photo.
        """

    @abstractmethod
    def _policy(
        self, model: AbstractCaptioner[Any], batch: Batch, draws: Draws
    ) -> tuple[Mean, dict[str, Tensor]]:
        """Policy loss with gradient, and values to log."""

    def _new_draws(
        self, model: AbstractCaptioner[Any], batch: Batch, step: tuple[int, int]
    ) -> Draws:
        likelihood = self._likelihood(model, batch)
        with evaluating(model):
            drawn = drawn_captions(model, batch, self._sampling(model, step))
            rows = batch.photo_rows or batch.host.rows[first_captions(batch)].tolist()
            samples = [self._samples[row] for row in rows]
            rewards = self._rewards(drawn, samples)
            advantages, logged = self._advantages(model, batch, rewards, samples)
        logged = {"reward": rewards.mean(), **logged}
        logged["advantage_std"] = advantages.std(correction=0)
        return Draws(
            step=step,
            drawn=drawn,
            advantages=(advantages * (drawn.lengths > 0).cpu()).flatten(),
            likelihood=likelihood,
            logged=logged,
            recorded=self._recorded(batch, rewards),
        )

    def _likelihood(self, model: AbstractCaptioner[Any], batch: Batch) -> CaptionLosses:
        """Losses of the true captions, with gradient if they are part of the training loss."""
        with torch.set_grad_enabled(self.likelihood_weight > 0):
            return model.in_parts(batch, lambda part, _: model.losses(part))

    def _recorded(self, batch: Batch, rewards: Tensor) -> dict[str, Tensor]:
        """Mean reward of each caption's photo, and the true caption's own reward if requested."""
        recorded = {REWARD: rewards.mean(1)[batch.host.image_index]}
        if self.judges_captions:
            samples = [self._samples[row] for row in batch.host.rows.tolist()]
            captions = [sample.caption for sample in samples]
            ended = [True] * len(samples)
            recorded[CAPTION_REWARD] = judged(self.reward, captions, samples, ended)
        return recorded

    def _counted(self, batch: Batch) -> Tensor | None:
        """Weights ``(I * K,)`` that count a photo once if several processes have its captions."""
        rows = set() if batch.filler else set(batch.host.rows.tolist())
        photo_rows = batch.photo_rows or ()
        if rows.issuperset(photo_rows):  # always so with one process
            return None
        weights = torch.tensor([float(row in rows) for row in photo_rows])
        return on_device(weights.repeat_interleave(self.num_samples), batch.rows.device)

    def _sampling(self, model: AbstractCaptioner[Any], step: tuple[int, int]) -> Sampling:
        seed = int(np.random.SeedSequence((self.seed, *step)).generate_state(1)[0])
        return Sampling.with_settings(
            **_settings(model),
            num_captions=self.num_samples,
            temperature=self.temperature,
            seed=seed,
        )

    def _rewards(self, drawn: Drawn, samples: Sequence[Sample]) -> Tensor:
        """Rewards of the sampled captions, shape ``(I, K)``."""
        each = drawn.tokens.shape[1]
        of_captions = [sample for sample in samples for _ in range(each)]
        return judged(self.reward, drawn.texts, of_captions, drawn.ended).view(-1, each)

    def _scored(
        self,
        model: AbstractCaptioner[Any],
        captions: Batch,
        loss: Callable[[CaptionLosses, Batch, Tensor], Mean],
    ) -> CaptionLosses:
        """Losses of sampled captions, with ``total`` computed by ``loss``.

        Args:
            model: in evaluation mode.
            captions: see `described`.
            loss: function of a part's losses, the part, and the indices of its captions.
        """

        def of_part(part: Batch, places: Tensor) -> CaptionLosses:
            found = model.losses(part)
            mean = loss(found, part, places)
            return replace(found, total=mean.value, means=(mean,))

        return model.in_parts(captions, of_part)


@final
class SelfCritical(AbstractRewardObjective):
    """Policy gradient (REINFORCE) of the expected reward, in place of the likelihood's gradient.

    The loss is ``-mean((reward - baseline) * log p(caption))`` over all drawn captions: its
    gradient is unbiased at temperature 1. For a latent-variable model, the bound replaces log p.
    See `AbstractRewardObjective`.

    Args:
        reward: reward of a caption.
        num_samples: K, captions drawn a photo; at least 2 with the baseline ``"mean"``.
        temperature: temperature of the draws; 1: the model's own distribution.
        baseline: ``"mean"`` of the photo's other draws, or ``"greedy"``: the reward of the photo's
            greedy caption.
        likelihood_weight: weight of the likelihood loss that is added; 0: none.
        seed: the run's seed.

    Raises:
        ValueError: the baseline is a mean of fewer than 2 captions.
    """

    def __init__(
        self,
        *,
        reward: AbstractReward,
        num_samples: PositiveInt = 5,
        temperature: PositiveFloat = 1.0,
        baseline: Literal["mean", "greedy"] = "mean",
        likelihood_weight: NonNegativeFloat = 0.0,
        seed: Seed = 0,
    ) -> None:
        if baseline == "mean" and num_samples < 2:
            raise ValueError(
                f"objective.num_samples must be at least 2 for baseline=mean: got {num_samples}; "
                "draw more, or choose objective.baseline=greedy"
            )
        super().__init__(
            reward=reward,
            num_samples=num_samples,
            temperature=temperature,
            likelihood_weight=likelihood_weight,
            seed=seed,
        )
        self.baseline = baseline

    def _advantages(
        self, model: AbstractCaptioner[Any], batch: Batch, rewards: Tensor, samples: list[Sample]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """See `AbstractRewardObjective`."""
        if self.baseline == "mean":
            return above_others(rewards), {}
        greedy = drawn_captions(model, batch, GreedySearch.with_settings(**_settings(model)))
        baseline = self._rewards(greedy, samples)
        return rewards - baseline, {"reward_greedy": baseline.mean()}

    def _policy(
        self, model: AbstractCaptioner[Any], batch: Batch, draws: Draws
    ) -> tuple[Mean, dict[str, Tensor]]:
        """See `AbstractRewardObjective`."""
        weights = self._counted(batch)

        def loss(found: CaptionLosses, part: Batch, places: Tensor) -> Mean:
            own = None if weights is None else weights[places.to(weights.device)]
            return mean_of(draws.advantages[places].to(nll := _nll(model, found)) * nll, own)

        captions = described(batch, draws.drawn, model.tokenizer.bos_id)
        (policy,) = self._scored(model, captions, loss).means
        return policy, {}


def _nll(model: AbstractCaptioner[Any], losses: CaptionLosses) -> Tensor:
    """Negative log-likelihoods ``(B,)`` with gradient."""
    if losses.nll is None:
        raise ValueError(
            f"objective=self_critical needs log-likelihoods with gradient, and "
            f"{type(model).__name__}.losses gives none (CaptionLosses.nll): choose another "
            "model= or objective=likelihood"
        )
    return losses.nll


def drawn_captions(model: AbstractCaptioner[Any], batch: Batch, search: AbstractSearch) -> Drawn:
    """Captions that a search samples for the batch's photos, all in one batch."""
    words = model.tokenizer
    request = request_of(model, words, batch.image_ids, device=batch.rows.device)
    with torch.no_grad():
        result = search(model, model.start(batch), request)
    # Autocast would otherwise reuse copies of the weights that were made without gradients.
    torch.clear_autocast_cache()
    ids = result.tokens.flatten(0, 1).tolist()
    ends = {*request.ends, *search.settings.end_ids}
    lengths = result.lengths.flatten().tolist()
    return Drawn(
        tokens=result.tokens,
        lengths=result.lengths,
        texts=[words.decode(row[:n]) for row, n in zip(ids, lengths, strict=True)],
        ended=[n > 0 and row[n - 1] in ends for row, n in zip(ids, lengths, strict=True)],
    )


def above_others(rewards: Tensor) -> Tensor:
    """Rewards ``(I, K)`` minus the mean of the other K - 1 rewards of the photo; the sum is 0."""
    number = rewards.shape[1]
    return (rewards - rewards.mean(1, keepdim=True)) * (number / (number - 1))


def first_captions(batch: Batch) -> list[int]:
    """Index of the first caption of each of the I photos."""
    first: dict[int, int] = {}
    for position, image in enumerate(batch.host.image_index.tolist()):
        first.setdefault(image, position)
    return [first[image] for image in range(len(batch.image_ids))]


def described(batch: Batch, drawn: Drawn, bos_id: int, *, by_token: bool = False) -> Batch:
    """Batch of the photos with K sampled captions each, requesting the same losses as ``batch``.

    Args:
        batch: batch of true captions.
        drawn: captions of its photos.
        bos_id: begin token.
        by_token: whether losses of single tokens are requested.
    """
    num_images, each, _ = drawn.tokens.shape
    first = first_captions(batch)
    chosen = [place for place in first for _ in range(each)]
    # A caption that does not exist has one token, and weighs nothing later.
    lengths = drawn.lengths.flatten().clamp(min=1)
    tokens = drawn.tokens.flatten(0, 1)
    begin = torch.full_like(tokens[:, :1], bos_id)
    places = torch.arange(tokens.shape[1] + 1, device=tokens.device)
    controls: tuple[Control, ...] | None = None
    if batch.controls is not None:
        controls = tuple(batch.controls[place] for place in chosen)
    made = replace(
        batch,
        rows=batch.rows[chosen],
        sample_ids=tuple(batch.sample_ids[place] for place in chosen),
        image_index=torch.arange(num_images, device=tokens.device).repeat_interleave(each),
        tokens=torch.cat([begin, tokens], dim=1),
        token_mask=places <= lengths[:, None],
        weights=None,
        token_weights=None,
        token_sentences=torch.zeros_like(places.expand(len(tokens), -1)) if by_token else None,
        controls=controls,
        extras=_of_photos(batch.extras),
    )
    small = replace(made, images=None, regions=None, region_mask=None, extras={})
    return made.with_host(replace(small.to("cpu"), extras=_of_photos(batch.host.extras)))


def _of_photos(extras: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value for name, value in extras.items() if name not in OF_CAPTIONS}


def max_length(model: AbstractCaptioner[Any]) -> int:
    """Maximum number of tokens of a sampled caption, including its end token."""
    return _settings(model)["max_length"]


def _settings(model: AbstractCaptioner[Any]) -> dict[str, Any]:
    """Settings that sampling takes from the model's own search."""
    settings = model.search.counting_captions(1 + len(model.prompt_ids)).settings
    return {
        "max_length": settings.max_length,
        "forbidden_ids": settings.forbidden_ids,
        "end_ids": settings.end_ids,
    }


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Run the model without dropout within the block; restore each module's mode afterwards."""
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True
