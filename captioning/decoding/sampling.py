"""Random sampling of captions: plain, with temperature, top-k and nucleus sampling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import torch
from torch import Tensor

from captioning.config.ranges import PositiveInt, Share
from captioning.decoding.candidates import best_tokens, check_nan
from captioning.decoding.search import AbstractSearch
from captioning.decoding.settings import SearchRequest, check_integer
from captioning.decoding.state import DEAD, Pool, SearchResult
from captioning.decoding.token_rules import Rules
from captioning.interfaces import AbstractDecoderState, AbstractStepper

# Integer sums do not depend on order or device. This is the weight of the most
# probable token, so the sum over 2 ** 18 tokens still fits into 63 bits.
UNIT = 2.0**44
# The nucleus is first searched among this many tokens; rows that need more use a full
# ranking, which is slow and seldom needed.
FEW = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncation:
    """Sampling distribution of tokens: temperature, top-k and top-p; see `Sampling`."""

    temperature: float
    top_k: int | None
    top_p: float | None

    def __post_init__(self) -> None:
        if not 0 < self.temperature < float("inf"):
            raise ValueError(
                f"temperature must be above 0 and finite: got {self.temperature}; "
                "use search=greedy for the most probable token"
            )
        if self.top_k is not None:
            check_integer("top_k", self.top_k, minimum=1)
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be in (0, 1]: got {self.top_p}; None keeps all tokens")

    def weights(self, log_probs: Tensor, forbidden: Tensor) -> Tensor:
        """Return integer weights ``(R, V) int64`` in proportion to each token's probability.

        Args:
            log_probs: ``(R, V) float32`` in nats.
            forbidden: ``(F,) int64`` distinct ids that get weight 0.
        """
        vocabulary = log_probs.shape[1]
        banned = torch.isin(torch.arange(vocabulary, device=log_probs.device), forbidden)
        values = log_probs.masked_fill(banned, DEAD).double()
        # In a row without any possible token the maximum is -inf, which must not be subtracted.
        best = values.amax(1, keepdim=True).clamp(min=torch.finfo(values.dtype).min)
        check_nan(bool(best.isnan().any()))
        weights = (((values - best) / self.temperature).exp() * UNIT).round().long()
        if self.top_k is not None and self.top_k < vocabulary:
            _, tokens = best_tokens(log_probs, count=self.top_k, forbidden=forbidden)
            weights = _only(weights, tokens, weights.gather(1, tokens))
        if self.top_p is not None and self.top_p < 1:
            weights = self._nucleus(self.top_p, weights, log_probs, forbidden)
        return weights

    def _nucleus(
        self, top_p: float, weights: Tensor, log_probs: Tensor, forbidden: Tensor
    ) -> Tensor:
        """Keep the weights of the most probable tokens that together hold ``top_p``."""
        goals = top_p * weights.sum(1, keepdim=True).double()
        max_count = min(self.top_k or weights.shape[1], weights.shape[1])
        nucleus, rows = torch.zeros_like(weights), torch.arange(len(weights), device=weights.device)
        for count in sorted({min(FEW, max_count), max_count}):
            _, tokens = best_tokens(log_probs[rows], count=count, forbidden=forbidden)
            ordered, row_goals = weights[rows].gather(1, tokens), goals[rows]
            sums = ordered.cumsum(1)
            is_complete = (sums[:, -1] >= row_goals[:, 0]) | (count == max_count)
            ordered = ordered.where(sums - ordered < row_goals, 0)
            nucleus[rows[is_complete]] = _only(
                weights[rows[is_complete]], tokens[is_complete], ordered[is_complete]
            )
            rows = rows[~is_complete]
            if not len(rows):
                break
        return nucleus


def _only(weights: Tensor, tokens: Tensor, values: Tensor) -> Tensor:
    """Spread ``values (R, C)`` to the positions ``tokens (R, C)``, 0 for all other tokens."""
    return torch.zeros_like(weights).scatter(1, tokens, values)


@final
@dataclass(frozen=True, kw_only=True)
class Sampling(AbstractSearch):
    """Sample captions of several images at once, token by token.

    Each token is sampled from ``p ** (1 / temperature)`` over the allowed tokens. ``top_k`` keeps
    the most probable tokens; ``top_p`` then keeps the nucleus (Holtzman et al., 2020,
    section 3.1). Ties are broken by rising id. Tokens with less than 2 ** -45 of the best token's
    probability are never sampled. A temperature below 1 sharpens the distribution, above 1
    flattens it.

    An image's random numbers depend only on ``seed`` and its key. Its samples therefore do not
    depend on other images of the batch, and the first samples do not depend on the number of
    samples. Without image ids the key is the position: images at the same position of two
    batches share their random numbers.

    An image leaves the batch when all its samples have ended; samples cut off at ``max_length``
    are kept. A sample whose next tokens all have probability 0 has no caption.
    Samples are independent, so some may be equal. They are returned in sampling order. Scores are
    summed log-probabilities of the model's own distribution: temperature 1, no truncation.

    Attributes:
        top_k: sample only from the k most probable tokens, at least 1; None: from all.
        top_p: sample from the fewest most probable tokens whose probabilities add up to at least p,
            in (0, 1]; None or 1: from all.
    """

    top_k: PositiveInt | None = None
    top_p: Share | None = None
    best_first: ClassVar[bool] = False
    unused: ClassVar[tuple[str, ...]] = (
        "beam_size",
        "length_penalty",
        "normalisation",
        "per_node_beam",
        "exact",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.truncation()

    def truncation(self) -> Truncation:
        """The sampling distribution of tokens."""
        return Truncation(temperature=self.settings.temperature, top_k=self.top_k, top_p=self.top_p)

    @torch.no_grad()
    def __call__(
        self, stepper: AbstractStepper, state: AbstractDecoderState, request: SearchRequest
    ) -> SearchResult:
        """Return ``num_captions`` samples of each image; see `AbstractSearch`."""
        settings, max_length = self.settings, self.settings.max_length
        chances = draw_chances(settings.seed, request.keys, settings.num_captions, max_length)
        chances = chances.to(request.device)
        pool = Pool.for_request(settings, request)
        samples = _Samples(pool, Rules.build(settings, request), self.truncation())
        last = torch.full_like(samples.images, request.bos_id)
        for length in range(1, max_length + 1):
            history = samples.history(length)
            log_probs, state = samples.rules.next_log_probs(stepper, last, state, history)
            rows = samples.extend(log_probs, chances[samples.images, :, length - 1], length)
            if not len(samples.images):
                break
            state = state.select(rows)
            last = pool.tokens[samples.images, :, length - 1].reshape(-1)
        return pool.result()


class _Samples:
    """Samples of all images, with a mask of the unfinished samples.

    Attributes:
        images: ``(A,) int64`` images with an unfinished sample.
        unfinished: ``(A, M) bool``, whether each sample is unfinished.
    """

    def __init__(self, pool: Pool, rules: Rules, truncation: Truncation) -> None:
        self.pool, self.rules, self.truncation = pool, rules, truncation
        self.images = torch.arange(len(pool.scores), device=pool.scores.device)
        self.unfinished = torch.ones_like(pool.scores, dtype=torch.bool)
        pool.scores.zero_()

    def history(self, length: int) -> Tensor:
        """Return the tokens ``(R, length - 1)`` before position ``length`` of each model row."""
        width = 1 if length == 1 else self.unfinished.shape[1]
        return self.pool.tokens[self.images, :width, : length - 1].flatten(0, 1)

    def extend(self, log_probs: Tensor, chances: Tensor, length: int) -> Tensor:
        """Sample the ``length``-th token of every unfinished sample.

        Args:
            log_probs: ``(A, V)`` at the first step, ``(A * M, V)`` afterwards, in nats.
            chances: ``(A, M)`` random numbers in [0, 1).
            length: length of the samples after this step.

        Returns:
            ``(A' * M,)`` rows of the unfinished images' samples.
        """
        pool, rules, images, unfinished = self.pool, self.rules, self.images, self.unfinished
        width = 1 if length == 1 else unfinished.shape[1]
        weights = self.truncation.weights(log_probs, rules.forbidden(length))
        tokens = _draw(weights, chances.reshape(len(log_probs), unfinished.shape[1] // width))
        possible = (weights.gather(1, tokens) > 0).view_as(unfinished)
        values = log_probs.gather(1, tokens).view_as(unfinished).masked_fill(~possible, DEAD)
        tokens = tokens.view_as(unfinished)

        pool.scores[images] += values.where(unfinished, 0)
        pool.tokens[images, :, length - 1] = tokens.where(unfinished, pool.pad_id)
        pool.lengths[images] = torch.where(unfinished, possible * length, pool.lengths[images])
        unfinished = unfinished & possible & ~rules.ended(tokens)
        active = unfinished.any(1).nonzero().squeeze(1)
        self.images, self.unfinished = images[active], unfinished[active]
        places = torch.arange(unfinished.shape[1], device=active.device) % width
        return (active[:, None] * width + places).reshape(-1)


def _draw(weights: Tensor, chances: Tensor) -> Tensor:
    """Pick tokens ``(R, D) int64`` by weights ``(R, V) int64`` and numbers ``(R, D)`` in [0, 1)."""
    sums = weights.cumsum(1)
    total = sums[:, -1:]
    # Rounding must not reach the total, where no token lies.
    targets = torch.minimum((chances * total).long(), total - 1)
    return torch.searchsorted(sums, targets, right=True)


def draw_chances(seed: int, keys: Sequence[int | str], num_samples: int, max_length: int) -> Tensor:
    """Return independent uniform random numbers in [0, 1), ``(I, M, T) float64``.

    Raises:
        ValueError: a negative seed or key.
    """
    numbers = [int.from_bytes(key.encode()) if isinstance(key, str) else int(key) for key in keys]
    if min([seed, *numbers]) < 0:
        raise ValueError(f"seed and keys must be at least 0: got {min([seed, *numbers])}")
    chances = np.empty((len(numbers), num_samples, max_length))
    for place, number in enumerate(numbers):
        np.random.default_rng((seed, number)).random(out=chances[place])
    return torch.from_numpy(chances)
