"""Rank continuations of hypotheses, separately for each state of a machine."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from captioning.decoding.candidates import best_tokens
from captioning.decoding.machine import NO_TOKEN
from captioning.decoding.state import DEAD


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuations:
    """N continuations of the hypotheses of each image, grouped by target state.

    Within a state the best come first; ties are broken by the parent's position, the parent's
    log-probability, then token id.

    Attributes:
        totals: ``(A, N) float32`` summed log-probabilities, ``-inf`` in unused slots.
        tokens: ``(A, N) int64``.
        targets: ``(A, N) int64`` target states, ascending.
        parents: ``(A, N) int64`` positions of the parent hypotheses.
    """

    totals: Tensor
    tokens: Tensor
    targets: Tensor
    parents: Tensor

    def places(self, counted: Tensor) -> Tensor:
        """Count earlier ``counted (A, N) bool`` continuations into the same state."""
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
    """Find each hypothesis' best tokens into its default state, and its moves into other states.

    Args:
        log_probs: ``(A * R, V) float32``.
        scores: ``(A, R) float32`` scores of R hypotheses per image.
        defaults: ``(A, R) int64`` state after any token without a move.
        continued: ``(A, R) int64`` the default state after tokens that continue a word.
        continues: ``(C,) int64`` tokens that continue a word.
        moves: ``(A, R, X) int64`` tokens of the moves, ascending, padded with `NO_TOKEN`.
        targets: ``(A, R, X) int64`` target states of the moves.
        per_target: maximum continuations of one hypothesis into one state.
        banned: ``(F,) int64`` tokens that must not lead into the default state.
        banned_moves: ``(F',) int64`` tokens that no move may produce.
        several: whether moves may also lead into the default state.

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
    """Mask ``values (A, R, C)`` beyond the ``per_target`` best of a hypothesis in each state."""
    order = values.sort(dim=2, descending=True, stable=True).indices
    ranked = targets.gather(2, order)
    better = (ranked[..., :, None] == ranked[..., None, :]).tril(-1).sum(3)
    return values.masked_fill(torch.zeros_like(order).scatter(2, order, better) >= per_target, DEAD)


def _everywhere(targets: Tensor, count: int) -> Tensor:
    """Repeat ``targets (A, R)`` for ``count`` continuations of each: ``(A * R, count)``."""
    return targets.reshape(-1, 1).expand(-1, count)


def _default_tokens(
    log_probs: Tensor, moves: Tensor, count: int, banned: Tensor
) -> tuple[Tensor, Tensor]:
    """Find `best_tokens`, excluding each row's ``moves (G, X)``."""
    # At most X of the best tokens are moves, so X more are enough to find ``count`` others.
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
    """Return values of each row's moves ``(G, X)``, best first, with tokens and targets."""
    banned = (moves == NO_TOKEN) | torch.isin(moves, banned_moves)
    moves = moves.masked_fill(banned, 0)
    values = log_probs.gather(1, moves).masked_fill(banned, DEAD)
    values, order = values.sort(dim=1, descending=True, stable=True)
    moves, targets = moves.gather(1, order), targets.gather(1, order)
    better = (targets[:, :, None] == targets[:, None, :]).tril(-1).sum(2)
    return values.masked_fill(better >= per_target, DEAD), moves, targets


def _by_target(*, totals: Tensor, tokens: Tensor, targets: Tensor) -> Continuations:
    """Sort continuations ``(A, R, C)`` by target state, best first within a state."""
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
