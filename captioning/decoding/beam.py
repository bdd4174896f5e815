"""Beam search over any stepper, batched over images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from captioning.decoding.candidates import best_tokens, never
from captioning.decoding.state import DEAD, Pool, SearchResult, take_rows
from captioning.interfaces import AbstractDecoderState, AbstractStepper


@dataclass(frozen=True, slots=True, kw_only=True)
class _Beams:
    """Unfinished hypotheses of the A images still searched, W each, best first.

    Attributes:
        images: ``(A,) int64``, rising.
        tokens: ``(A, W, T) int64``, padded.
        scores: ``(A, W) float32`` summed log-probabilities, ``-inf`` in free places.
    """

    images: Tensor
    tokens: Tensor
    scores: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rules:
    """What the search was asked for; ``banned`` and ``banned_early`` are ``(F,) int64`` ids."""

    beam_size: int
    eos_id: int
    max_length: int
    min_length: int
    length_penalty: float
    per_node_beam: int | None
    exact: bool
    banned: Tensor
    banned_early: Tensor

    def ranked(self, log_probs: Tensor, length: int) -> tuple[Tensor, Tensor]:
        """Best continuations of each row: one more than K, in case that one of them ends."""
        limit = self.per_node_beam if length > 1 else None
        return best_tokens(
            log_probs,
            count=min(limit or self.beam_size + 1, self.beam_size + 1),
            forbidden=self.banned if length >= self.min_length else self.banned_early,
        )

    def hopes(self, scores: Tensor, length: int) -> Tensor:
        """What ``(A,)`` unfinished sums of ``length`` tokens may come to, at best."""
        # The sum can only fall, and dividing by the greatest length flatters it most.
        return self.normalised(scores, self.max_length if self.exact else length)

    def normalised(self, scores: Tensor, length: int) -> Tensor:
        """Scores as hypotheses are compared when they end with ``length`` tokens."""
        return scores / length**self.length_penalty


@torch.no_grad()
def beam_search(
    stepper: AbstractStepper,
    state: AbstractDecoderState,
    *,
    num_images: int,
    beam_size: int,
    bos_id: int,
    eos_id: int,
    pad_id: int,
    max_length: int,
    min_length: int = 0,
    length_penalty: float = 0.0,
    per_node_beam: int | None = None,
    forbidden_ids: Sequence[int] = (),
    num_best: int = 1,
    exact: bool = True,
    device: torch.device | str = "cpu",
) -> SearchResult:
    """Find the most probable captions of several images at once.

    At each step all continuations of an image's hypotheses are ranked by summed log-probability;
    equal ones by the place of their parent, then by their own log-probability, then by token id.
    Those among the best K that end go to the image's pool; the best K that do not end go on.
    An image leaves the batch when nothing unfinished could enter its pool any more: as
    log-probabilities only lower a sum, that is certain, and the result is the one of a search
    that always makes all steps. Hypotheses cut off at ``max_length`` are used only where the pool
    has free slots.

    Scores are ``sum of log-probabilities / length ** length_penalty``: 0 is the plain sum (nocaps
    UpDown), 1 the mean a token (ViECap), .6 to .7 common in between. A penalty above 0 makes long
    hypotheses worth waiting for, so the search ends later; with 0, beam 1 is greedy search.

    Args:
        stepper: the model; it never learns that it is searched.
        state: its memory of ``num_images`` hypotheses, one an image.
        num_images: I.
        beam_size: K.
        bos_id: first token read, never produced.
        eos_id: ends a hypothesis.
        pad_id: never produced; may equal ``eos_id``.
        max_length: most tokens of a hypothesis, the end token counted; also the number of steps.
        min_length: fewest tokens of a finished hypothesis, the end token counted.
        length_penalty: exponent, at least 0.
        per_node_beam: at most this many continuations of one hypothesis after the first step
            (nocaps uses 2 with beam 5); None for no limit.
        forbidden_ids: further tokens never produced, such as the unknown word.
        num_best: M, hypotheses returned an image.
        exact: False drops an image as soon as no unfinished hypothesis is better for its present
            length than the pool's worst: with a length penalty that is much earlier, and now and
            then misses a better caption (the rule of transformers). No difference without one.
        device: where the state lives.

    Returns:
        The M best hypotheses of each image.

    Raises:
        ValueError: an argument out of its range, or NaN log-probabilities.
    """
    sizes = {"beam_size": beam_size, "max_length": max_length, "num_best": num_best}
    _check(sizes, min_length, length_penalty, per_node_beam)
    banned = never(pad_id, bos_id, eos_id, forbidden_ids)
    rules = _Rules(
        beam_size=beam_size,
        eos_id=eos_id,
        max_length=max_length,
        min_length=min_length,
        length_penalty=length_penalty,
        per_node_beam=per_node_beam,
        exact=exact,
        banned=torch.tensor(banned, dtype=torch.long, device=device),
        banned_early=torch.tensor([*banned, eos_id], dtype=torch.long, device=device),
    )
    pool = Pool(
        num_images=num_images,
        num_best=num_best,
        max_length=max_length,
        pad_id=pad_id,
        device=device,
    )
    beams = _Beams(
        images=torch.arange(num_images, device=device),
        tokens=pool.tokens.new_full((num_images, 1, max_length), pad_id),
        scores=torch.zeros(num_images, 1, device=device),
    )
    last = torch.full((num_images,), bos_id, dtype=torch.long, device=device)
    for length in range(1, max_length + 1):
        log_probs, state = stepper.step(last, state)
        beams, rows = _advance(beams, pool, rules, log_probs, length)
        if not len(beams.images):
            break
        if length < max_length:
            state = state.select(rows)
            last = beams.tokens[:, :, length - 1].reshape(-1)
    cut_off = rules.normalised(beams.scores, max_length)
    pool.fill(beams.images, beams.tokens, cut_off, max_length)
    return pool.result()


def _advance(
    beams: _Beams, pool: Pool, rules: _Rules, log_probs: Tensor, length: int
) -> tuple[_Beams, Tensor]:
    """One step: ended hypotheses into the pool, the K best others into the next beams.

    Returns:
        The beams of the images that go on, and ``(A' * K,)`` the row of each hypothesis' parent.
    """
    num_images, width = beams.scores.shape
    values, tokens = rules.ranked(log_probs, length)
    per_row = values.shape[1]
    totals = (beams.scores.reshape(-1, 1) + values).view(num_images, width * per_row)
    totals, places = totals.sort(dim=1, descending=True, stable=True)
    # At most one candidate of each parent ends, so K that do not are among the first 2 K.
    totals, places = totals[:, : 2 * rules.beam_size], places[:, : 2 * rules.beam_size]
    parents = places // per_row
    tokens = tokens.reshape(num_images, width * per_row).gather(1, places)
    ended = tokens == rules.eos_id
    _collect(beams, pool, rules, parents, totals.masked_fill(~ended, DEAD), length)

    scores, order = totals.masked_fill(ended, DEAD).sort(dim=1, descending=True, stable=True)
    scores, order = scores[:, : rules.beam_size], order[:, : rules.beam_size]
    hopeless = pool.worst(beams.images) >= rules.hopes(scores[:, 0], length)
    kept = (~hopeless).nonzero().squeeze(1)
    if len(kept) < num_images:
        scores, order, parents, tokens = (t[kept] for t in (scores, order, parents, tokens))
    parents = parents.gather(1, order)
    history = take_rows(beams.tokens[kept], parents)
    history[:, :, length - 1] = tokens.gather(1, order)
    rows = (kept[:, None] * width + parents).reshape(-1)
    return _Beams(images=beams.images[kept], tokens=history, scores=scores), rows


def _collect(
    beams: _Beams, pool: Pool, rules: _Rules, parents: Tensor, ended: Tensor, length: int
) -> None:
    """Offer to the pool the hypotheses that end among the K best candidates.

    Args:
        beams: before the step.
        pool: takes what is good enough.
        rules: of the search.
        parents: ``(A, C) int64``, candidates best first.
        ended: ``(A, C)`` summed log-probability, ``-inf`` for those that do not end.
        length: tokens of each, the end token counted.
    """
    best = slice(None, rules.beam_size)
    tokens = take_rows(beams.tokens, parents[:, best])
    tokens[:, :, length - 1] = rules.eos_id
    pool.add(beams.images, tokens, rules.normalised(ended[:, best], length), length)


def _check(
    sizes: dict[str, int], min_length: int, length_penalty: float, per_node_beam: int | None
) -> None:
    sizes = sizes if per_node_beam is None else {**sizes, "per_node_beam": per_node_beam}
    for name, value in sizes.items():
        if value < 1:
            raise ValueError(f"{name} must be at least 1: got {value}")
    if sizes["num_best"] > sizes["beam_size"]:
        raise ValueError(
            f"num_best must be at most beam_size: got {sizes['num_best']} > {sizes['beam_size']}"
        )
    if not 0 <= min_length <= sizes["max_length"]:
        raise ValueError(
            f"min_length must be in [0, max_length]: got {min_length} for {sizes['max_length']}"
        )
    if not length_penalty >= 0:
        raise ValueError(f"length_penalty must be at least 0: got {length_penalty}")
