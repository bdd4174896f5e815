"""Continuations of hypotheses in states of a machine, ranked state by state."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from captioning.decoding.candidates import best_tokens
from captioning.decoding.machine import NO_TOKEN
from captioning.decoding.state import DEAD


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuations:
    """N continuations of the hypotheses of each image, by the state that they lead to.

    The best of each state come first; equal ones by the place of their parent, then by their own
    log-probability, then by token id.

    Attributes:
        totals: ``(A, N) float32`` summed log-probabilities, ``-inf`` where there is none.
        tokens: ``(A, N) int64``.
        targets: ``(A, N) int64`` states that they lead to, rising.
        parents: ``(A, N) int64`` place of the hypothesis that is continued.
    """

    totals: Tensor
    tokens: Tensor
    targets: Tensor
    parents: Tensor

    def places(self, counted: Tensor) -> Tensor:
        """Number of ``counted (A, N) bool`` ones before each that lead to the same state."""
        before = counted.cumsum(1) - counted.long()
        first = torch.ones_like(counted)
        first[:, 1:] = self.targets[:, 1:] != self.targets[:, :-1]
        return before - (before * first).cummax(1).values


def continuations(
    log_probs: Tensor,
    scores: Tensor,
    *,
    defaults: Tensor,
    continued: Tensor,
    continues: Tensor,
    moves: Tensor,
    targets: Tensor,
    per_target: int,
    banned: Tensor,
    banned_moves: Tensor,
    several: bool = False,
) -> Continuations:
    """The best tokens into the default state of each hypothesis, and its moves into others.

    Args:
        log_probs: ``(A * R, V) float32``.
        scores: ``(A, R) float32`` of R hypotheses an image.
        defaults: ``(A, R) int64`` state after any token but the moves'.
        continued: ``(A, R) int64`` the same after any token that continues a word.
        continues: ``(C,) int64`` tokens that continue a word.
        moves: ``(A, R, X) int64`` tokens of the moves, rising, then `NO_TOKEN`.
        targets: ``(A, R, X) int64`` states that they lead to.
        per_target: most continuations of one hypothesis into one state.
        banned: ``(F,) int64`` tokens that do not lead into the default state.
        banned_moves: ``(F',) int64`` tokens that no move produces.
        several: whether moves may lead into the default state, too.

    Raises:
        ValueError: NaN log-probabilities.
    """
    shape = scores.shape
    flat_moves = moves.flatten(0, 1)
    count = min(per_target, log_probs.shape[1])
    pending = (continued != defaults).flatten()
    begins = ends = log_probs
    if has_pending := bool(pending.any()):
        ids = torch.arange(log_probs.shape[1], device=log_probs.device)
        goes_on = pending[:, None] & torch.isin(ids, continues)
        begins, ends = log_probs.masked_fill(goes_on, DEAD), log_probs.masked_fill(~goes_on, DEAD)
    values, tokens = _default_tokens(begins, flat_moves, count, banned)
    move_values, flat_moves, flat_targets = _ranked_moves(
        log_probs, flat_moves, targets.flatten(0, 1), per_target, banned_moves
    )
    parts = [(values, tokens, _everywhere(defaults, count))]
    parts.append((move_values, flat_moves, flat_targets))
    if has_pending:
        parts.append(
            (*_default_tokens(ends, flat_moves, count, banned), _everywhere(continued, count))
        )
    values, tokens, targets = (
        torch.cat(tensors, 1).unflatten(0, shape) for tensors in zip(*parts, strict=True)
    )
    if several:
        values = _limited(values, targets, per_target)
    return _by_target(totals=scores[..., None] + values, tokens=tokens, targets=targets)


def _limited(values: Tensor, targets: Tensor, per_target: int) -> Tensor:
    """``values (A, R, C)`` without those of a hypothesis beyond its best into each state."""
    order = values.sort(dim=2, descending=True, stable=True).indices
    ranked = targets.gather(2, order)
    better = (ranked[..., :, None] == ranked[..., None, :]).tril(-1).sum(3)
    return values.masked_fill(torch.zeros_like(order).scatter(2, order, better) >= per_target, DEAD)


def _everywhere(targets: Tensor, count: int) -> Tensor:
    """``targets (A, R)`` of ``count`` continuations of each hypothesis: ``(A * R, count)``."""
    return targets.reshape(-1, 1).expand(-1, count)


def _default_tokens(
    log_probs: Tensor, moves: Tensor, count: int, banned: Tensor
) -> tuple[Tensor, Tensor]:
    """As `best_tokens`, but of each row without its ``moves (G, X)``."""
    # At most X of the best are moves, so X more are enough to find ``count`` others.
    width = min(count + moves.shape[1], log_probs.shape[1])
    values, tokens = best_tokens(log_probs, count=width, forbidden=banned)
    if moves.shape[1]:
        is_move = (tokens[:, :, None] == moves[:, None, :]).any(2)
        values, order = values.masked_fill(is_move, DEAD).sort(dim=1, descending=True, stable=True)
        tokens = tokens.gather(1, order)
    return values[:, :count], tokens[:, :count]


def _ranked_moves(
    log_probs: Tensor, moves: Tensor, targets: Tensor, per_target: int, banned_moves: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Values of the moves ``(G, X)`` of each row, best first, with their tokens and targets."""
    banned = (moves == NO_TOKEN) | torch.isin(moves, banned_moves)
    moves = moves.masked_fill(banned, 0)
    values = log_probs.gather(1, moves).masked_fill(banned, DEAD)
    values, order = values.sort(dim=1, descending=True, stable=True)
    moves, targets = moves.gather(1, order), targets.gather(1, order)
    better = (targets[:, :, None] == targets[:, None, :]).tril(-1).sum(2)
    return values.masked_fill(better >= per_target, DEAD), moves, targets


def _by_target(*, totals: Tensor, tokens: Tensor, targets: Tensor) -> Continuations:
    """Sort continuations ``(A, R, C)``; of a hypothesis, those into one state come best first."""
    width = totals.shape[2]
    totals, tokens, targets = totals.flatten(1), tokens.flatten(1), targets.flatten(1)
    order = totals.sort(dim=1, descending=True, stable=True).indices
    order = order.gather(1, targets.gather(1, order).sort(dim=1, stable=True).indices)
    return Continuations(
        totals=totals.gather(1, order),
        tokens=tokens.gather(1, order),
        targets=targets.gather(1, order),
        parents=order // width,
    )
