"""Constrained beam search over any stepper, batched over images.

Anderson et al., 2017, *Guided Open Vocabulary Image Captioning with Constrained Beam Search*,
section 3: a beam for each state of a finite-state machine, so that hypotheses compete only with
those that have met the same constraints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from captioning.decoding.beam import BeamRules, Beams, check_num_best
from captioning.decoding.continuations import Continuations, continuations
from captioning.decoding.level_pool import ConstrainedResult, LevelPool
from captioning.decoding.machine import Machine, MachineTable
from captioning.decoding.state import DEAD, take_rows
from captioning.interfaces import AbstractDecoderState, AbstractStepper


@dataclass(frozen=True, slots=True, kw_only=True)
class _Beams:
    """Unfinished hypotheses of the A images still searched, by state, each state's best first.

    Attributes:
        images: ``(A,) int64``, rising.
        tokens: ``(A, R, T) int64``, padded.
        scores: ``(A, R) float32`` summed log-probabilities; ``-inf`` in the last places of images
            that have fewer hypotheses than others.
        states: ``(A, R) int64`` of the image's machine.
    """

    images: Tensor
    tokens: Tensor
    scores: Tensor
    states: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class _Constrained:
    """What the search was asked for.

    Attributes:
        asked: beam size, lengths and the like.
        table: the machines of all images.
        banned_moves: ``(F,) int64`` ids that no move of a machine produces.
        bos_id: first token read.
        eos_id: ends a hypothesis.
    """

    asked: BeamRules
    table: MachineTable
    banned_moves: Tensor
    bos_id: int
    eos_id: int

    def per_target(self, length: int) -> int:
        """Most continuations of one hypothesis into one state that can matter."""
        # One more than K, in case that one of them ends.
        most = self.asked.beam_size + 1
        limit = self.asked.per_node_beam if length > 1 else None
        return min(limit or most, most)


@torch.no_grad()
def constrained_beam_search(
    stepper: AbstractStepper,
    state: AbstractDecoderState,
    *,
    num_images: int,
    beam_size: int,
    machines: Sequence[Machine] | None = None,
    bos_id: int,
    eos_id: int,
    pad_id: int,
    max_length: int,
    min_length: int = 0,
    length_penalty: float = 0.0,
    normalisation: str = "power",
    per_node_beam: int | None = None,
    forbidden_ids: Sequence[int] = (),
    forced_ids: Sequence[int] = (),
    no_repeat_ngram: int = 0,
    num_best: int = 1,
    by_size: bool = True,
    device: torch.device | str = "cpu",
) -> ConstrainedResult:
    """Find the most probable captions that meet the constraints of their image.

    Every state of an image's machine has a beam of K hypotheses. At each step all continuations
    that lead into a state are ranked by summed log-probability; equal ones by the place of their
    parent (lower states first), then by their own log-probability, then by token id. The end
    token leads where other words of no phrase lead: to the same constraints met, nothing else
    read. Those among a state's best K that end go to the image's pool, the best K that do not end
    go on; in the pool equal ones are ranked by step, then by the place of their parent. With
    machines without constraints this is `captioning.decoding.beam.beam_search`.

    Only hypotheses that exist are extended: a state costs nothing until it is reached. As
    log-probabilities only lower a sum, one that cannot enter the pool any more is dropped once the
    pool is full of finished hypotheses that meet the constraints, and an image without hypotheses
    leaves the batch. Neither changes the result. All images of a step need as many rows, so those
    with fewer hypotheses are filled up with dead ones.

    Args:
        stepper: the model; it never learns that it is searched.
        state: its memory of ``num_images`` hypotheses, one an image.
        num_images: I.
        beam_size: K, hypotheses a state.
        machines: I machines, one an image. Needed; None stands for a search that was chosen without
            saying what it shall find.
        bos_id: first token read, never produced.
        eos_id: ends a hypothesis.
        pad_id: never produced; may equal ``eos_id``.
        max_length: most tokens of a hypothesis, the end token counted; also the number of steps.
        min_length: fewest tokens of a finished hypothesis, the end token counted.
        length_penalty: exponent of the normalisation, at least 0.
        normalisation: ``"none"``, ``"power"`` or ``"gnmt"``: see
            `captioning.decoding.rules.Normalisation`.
        per_node_beam: at most this many continuations of one hypothesis into one state after the
            first step (nocaps uses 2 with beam 5); None for no limit.
        forbidden_ids: further tokens never produced, such as the unknown word; a phrase that holds
            one cannot be produced either.
        forced_ids: of ``forbidden_ids``, those that are produced where a phrase needs them.
        no_repeat_ngram: n; no n tokens in a row occur twice in a hypothesis, not even where a
            phrase needs them; 0 for no such rule.
        num_best: M, hypotheses returned an image.
        by_size: search images whose machines are alike in size together, one group after the
            other: fewer rows, more steps. False for one group, where the time of a step does not
            depend on its rows.
        device: where the state lives.

    Returns:
        The M best hypotheses of each image, and whether they meet its constraints.

    Raises:
        ValueError: an argument out of its range, a constraint that needs a token that cannot be
            produced, or NaN log-probabilities.
    """
    _check_machines(machines, num_images, {bos_id, eos_id, pad_id})
    asked = BeamRules.build(
        bos_id=bos_id,
        eos_id=eos_id,
        pad_id=pad_id,
        max_length=max_length,
        min_length=min_length,
        forbidden_ids=forbidden_ids,
        no_repeat_ngram=no_repeat_ngram,
        beam_size=beam_size,
        per_node_beam=per_node_beam,
        normalisation=normalisation,
        length_penalty=length_penalty,
        exact=True,
        device=device,
    )
    check_num_best(num_best, beam_size)
    table = MachineTable.of(machines, device)
    forced = torch.tensor(forced_ids, dtype=torch.long, device=device)
    rules = _Constrained(
        asked=asked,
        table=table,
        banned_moves=asked.rules.banned[~torch.isin(asked.rules.banned, forced)],
        bos_id=bos_id,
        eos_id=eos_id,
    )
    pool = LevelPool(
        required=table.required,
        num_best=num_best,
        max_length=max_length,
        pad_id=pad_id,
        device=device,
    )
    for group in _groups(machines) if by_size else [list(range(num_images))]:
        images = torch.tensor(group, dtype=torch.long, device=device)
        part = state if len(group) == num_images else state.select(images)
        _search(stepper, part, images, rules, pool)
    return pool.result(table, eos_id)


def _search(
    stepper: AbstractStepper,
    state: AbstractDecoderState,
    images: Tensor,
    rules: _Constrained,
    pool: LevelPool,
) -> None:
    """Fill the pool for ``images (A,)``, whose memory is ``state``."""
    start = Beams.start(pool.pool, images)
    beams = _Beams(
        images=images,
        tokens=start.tokens,
        scores=start.scores,
        states=images.new_zeros(start.scores.shape),
    )
    max_length = rules.asked.rules.max_length
    last = torch.full_like(images, rules.bos_id)
    for length in range(1, max_length + 1):
        log_probs, state = stepper.step(last, state)
        if length == 1:
            _check_vocabulary(rules.table, log_probs.shape[1])
        beams, rows = _advance(beams, pool, rules, log_probs, length)
        if not len(beams.images):
            return
        if length < max_length:
            state = state.select(rows)
            last = beams.tokens[:, :, length - 1].reshape(-1)
    scores, order = beams.scores.sort(dim=1, descending=True, stable=True)
    met = rules.table.met[beams.images[:, None], beams.states.gather(1, order)]
    cut_off = rules.asked.normalised(scores, max_length)
    pool.fill(beams.images, take_rows(beams.tokens, order), cut_off, met, max_length)


def _advance(
    beams: _Beams, pool: LevelPool, rules: _Constrained, log_probs: Tensor, length: int
) -> tuple[_Beams, Tensor]:
    """One step: ended hypotheses into the pool, the K best others of each state into the next.

    Returns:
        The beams of the images that go on, and ``(A' * R',)`` the row of each hypothesis' parent.
    """
    num_rows = beams.scores.shape[1]
    found = _continued(beams, rules, log_probs, length)
    totals, parents = found.totals, found.parents
    exists, ends = totals > DEAD, found.tokens == rules.eos_id
    ended = exists & ends & (found.places(exists) < rules.asked.beam_size)
    _collect(beams, pool, rules, totals.masked_fill(~ended, DEAD), parents, length)

    goes_on = exists & ~ends
    goes_on &= found.places(goes_on) < rules.asked.beam_size
    goes_on &= rules.asked.hopes(totals, length) > pool.worst(beams.images)[:, None]
    counts = goes_on.sum(1)
    kept = counts.nonzero().squeeze(1)
    # Those that go on move to the front, in order; what follows them is dead.
    front = (~goes_on[kept]).to(torch.int8).sort(dim=1, stable=True).indices
    front = front[:, : int(counts.max()) if len(kept) else 0]
    scores = totals.masked_fill(~goes_on, DEAD)[kept].gather(1, front)
    parents = parents[kept].gather(1, front)
    history = take_rows(beams.tokens[kept], parents)
    history[:, :, length - 1] = found.tokens[kept].gather(1, front)
    rows = (kept[:, None] * num_rows + parents).reshape(-1)
    states = found.targets[kept].gather(1, front)
    return _Beams(images=beams.images[kept], tokens=history, scores=scores, states=states), rows


def _continued(beams: _Beams, rules: _Constrained, log_probs: Tensor, length: int) -> Continuations:
    """What may follow the hypotheses."""
    table, images = rules.table, beams.images[:, None]
    history = beams.tokens[:, :, : length - 1].flatten(0, 1)
    log_probs = rules.asked.rules.without_repeats(log_probs, history)
    return continuations(
        log_probs,
        beams.scores,
        defaults=table.defaults[images, beams.states],
        continued=table.continued[images, beams.states],
        continues=table.continues,
        moves=table.tokens[images, beams.states],
        targets=table.targets[images, beams.states],
        per_target=rules.per_target(length),
        banned=rules.asked.rules.forbidden(length),
        banned_moves=rules.banned_moves,
    )


def _collect(
    beams: _Beams, pool: LevelPool, rules: _Constrained, ended: Tensor, parents: Tensor, length: int
) -> None:
    """Offer ended hypotheses to the pool.

    Args:
        beams: before the step.
        pool: takes what is good enough.
        rules: of the search.
        ended: ``(A, N)`` summed log-probability, ``-inf`` for those that do not end.
        parents: ``(A, N) int64`` their places in ``beams``, of which each ends at most once.
        length: tokens of each, the end token counted.
    """
    scores = torch.full_like(beams.scores, DEAD).scatter_reduce(1, parents, ended, "amax")
    scores, order = scores.sort(dim=1, descending=True, stable=True)
    tokens = take_rows(beams.tokens, order)
    tokens[:, :, length - 1] = rules.eos_id
    met = rules.table.met[beams.images[:, None], beams.states.gather(1, order)]
    pool.add(beams.images, tokens, rules.asked.normalised(scores, length), met, length)


def _groups(machines: Sequence[Machine]) -> list[list[int]]:
    """Images by the number of states of their machines, to within a factor of two."""
    groups: dict[int, list[int]] = {}
    for image, machine in enumerate(machines):
        groups.setdefault((machine.num_states - 1).bit_length(), []).append(image)
    return [groups[size] for size in sorted(groups)]


def _check_machines(machines: Sequence[Machine] | None, num_images: int, special: set[int]) -> None:
    if machines is None:
        raise ValueError(
            "constrained search needs machines, one an image; evaluate.py makes them by "
            "constraints=words constraints.path=FILE or constraints=detections"
        )
    if len(machines) != num_images:
        raise ValueError(f"machines must be one an image: got {len(machines)} for {num_images}")
    needed = {token for machine in machines for moves in machine.moves for token in moves}
    if needed & special:
        raise ValueError(
            "constraints must not need the begin, end or padding token: "
            f"got {sorted(needed & special)}; leave them out of the phrases"
        )


def _check_vocabulary(table: MachineTable, vocabulary: int) -> None:
    highest = int(table.tokens.max()) if table.tokens.numel() else 0
    if highest >= vocabulary:
        raise ValueError(
            f"constraints must be of the model's {vocabulary} tokens: got token {highest}; "
            "were they made with another tokenizer?"
        )
