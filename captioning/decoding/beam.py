"""Beam search over any stepper model, batched over images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from captioning.decoding.candidates import best_tokens
from captioning.decoding.search import AbstractSearch
from captioning.decoding.settings import Normalisation, SearchRequest, SearchSettings
from captioning.decoding.state import DEAD, Pool, SearchResult, take_rows
from captioning.decoding.token_rules import Rules
from captioning.interfaces import AbstractDecoderState, AbstractStepper


@dataclass(frozen=True, slots=True, kw_only=True)
class Beams:
    """Unfinished hypotheses (W for each of A images still searched), best first.

    Attributes:
        images: ``(A,) int64`` image positions in the pool, ascending.
        tokens: ``(A, W, T) int64``, padded.
        scores: ``(A, W) float32`` summed log-probabilities, ``-inf`` in empty slots.
    """

    images: Tensor
    tokens: Tensor
    scores: Tensor

    @classmethod
    def start(cls, pool: Pool, images: Tensor) -> Beams:
        """Return beams with one empty hypothesis for each of ``images (A,) int64``."""
        tokens = pool.tokens.new_full((len(images), 1, pool.tokens.shape[2]), pool.pad_id)
        scores = torch.zeros(len(images), 1, device=images.device)
        return cls(images=images, tokens=tokens, scores=scores)


@dataclass(frozen=True, slots=True, kw_only=True)
class BeamRules:
    """Rules that rank the hypotheses of one beam; see `SearchSettings` for the values.

    Attributes:
        rules: rules on the next tokens.
        beam_size: K of this beam.
        per_node_beam: maximum continuations of one hypothesis after the first step, or None.
        normalisation: length normalisation of scores.
        exact: search an image until no unfinished hypothesis can improve its result.
    """

    rules: Rules
    beam_size: int
    per_node_beam: int | None
    normalisation: Normalisation
    exact: bool

    @classmethod
    def build(cls, settings: SearchSettings, request: SearchRequest) -> BeamRules:
        """Build the rules for one search call; see `Rules.build`."""
        return cls(
            rules=Rules.build(settings, request),
            beam_size=settings.beam_size,
            per_node_beam=settings.per_node_beam,
            normalisation=settings.normaliser(),
            exact=settings.exact,
        )

    def ranked(self, log_probs: Tensor, length: int) -> tuple[Tensor, Tensor]:
        """Return the best continuations of each row: K, plus one for each end token."""
        max_count = self.beam_size + len(self.rules.ends)
        limit = self.per_node_beam if length > 1 else None
        return best_tokens(
            log_probs,
            count=min(limit or max_count, max_count),
            forbidden=self.rules.forbidden(length),
        )

    def upper_bounds(self, scores: Tensor, length: int) -> Tensor:
        """Return upper bounds of the final scores of ``(A,)`` sums of ``length`` tokens."""
        # A sum can only fall, and the divisor of the greatest length gives the highest score.
        return self.normalised(scores, self.rules.max_length if self.exact else length)

    def normalised(self, scores: Tensor, length: int) -> Tensor:
        """Normalise the scores of hypotheses that end with ``length`` tokens."""
        return self.normalisation.scores(scores, length)


@final
@dataclass(frozen=True, kw_only=True)
class BeamSearch(AbstractSearch):
    """Beam search for the most probable captions of several images at once.

    Each step ranks all continuations of an image's hypotheses by summed log-probability. Ties are
    broken by the parent's position, the parent's log-probability, then token id. Ended hypotheses
    among the best K enter the image's pool; the best K unfinished hypotheses continue. An image
    leaves the batch when no unfinished hypothesis can enter its pool any more. Log-probabilities
    only lower a sum, so the result equals a search without early exit. Hypotheses cut off at
    ``max_length`` are used only where the pool has free slots.

    A score is a sum of log-probabilities, divided according to ``normalisation``. Penalty 0 keeps
    the sum (nocaps UpDown). With ``"power"``, penalty 1 gives the mean per token (ViECap), and 0.6
    to 0.7 are common, as with ``"gnmt"``. With a penalty above 0 long hypotheses may still win, so
    the search ends later. With penalty 0 and beam size 1 the search is greedy.
    """

    unused: ClassVar[tuple[str, ...]] = ("temperature", "seed")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_num_captions(self.settings)

    @torch.no_grad()
    def __call__(
        self, stepper: AbstractStepper, state: AbstractDecoderState, request: SearchRequest
    ) -> SearchResult:
        """Return the ``num_captions`` most probable captions per image; see `AbstractSearch`."""
        beam, max_length = BeamRules.build(self.settings, request), self.settings.max_length
        pool = Pool.for_request(self.settings, request)
        images = torch.arange(request.num_images, device=request.device)
        beams = Beams.start(pool, images)
        last = torch.full_like(images, request.bos_id)
        for length in range(1, max_length + 1):
            log_probs, state = stepper.step(last, state)
            beams, rows = _advance(beams, pool, beam, log_probs, length)
            if not len(beams.images):
                break
            if length < max_length:
                state = state.select(rows)
                last = beams.tokens[:, :, length - 1].reshape(-1)
        scores = beam.normalised(beams.scores, max_length)
        pool.fill(beams.images, beams.tokens, scores, max_length)
        return pool.result()


def _advance(
    beams: Beams, pool: Pool, beam: BeamRules, log_probs: Tensor, length: int
) -> tuple[Beams, Tensor]:
    """Make one step: ended hypotheses enter the pool, the K best others form the next beams.

    Returns:
        Beams of the unfinished images, and ``(A' * K,)`` the row of each hypothesis' parent.
    """
    extension = extend(beams, pool, beam, log_probs, length)
    active = (~extension.hopeless).nonzero().squeeze(1)
    rows = active[:, None] * beams.scores.shape[1] + extension.parents[active]
    return extension.beams(beams, active, length), rows.reshape(-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """The K best unfinished continuations of each image's beams, best first.

    Attributes:
        parents: ``(A, K) int64`` positions of the parent hypotheses.
        tokens: ``(A, K) int64``.
        scores: ``(A, K) float32`` summed log-probabilities, ``-inf`` in unused slots.
        hopeless: ``(A,) bool``, whether no hypothesis of the image can enter the pool any more.
    """

    parents: Tensor
    tokens: Tensor
    scores: Tensor
    hopeless: Tensor

    def beams(self, beams: Beams, active: Tensor, length: int) -> Beams:
        """Return beams of the images ``active (A',) int64``, one token longer than ``beams``."""
        tokens = take_rows(beams.tokens[active], self.parents[active])
        tokens[:, :, length - 1] = self.tokens[active]
        return Beams(images=beams.images[active], tokens=tokens, scores=self.scores[active])


def extend(
    beams: Beams,
    pool: Pool,
    beam: BeamRules,
    log_probs: Tensor,
    length: int,
    handicap: Tensor | None = None,
) -> Extension:
    """Rank the continuations of each image's beams, and offer ended ones to the pool.

    Args:
        beams: W hypotheses of each of A images.
        pool: receives the ended hypotheses among the best K.
        beam: rules of the search.
        log_probs: ``(A * W, V) float32`` in nats.
        length: length of the continuations.
        handicap: ``(A, V) float32`` subtracted from tokens in the ranking but not in scores.
    """
    rules, beam_size = beam.rules, beam.beam_size
    history = beams.tokens[:, :, : length - 1].flatten(0, 1)
    log_probs = rules.adjusted(log_probs, history)
    totals, parents, tokens = _candidates(beams.scores, log_probs, beam, length, handicap)
    ended = rules.ended(tokens)
    finished = take_rows(beams.tokens, parents[:, :beam_size])
    finished[:, :, length - 1] = tokens[:, :beam_size]
    scores = beam.normalised(totals.masked_fill(~ended, DEAD)[:, :beam_size], length)
    pool.add(beams.images, finished, scores, length)

    totals = totals.masked_fill(ended, DEAD)
    order = totals.isneginf().to(torch.int8).sort(dim=1, stable=True).indices[:, :beam_size]
    scores = totals.gather(1, order)
    return Extension(
        parents=parents.gather(1, order),
        tokens=tokens.gather(1, order),
        scores=scores,
        hopeless=pool.worst(beams.images) >= beam.upper_bounds(scores.amax(1), length),
    )


def _candidates(
    scores: Tensor, log_probs: Tensor, beam: BeamRules, length: int, handicap: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return sum, parent and token ``(A, C)`` of the best continuations, best first."""
    num_images, width = scores.shape
    per_image = log_probs.reshape(num_images, width, log_probs.shape[1])
    ranked = log_probs if handicap is None else (per_image - handicap[:, None]).flatten(0, 1)
    values, tokens = beam.ranked(ranked, length)
    per_row = values.shape[1]
    totals = (scores.reshape(-1, 1) + values).view(num_images, width * per_row)
    totals, places = totals.sort(dim=1, descending=True, stable=True)
    # At most E continuations of each parent end, so K + E K contain K unfinished ones.
    max_count = beam.beam_size * (1 + len(beam.rules.ends))
    totals, places = totals[:, :max_count], places[:, :max_count]
    parents = places // per_row
    tokens = tokens.reshape(num_images, width * per_row).gather(1, places)
    if handicap is not None:
        unpenalised = per_image.flatten(1).gather(1, parents * per_image.shape[2] + tokens)
        unpenalised = scores.gather(1, parents) + unpenalised
        totals = unpenalised.masked_fill(totals.isneginf(), DEAD)
    return totals, parents, tokens


def check_num_captions(settings: SearchSettings) -> None:
    """Raise an error if more captions are requested than the beam has hypotheses.

    Raises:
        ValueError: ``num_captions`` is above ``beam_size``.
    """
    if settings.num_captions > settings.beam_size:
        raise ValueError(
            f"num_captions must be at most beam_size: got {settings.num_captions} > "
            f"{settings.beam_size}"
        )
