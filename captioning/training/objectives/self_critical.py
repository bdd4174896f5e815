"""Self-critical sequence training: captions that the model draws, and their rewards.

Rennie et al. (CVPR 2017) compare each drawn caption's reward with that of the greedy caption; Luo
("A better variant of self-critical sequence training", 2020) with the mean of the other captions
drawn for the photo, which costs no further search and varies less.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, final

import numpy as np
import torch
from torch import Tensor, nn

from captioning.config.ranges import NonNegativeFloat, PositiveFloat, PositiveInt, Seed
from captioning.decoding.greedy import GreedySearch
from captioning.decoding.sampling import Sampling
from captioning.decoding.search import AbstractSearch
from captioning.decoding.words_to_tokens import request_of
from captioning.interfaces import JointEmbedder
from captioning.metrics.bleu import BleuReferences, prepare_bleu, score_bleu
from captioning.metrics.cider import CiderReferences, CiderStatistics
from captioning.metrics.tokenizer import tokenize_python
from captioning.models.base import AbstractCaptioner
from captioning.models.layers.on_device import on_device
from captioning.models.layers.weighted_mean import mean_of
from captioning.types import Batch, CaptionLosses, Control, Mean, Sample
from captioning.vision.photo_keys import loading_for, read_ahead
from captioning.vision.photos import load_rgb

# `Batch.extras` with a row a caption; those of drawn captions are not known, all others are of
# pictures.
OF_CAPTIONS = ("context_tokens", "context_lengths", "object_words", "region_words")
END = "END"
"""Counts as a word where a caption's end is part of its reward; tokens are in lower case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """Captions of I photos, K each.

    Attributes:
        tokens: ``(I, K, T) int64`` without the begin token, padded.
        lengths: ``(I, K) int64``, 0 where there is no caption.
        texts: I * K captions, photo by photo.
        ended: I * K, whether each has its end token.
    """

    tokens: Tensor
    lengths: Tensor
    texts: list[str]
    ended: list[bool]


@final
class SelfCritical:
    """The policy gradient of the expected reward, in the place of the likelihood's gradient.

    The loss is ``-mean((reward - baseline) * log p(caption))`` over all drawn captions: its
    gradient is REINFORCE's, without bias at temperature 1. Captions are drawn, and their
    log-likelihoods taken, without dropout, so that both are of the same distribution; photos are
    encoded once for both. Losses per caption (for curation) are those of the true captions, as
    under `objective=likelihood`. For a latent-variable model the bound stands for log p. Masked
    words of true captions change the likelihood loss that is added, and neither rewards nor draws.

    Args:
        reward: of a caption.
        num_samples: K, captions drawn a photo; at least 2 with the baseline ``"mean"``.
        temperature: of the draws; 1: the model's own distribution.
        baseline: ``"mean"`` of the photo's other draws, or ``"greedy"``: the reward of the photo's
            greedy caption.
        likelihood_weight: of the likelihood loss that is added; 0: none.
        seed: of the run; a draw depends on it, the epoch, the batch and the photo alone.

    Attributes:
        several_means: whether the likelihood loss is added, which has a denominator of its own.

    Raises:
        ValueError: a mean of fewer than 2 captions.
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
        self.reward, self.num_samples, self.temperature = reward, num_samples, temperature
        self.baseline, self.likelihood_weight, self.seed = baseline, likelihood_weight, seed
        self.several_means = likelihood_weight > 0
        self._view: Any = None
        self._samples: dict[int, Sample] = {}

    def __call__(
        self, model: AbstractCaptioner[Any], batch: Batch, batch_idx: int
    ) -> CaptionLosses:
        """Losses of a training step; references are those of the epoch's samples."""
        datamodule: Any = getattr(model.trainer, "datamodule", None)
        if self._view is None:
            self.reward.start(datamodule.train.samples)
        if (view := datamodule.view) is not self._view:
            self.open(view.samples())
            self._view = view
        return self.losses(model, batch, (model.current_epoch, batch_idx))

    def open(self, samples: Sequence[Sample]) -> None:
        """Take an epoch's samples."""
        self._samples = {sample.row: sample for sample in samples}
        self.reward.open([sample for sample in samples if sample.weight > 0])

    def losses(
        self, model: AbstractCaptioner[Any], batch: Batch, step: tuple[int, int]
    ) -> CaptionLosses:
        """Losses of a batch of the opened samples.

        Args:
            model: the captioner.
            batch: photos with their true captions.
            step: epoch and batch, for the seed.

        Raises:
            ValueError: a model that gives no likelihoods with gradient.
        """
        batch = model.encoded(batch)
        with torch.set_grad_enabled(self.likelihood_weight > 0):
            likelihood = model.losses(batch)
        with evaluating(model):
            drawn = self._draw(model, batch, self._sampling(model, step))
            advantages, parts = self._advantages(model, batch, drawn)
            nll = self._log_losses(model, batch, drawn)
        policy = mean_of(advantages.to(nll) * nll, self._counted(batch))
        weight = self.likelihood_weight
        total = policy.value + weight * likelihood.total
        parts |= {"likelihood": likelihood.total.detach(), "policy": policy.value.detach()}
        own = likelihood.means or (Mean(value=likelihood.total, number=len(batch)),)
        means = (policy, *(replace(mean, value=weight * mean.value) for mean in own))
        return CaptionLosses(
            total=total,
            per_sample=likelihood.per_sample,
            parts=parts,
            nll=likelihood.nll,
            smoothed=likelihood.smoothed,
            token_nll=likelihood.token_nll,
            means=means,
        )

    def _counted(self, batch: Batch) -> Tensor | None:
        """Weights ``(I * K,)``: of several processes with captions of a photo, one counts it."""
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

    def _draw(self, model: AbstractCaptioner[Any], batch: Batch, search: AbstractSearch) -> Drawn:
        """Captions that a search gives for the batch's photos."""
        words = model.tokenizer
        request = request_of(model, words, batch.image_ids, device=batch.rows.device)
        with torch.no_grad():
            result = search(model, model.start(batch), request)
        # Autocast would go on with the copies of the weights that were made without gradients.
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

    def _advantages(
        self, model: AbstractCaptioner[Any], batch: Batch, drawn: Drawn
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """``(I * K,)`` on the CPU, 0 for captions that do not exist, and what is logged."""
        rows = batch.photo_rows or batch.host.rows[first_captions(batch)].tolist()
        samples = [self._samples[row] for row in rows]
        rewards = self._rewards(drawn, samples)
        if self.baseline == "mean":
            advantages = above_others(rewards)
            parts = {"reward": rewards.mean()}
        else:
            greedy = self._draw(model, batch, GreedySearch.with_settings(**_settings(model)))
            baseline = self._rewards(greedy, samples)
            advantages = rewards - baseline
            parts = {"reward": rewards.mean(), "reward_greedy": baseline.mean()}
        parts["advantage_std"] = advantages.std(correction=0)
        exist = (drawn.lengths > 0).cpu()
        return (advantages * exist).flatten(), parts

    def _rewards(self, drawn: Drawn, samples: Sequence[Sample]) -> Tensor:
        """``(I, K)``."""
        each = drawn.tokens.shape[1]
        of_captions = [sample for sample in samples for _ in range(each)]
        return self.reward.rewards(drawn.texts, of_captions, drawn.ended).view(-1, each)

    def _log_losses(self, model: AbstractCaptioner[Any], batch: Batch, drawn: Drawn) -> Tensor:
        """``(I * K,)`` negative log-likelihoods of the drawn captions, with gradient."""
        nll = model.losses(described(batch, drawn, model.tokenizer.bos_id)).nll
        if nll is None:
            raise ValueError(
                f"objective=self_critical needs log-likelihoods with gradient, and "
                f"{type(model).__name__}.losses gives none (CaptionLosses.nll): choose another "
                "model= or objective=likelihood"
            )
        return nll


def above_others(rewards: Tensor) -> Tensor:
    """Each reward ``(I, K)`` less the mean of the K - 1 others of its photo: they add up to 0."""
    number = rewards.shape[1]
    return (rewards - rewards.mean(1, keepdim=True)) * (number / (number - 1))


def first_captions(batch: Batch) -> list[int]:
    """Of each of the I photos the position of its first caption."""
    first: dict[int, int] = {}
    for position, image in enumerate(batch.host.image_index.tolist()):
        first.setdefault(image, position)
    return [first[image] for image in range(len(batch.image_ids))]


def described(batch: Batch, drawn: Drawn, bos_id: int) -> Batch:
    """The batch's photos with drawn captions, K each; what is requested is as for the first."""
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
        controls=controls,
        extras=_of_photos(batch.extras),
    )
    small = replace(made, images=None, regions=None, region_mask=None, extras={})
    return made.with_host(replace(small.to("cpu"), extras=_of_photos(batch.host.extras)))


def _of_photos(extras: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value for name, value in extras.items() if name not in OF_CAPTIONS}


def _settings(model: AbstractCaptioner[Any]) -> dict[str, Any]:
    """What draws take over from the model's own search."""
    settings = model.search.counting_captions(1 + len(model.prompt_ids)).settings
    return {
        "max_length": settings.max_length,
        "forbidden_ids": settings.forbidden_ids,
        "end_ids": settings.end_ids,
    }


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """The model without dropout; afterwards every module is in the mode that it was in."""
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


class AbstractReward(ABC):
    """Judges captions one by one."""

    def start(self, samples: Sequence[Sample]) -> None:  # noqa: B027  # most need nothing
        """Look at the training captions before curation; called once, before `open`.

        What depends on them stays the same in a run that is resumed.
        """

    @abstractmethod
    def open(self, samples: Sequence[Sample]) -> None:
        """Take the captions that are trained on as references.

        It is called before the first reward, and again after curation has changed the samples.

        Args:
            samples: those with a weight above 0.
        """

    @abstractmethod
    def rewards(
        self, captions: Sequence[str], samples: Sequence[Sample], ended: Sequence[bool]
    ) -> Tensor:
        """Rewards ``(N,) float32`` on the CPU, higher for better captions.

        Args:
            captions: N, as the model wrote them; an empty one is allowed.
            samples: N, a training sample of the picture that each caption describes.
            ended: N, False for captions that were cut off at the length limit.
        """


class AbstractReferenceReward(AbstractReward):
    """Compares with the references of the same picture; 0 for a picture without any.

    Args:
        end_token: count the end as a word of captions and references. Without it, a reward of
            n-grams teaches captions that break off ("a man with a"), as nothing is lost by that
            (Luo, 2020).
    """

    def __init__(self, *, end_token: bool = True) -> None:
        self.end_token = end_token
        self._numbers: dict[Path, int] = {}
        self._tokens: dict[str, str] = {}  # of the references, which are opened again and again

    def open(self, samples: Sequence[Sample]) -> None:
        """See `AbstractReward.open`. Pictures are told apart by their files."""
        references = self._references_of(samples)
        self._numbers = {path: number for number, path in enumerate(references)}
        self._prepare(list(references.values()))

    def rewards(
        self, captions: Sequence[str], samples: Sequence[Sample], ended: Sequence[bool]
    ) -> Tensor:
        """See `AbstractReward.rewards`."""
        known = [n for n, sample in enumerate(samples) if sample.image_path in self._numbers]
        tokens = self._tokenized([captions[n] for n in known], [ended[n] for n in known])
        values = torch.zeros(len(captions))
        if known:
            images = [self._numbers[samples[n].image_path] for n in known]
            values[known] = torch.from_numpy(self._scores(tokens, images)).float()
        return values

    def _references_of(self, samples: Sequence[Sample]) -> dict[Path, list[str]]:
        """Tokenized captions of each picture."""
        captions = dict.fromkeys(sample.caption for sample in samples)
        new = [caption for caption in captions if caption not in self._tokens]
        self._tokens |= dict(zip(new, self._tokenized(new, [True] * len(new)), strict=True))
        references: dict[Path, list[str]] = {}
        for sample in samples:
            references.setdefault(sample.image_path, []).append(self._tokens[sample.caption])
        if not references:
            raise ValueError("rewards need references: there are no training captions")
        return references

    def _tokenized(self, captions: Sequence[str], ended: Sequence[bool]) -> list[str]:
        """Words joined by spaces, the end token behind those that have ended."""
        tokens = tokenize_python(captions)
        if not self.end_token:
            return tokens
        ends = [f" {END}" if has_end else "" for has_end in ended]
        return [(words + end).strip() for words, end in zip(tokens, ends, strict=True)]

    @abstractmethod
    def _prepare(self, references: list[list[str]]) -> None:
        """Keep the tokenized references of every picture."""

    @abstractmethod
    def _scores(self, tokens: list[str], images: list[int]) -> np.ndarray:
        """``(N,)`` of tokenized captions and the numbers of their pictures."""


@final
class CiderReward(AbstractReferenceReward):
    """CIDEr-D in [0, 10], with the document frequencies of the training captions.

    The frequencies are those of all training captions before curation.
    """

    def __init__(self, *, end_token: bool = True) -> None:
        super().__init__(end_token=end_token)
        self._statistics: CiderStatistics | None = None
        self._references: CiderReferences | None = None

    def start(self, samples: Sequence[Sample]) -> None:
        """Count the document frequencies."""
        references = list(self._references_of(samples).values())
        self._statistics = CiderStatistics.count(references, source="the training captions")

    def _prepare(self, references: list[list[str]]) -> None:
        self._references = CiderReferences.prepare(references, self._statistics)

    def _scores(self, tokens: list[str], images: list[int]) -> np.ndarray:
        if self._references is None:
            raise ValueError("a reward was asked for before its references were opened")
        return self._references.score(tokens, images)


@final
class BleuReward(AbstractReferenceReward):
    """BLEU of single captions, in [0, 1].

    Args:
        order: longest n-grams, 1 to 4.
        end_token: see `AbstractReferenceReward`.
    """

    def __init__(self, *, order: PositiveInt = 4, end_token: bool = True) -> None:
        super().__init__(end_token=end_token)
        if not 1 <= order <= 4:
            raise ValueError(f"objective.reward.order must be 1 to 4: got {order}")
        self.order = order
        self._references: list[BleuReferences] = []

    def _prepare(self, references: list[list[str]]) -> None:
        self._references = prepare_bleu(references)

    def _scores(self, tokens: list[str], images: list[int]) -> np.ndarray:
        _, per_caption = score_bleu(tokens, [self._references[image] for image in images])
        return np.array(per_caption[self.order - 1])


@final
class SimilarityReward(AbstractReward):
    """Cosine of photo and caption in a joint space, such as CLIP's; needs no references.

    Args:
        encoder: of the space.
        weight: factor of the cosine; CLIPScore's is 2.5.
    """

    def __init__(self, *, encoder: JointEmbedder, weight: float = 2.5) -> None:
        self.encoder, self.weight = encoder, weight
        self._photos: dict[Path, Tensor] = {}

    def open(self, samples: Sequence[Sample]) -> None:
        """Photos are embedded when they are first needed, and kept: 2 KB each at D = 512."""

    def rewards(
        self, captions: Sequence[str], samples: Sequence[Sample], ended: Sequence[bool]
    ) -> Tensor:
        """``weight * max(cosine, 0)`` of each."""
        paths = [sample.image_path for sample in samples]
        new = [path for path in dict.fromkeys(paths) if path not in self._photos]
        for _, photos in read_ahead(new, len(new) or 1, loading_for(self.encoder, load_rgb)):
            self._photos |= dict(zip(new, self.encoder.embed_photos(photos), strict=True))
        embedded = torch.stack([self._photos[path] for path in paths])
        texts = self.encoder.embed_texts([caption or "." for caption in captions])
        return self.weight * (embedded * texts).sum(1).clamp(min=0).float()


@final
class WeightedReward(AbstractReward):
    """The weighted sum of several rewards.

    Args:
        rewards: parts, by name.
        weights: of each, by the same names.

    Raises:
        ValueError: the names differ, or there are none.
    """

    def __init__(
        self, *, rewards: Mapping[str, AbstractReward], weights: Mapping[str, float]
    ) -> None:
        if not rewards or rewards.keys() != weights.keys():
            raise ValueError(
                f"objective.reward.weights must name the rewards {sorted(rewards)}: "
                f"got {sorted(weights)}"
            )
        self._rewards, self._weights = dict(rewards), dict(weights)

    def start(self, samples: Sequence[Sample]) -> None:
        """Start every part."""
        for reward in self._rewards.values():
            reward.start(samples)

    def open(self, samples: Sequence[Sample]) -> None:
        """Open every part."""
        for reward in self._rewards.values():
            reward.open(samples)

    def rewards(
        self, captions: Sequence[str], samples: Sequence[Sample], ended: Sequence[bool]
    ) -> Tensor:
        """The sum."""
        total = torch.zeros(len(captions))
        for name, reward in self._rewards.items():
            total += self._weights[name] * reward.rewards(captions, samples, ended)
        return total
