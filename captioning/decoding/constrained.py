"""Constrained beam search over any stepper model, batched over images.

Anderson et al., 2017, *Guided Open Vocabulary Image Captioning with Constrained Beam Search*,
section 3: a beam for each state of a finite-state machine, so hypotheses compete only with
hypotheses that have met the same constraints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, final

import torch
from torch import Tensor

from captioning.decoding.beam import BeamRules, Beams, check_num_captions
from captioning.decoding.continuations import Continuations, continuations
from captioning.decoding.machine import Machine, MachineTable
from captioning.decoding.search import AbstractSearch
from captioning.decoding.settings import SearchRequest
from captioning.decoding.state import DEAD, ConstrainedResult, LevelPool, take_rows
from captioning.interfaces import AbstractDecoderState, AbstractStepper

# Hypotheses in one step on a GPU, which must hold the memory of all of them.
ROWS_AT_ONCE = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class _Beams:
    """Unfinished hypotheses of the A images still searched, sorted by state, best first.

    Attributes:
        images: ``(A,) int64``, ascending.
        tokens: ``(A, R, T) int64``, padded.
        scores: ``(A, R) float32`` summed log-probabilities; ``-inf`` in unused last slots.
        states: ``(A, R) int64`` states of the image's machine.
    """

    images: Tensor
    tokens: Tensor
    scores: Tensor
    states: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class _Constrained:
    """Rules for continuing hypotheses in constrained search.

    Attributes:
        beam: rules with beam size, lengths and normalisation.
        table: the machines of all images.
        banned_moves: ``(F,) int64`` ids that no machine move may produce.
        eos_id: the token that ends a hypothesis.
    """

    beam: BeamRules
    table: MachineTable
    banned_moves: Tensor
    eos_id: int

    def per_target(self, length: int) -> int:
        """Return how many continuations of one hypothesis into one state can matter."""
        # One more than K, because one continuation may end.
        max_count = self.beam.beam_size + 1
        limit = self.beam.per_node_beam if length > 1 else None
        return min(limit or max_count, max_count)


@final
@dataclass(frozen=True, kw_only=True)
class ConstrainedBeamSearch(AbstractSearch):
    """Beam search for the most probable captions that meet their image's constraints.

    Every state of an image's machine has a beam of K hypotheses. Each step ranks all continuations
    into a state by summed log-probability. Ties are broken by the parent's position (lower states
    first), the parent's log-probability, then token id. The end token leads to the default state,
    like other tokens outside phrases: the same constraints are met and no phrase has started.
    Among a state's best K, ended hypotheses enter the image's pool; the best K unfinished ones
    continue. In the pool, ties are broken by step, then by the parent's position. Without
    constraints the search equals `captioning.decoding.beam.BeamSearch`.

    Only existing hypotheses are extended: a state costs nothing until a hypothesis reaches it. Once
    the pool is full of finished hypotheses that meet the constraints, hypotheses that cannot enter
    it are dropped (log-probabilities only lower a sum), and an image without hypotheses leaves the
    batch. Neither changes the result. All images of a step need the same number of rows, so images
    with fewer hypotheses get dummy rows.

    ``beam_size`` counts hypotheses per state; ``per_node_beam`` counts continuations into one
    state. A phrase with a forbidden token cannot be produced, and ``no_repeat_ngram_size`` applies
    to phrases, too.

    Attributes:
        forced_ids: forbidden ids that are allowed if a phrase needs them.
        by_size: search images in groups with machines of similar size: fewer rows, more steps.
            False: one group. None: on CPUs groups by size, on GPUs, where a step takes equally long
            with few rows, groups of `ROWS_AT_ONCE`.
    """

    forced_ids: Sequence[int] = ()
    by_size: bool | None = field(default=None, repr=False)  # captions are the same with any
    unused: ClassVar[tuple[str, ...]] = ("end_words", "end_ids", "exact", "temperature", "seed")
    takes_machines: ClassVar[bool] = True
    needs_machines: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_num_captions(self.settings)

    @torch.no_grad()
    def __call__(
        self, stepper: AbstractStepper, state: AbstractDecoderState, request: SearchRequest
    ) -> ConstrainedResult:
        """Return the best captions of each image, and whether they meet its constraints.

        Raises:
            ValueError: no machines, a constraint that needs a forbidden token, or NaN
                log-probabilities.
        """
        machines, num_images = check_machines(request), request.num_images
        rules = self._rules(machines, request)
        pool = LevelPool(required=rules.table.required, settings=self.settings, request=request)
        begin = torch.full((num_images,), request.bos_id, device=request.device)
        # Before the groups: some model memories can be indexed only after a token was read.
        log_probs, state = stepper.step(begin, state)
        check_vocabulary(rules.table, log_probs.shape[1])
        for group in self._groups(machines, torch.device(request.device)):
            images = torch.tensor(group, dtype=torch.long, device=request.device)
            is_whole = len(group) == num_images
            group_state = state if is_whole else state.select(images)
            group_log_probs = log_probs if is_whole else log_probs[images]
            _search(stepper, group_state, group_log_probs, images, rules, pool)
        return pool.result(rules.table, request.eos_id)

    def _groups(self, machines: Sequence[Machine], device: torch.device) -> list[list[int]]:
        """Return groups of images that are searched together."""
        if self.by_size is False:
            return [list(range(len(machines)))]
        groups = _groups(machines)
        if self.by_size or device.type == "cpu":
            return groups
        return _merged(groups, machines, ROWS_AT_ONCE // self.settings.beam_size)

    def _rules(self, machines: Sequence[Machine], request: SearchRequest) -> _Constrained:
        beam = BeamRules.build(self.settings, request)
        forced = torch.tensor(self.forced_ids, dtype=torch.long, device=request.device)
        return _Constrained(
            beam=beam,
            table=MachineTable.of(machines, request.device),
            banned_moves=beam.rules.banned[~torch.isin(beam.rules.banned, forced)],
            eos_id=request.eos_id,
        )


def _search(
    stepper: AbstractStepper,
    state: AbstractDecoderState,
    log_probs: Tensor,
    images: Tensor,
    rules: _Constrained,
    pool: LevelPool,
) -> None:
    """Search ``images (A,)`` and fill the pool.

    ``state`` is the memory after the begin token; ``log_probs (A, V)`` predict the next token.
    """
    start = Beams.start(pool.pool, images)
    beams = _Beams(
        images=images,
        tokens=start.tokens,
        scores=start.scores,
        states=images.new_zeros(start.scores.shape),
    )
    max_length = rules.beam.rules.max_length
    for length in range(1, max_length + 1):
        beams, rows = _advance(beams, pool, rules, log_probs, length)
        if not len(beams.images):
            return
        if length < max_length:
            last = beams.tokens[:, :, length - 1].reshape(-1)
            log_probs, state = stepper.step(last, state.select(rows))
    scores, order = beams.scores.sort(dim=1, descending=True, stable=True)
    met = rules.table.met[beams.images[:, None], beams.states.gather(1, order)]
    cut_off = rules.beam.normalised(scores, max_length)
    pool.fill(beams.images, take_rows(beams.tokens, order), cut_off, met, max_length)


def _advance(
    beams: _Beams, pool: LevelPool, rules: _Constrained, log_probs: Tensor, length: int
) -> tuple[_Beams, Tensor]:
    """Make one step: ended hypotheses enter the pool, each state's K best others continue.

    Returns:
        Beams of the images that continue, and ``(A' * R',)`` the row of each hypothesis'
        parent.
    """
    num_rows = beams.scores.shape[1]
    continued = _continued(beams, rules, log_probs, length)
    totals, parents = continued.totals, continued.parents
    exists, ends = totals > DEAD, continued.tokens == rules.eos_id
    ended = exists & ends & (continued.places(exists) < rules.beam.beam_size)
    _collect(beams, pool, rules, totals.masked_fill(~ended, DEAD), parents, length)

    goes_on = exists & ~ends
    goes_on &= continued.places(goes_on) < rules.beam.beam_size
    goes_on &= rules.beam.upper_bounds(totals, length) > pool.worst(beams.images)[:, None]
    counts = goes_on.sum(1)
    active = counts.nonzero().squeeze(1)
    # Hypotheses that continue move to the front, in order; dummy rows follow.
    front = (~goes_on[active]).to(torch.int8).sort(dim=1, stable=True).indices
    front = front[:, : int(counts.max()) if len(active) else 0]
    scores = totals.masked_fill(~goes_on, DEAD)[active].gather(1, front)
    parents = parents[active].gather(1, front)
    history = take_rows(beams.tokens[active], parents)
    history[:, :, length - 1] = continued.tokens[active].gather(1, front)
    rows = (active[:, None] * num_rows + parents).reshape(-1)
    states = continued.targets[active].gather(1, front)
    return _Beams(images=beams.images[active], tokens=history, scores=scores, states=states), rows


def _continued(beams: _Beams, rules: _Constrained, log_probs: Tensor, length: int) -> Continuations:
    """Return the ranked continuations of all hypotheses."""
    table, images = rules.table, beams.images[:, None]
    history = beams.tokens[:, :, : length - 1].flatten(0, 1)
    log_probs = rules.beam.rules.with_one_end(rules.beam.rules.adjusted(log_probs, history))
    return continuations(
        log_probs,
        beams.scores,
        defaults=table.defaults[images, beams.states],
        continued=table.continued[images, beams.states],
        continues=table.continues,
        moves=table.tokens[images, beams.states],
        targets=table.targets[images, beams.states],
        per_target=rules.per_target(length),
        banned=rules.beam.rules.forbidden(length),
        banned_moves=rules.banned_moves,
    )


def _collect(
    beams: _Beams, pool: LevelPool, rules: _Constrained, ended: Tensor, parents: Tensor, length: int
) -> None:
    """Offer ended hypotheses to the pool.

    Args:
        beams: beams before the step.
        pool: receives the best hypotheses.
        rules: the search's rules.
        ended: ``(A, N)`` summed log-probabilities, ``-inf`` for hypotheses that do not end.
        parents: ``(A, N) int64`` parent positions in ``beams``; each ends at most once.
        length: number of tokens, including the end token.
    """
    scores = torch.full_like(beams.scores, DEAD).scatter_reduce(1, parents, ended, "amax")
    scores, order = scores.sort(dim=1, descending=True, stable=True)
    tokens = take_rows(beams.tokens, order)
    tokens[:, :, length - 1] = rules.eos_id
    met = rules.table.met[beams.images[:, None], beams.states.gather(1, order)]
    pool.add(beams.images, tokens, rules.beam.normalised(scores, length), met, length)


def _groups(machines: Sequence[Machine]) -> list[list[int]]:
    """Group images whose machines differ in size by less than a factor of two."""
    groups: dict[int, list[int]] = {}
    for image, machine in enumerate(machines):
        groups.setdefault((machine.num_states - 1).bit_length(), []).append(image)
    return [groups[size] for size in sorted(groups)]


def _merged(
    groups: Sequence[list[int]], machines: Sequence[Machine], num_states: int
) -> list[list[int]]:
    """Merge groups as long as their images have at most ``num_states`` states in total.

    Args:
        groups: groups from `_groups`, smallest machines first.
        machines: machines of all images.
        num_states: limit; each image counts with the size of the largest machine in its group.
    """
    merged: list[list[int]] = []
    for group in groups:
        largest = max(machines[image].num_states for image in group)
        if merged and (len(merged[-1]) + len(group)) * largest <= num_states:
            merged[-1] = sorted(merged[-1] + group)
        else:
            merged.append(list(group))
    return merged


def check_machines(request: SearchRequest) -> Sequence[Machine]:
    """Return the machines of a request after checks.

    Raises:
        ValueError: there are no machines, or one needs a token that is not a word.
    """
    if request.machines is None:
        raise ValueError(
            "constrained search needs one machine per image; captioning evaluate builds machines "
            "with constraints=words constraints.path=FILE or constraints=detections"
        )
    special = {request.bos_id, *request.ends, request.pad_id}
    needed = {token for machine in request.machines for moves in machine.moves for token in moves}
    if needed & special:
        raise ValueError(
            "constraints must not need the begin, end or padding token: "
            f"got {sorted(needed & special)}; leave them out of the phrases"
        )
    return request.machines


def check_vocabulary(table: MachineTable, vocabulary: int) -> None:
    """Raise an error if machines need tokens outside the model's vocabulary.

    Raises:
        ValueError: a token id of at least ``vocabulary``.
    """
    highest = int(table.tokens.max()) if table.tokens.numel() else 0
    if highest >= vocabulary:
        raise ValueError(
            f"constraints need token {highest}, but the model has {vocabulary} tokens: were they "
            "made with another tokenizer?"
        )
