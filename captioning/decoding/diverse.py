"""Diverse beam search: groups of beams, penalised for tokens that earlier groups chose."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import ClassVar, final

import torch
from torch import Tensor

from captioning.config.ranges import NonNegativeFloat, PositiveInt
from captioning.decoding.beam import BeamRules, Beams, check_num_captions, extend
from captioning.decoding.search import AbstractSearch
from captioning.decoding.settings import SearchRequest, check_integer
from captioning.decoding.state import DEAD, Pool, SearchResult, take_rows
from captioning.decoding.token_rules import Rules
from captioning.interfaces import AbstractDecoderState, AbstractStepper


@final
@dataclass(frozen=True, kw_only=True)
class DiverseBeamSearch(AbstractSearch):
    """Diverse beam search (Vijayakumar et al., 2018, algorithm 1; Hamming diversity).

    At each step the groups act in turn; each is a beam search with K / groups hypotheses. The
    ranking subtracts ``diversity`` nats from a token for every hypothesis of an earlier group that
    took the token in the same step. As in the paper, the penalty affects only this step's ranking:
    sums that are kept, compared between steps and returned are the model's own (transformers and
    fairseq keep the penalties). End tokens are not penalised, because that would make captions
    longer, not different.

    An image leaves the batch when none of its groups can improve. A caption found by several groups
    counts once, so fewer than M hypotheses may remain. One group equals `BeamSearch`.

    ``beam_size`` counts hypotheses over all groups. Each group offers its best K / groups or M
    hypotheses, whichever is less, for the ``num_captions`` returned.

    Attributes:
        num_groups: number of groups, at least 1; must divide ``beam_size``.
        diversity: the paper's lambda in nats, finite and at least 0; 0.2 to 0.8 in the paper.
    """

    num_groups: PositiveInt
    diversity: NonNegativeFloat
    unused: ClassVar[tuple[str, ...]] = ("temperature", "seed")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_num_captions(self.settings)
        check_integer("num_groups", self.num_groups, minimum=1)
        if self.settings.beam_size % self.num_groups:
            raise ValueError(
                "beam_size must be a multiple of num_groups: got "
                f"{self.settings.beam_size} for {self.num_groups}"
            )
        if not 0 <= self.diversity < inf:
            raise ValueError(f"diversity must be at least 0 and finite: got {self.diversity}")

    @torch.no_grad()
    def __call__(
        self, stepper: AbstractStepper, state: AbstractDecoderState, request: SearchRequest
    ) -> SearchResult:
        """Return the best captions over all groups of each image; see `AbstractSearch`."""
        num_images, num_groups = request.num_images, self.num_groups
        size, max_length = self.settings.beam_size // num_groups, self.settings.max_length
        group_settings = replace(
            self.settings, beam_size=size, num_captions=min(self.settings.num_captions, size)
        )
        beam = BeamRules.build(group_settings, request)
        # A pool entry is a group of an image: image * num_groups + group.
        pool = Pool.for_request(group_settings, request, per_image=num_groups)
        places = torch.arange(num_images * num_groups, device=request.device)
        groups = [Beams.start(pool, p) for p in places.view(num_images, num_groups).unbind(1)]
        last = torch.full((num_images,), request.bos_id, dtype=torch.long, device=request.device)
        for length in range(1, max_length + 1):
            log_probs, state = stepper.step(last, state)
            groups, rows = _advance(groups, pool, beam, log_probs, length, self.diversity)
            if not len(rows):
                break
            if length < max_length:
                state = state.select(rows)
                last = torch.stack([group.tokens[:, :, length - 1] for group in groups], 1).view(-1)
        _fill(groups, pool, beam)
        return _best_of_groups(pool, beam.rules, num_groups, self.settings.num_captions)


def _advance(
    groups: list[Beams],
    pool: Pool,
    beam: BeamRules,
    log_probs: Tensor,
    length: int,
    diversity: float,
) -> tuple[list[Beams], Tensor]:
    """Make one step of all groups, in turn.

    Returns:
        The groups' beams for the images that continue, and the row ``(A' * K,)`` of each parent.
    """
    num_images, width = groups[0].scores.shape
    # At the first step all groups read the single row of their image.
    block = 1 if length == 1 else len(groups) * width
    per_image = log_probs.reshape(num_images, block, log_probs.shape[1])
    penalties = torch.zeros_like(per_image[:, 0])
    extensions, parents = [], []
    for number, group in enumerate(groups):
        first_row = number * width % block
        group_log_probs = per_image[:, first_row : first_row + width].flatten(0, 1)
        step = extend(group, pool, beam, group_log_probs, length, penalties if number else None)
        penalty = (step.scores > DEAD) * torch.tensor(diversity, device=group_log_probs.device)
        penalties = penalties.scatter_add(1, step.tokens, penalty.to(penalties.dtype))
        extensions.append(step)
        parents.append(first_row + step.parents)
    active = (~torch.stack([step.hopeless for step in extensions]).all(0)).nonzero().squeeze(1)
    rows = active[:, None] * block + torch.cat(parents, dim=1)[active]
    next_groups = [
        step.beams(group, active, length) for step, group in zip(extensions, groups, strict=True)
    ]
    return next_groups, rows.reshape(-1)


def _fill(groups: list[Beams], pool: Pool, beam: BeamRules) -> None:
    """Offer the groups' cut-off hypotheses, by falling sum, for free slots of their pools."""
    length = beam.rules.max_length
    for group in groups:
        scores, order = group.scores.sort(dim=1, descending=True, stable=True)
        tokens = take_rows(group.tokens, order)
        pool.fill(group.images, tokens, beam.normalised(scores, length), length)


def _best_of_groups(pool: Pool, rules: Rules, num_groups: int, num_best: int) -> SearchResult:
    """Return each image's M best distinct hypotheses, finished before cut-off ones."""
    num_places, slots, width = pool.tokens.shape
    shape = (num_places // num_groups, num_groups * slots)
    tokens, scores = pool.tokens.view(*shape, width), pool.scores.view(shape)
    lengths = pool.lengths.view(shape)
    is_equal = (tokens[:, :, None] == tokens[:, None]).all(-1) & (
        lengths[:, :, None] == lengths[:, None]
    )
    scores = scores.masked_fill(is_equal.tril(-1).any(2), DEAD)
    last = tokens.gather(2, (lengths - 1).clamp(min=0)[..., None]).squeeze(2)
    unfinished = ~rules.ended(last) | scores.isneginf()
    by_score = scores.argsort(dim=1, descending=True, stable=True)
    by_end = unfinished.gather(1, by_score).to(torch.int8).argsort(dim=1, stable=True)
    order = by_score.gather(1, by_end)[:, :num_best]
    best = Pool(
        num_images=shape[0],
        num_best=num_best,
        max_length=width,
        pad_id=pool.pad_id,
        device=pool.scores.device,
    )
    best.tokens, best.scores = take_rows(tokens, order), scores.gather(1, order)
    best.lengths = lengths.gather(1, order).masked_fill(best.scores.isneginf(), 0)
    return best.result()
