"""Beam search as in published UpDown code: ended captions keep their slots in the beam."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, final

import torch
from torch import Tensor

from captioning.decoding.beam import check_num_captions
from captioning.decoding.constrained import check_machines, check_vocabulary
from captioning.decoding.continuations import Continuations, continuations
from captioning.decoding.machine import Machine, MachineTable, Phrase, build_machine
from captioning.decoding.search import AbstractSearch
from captioning.decoding.settings import SearchRequest, SearchSettings
from captioning.decoding.state import DEAD, ConstrainedResult, SearchResult, take_rows
from captioning.decoding.token_rules import Rules
from captioning.interfaces import AbstractDecoderState, AbstractStepper


@dataclass(slots=True, kw_only=True)
class Results:
    """The M best captions of I images found so far.

    Attributes:
        required: ``(I,) int64`` numbers of constraints to meet.
        tokens: ``(I, M, T) int64``, padded.
        scores: ``(I, M) float32``, ``-inf`` in empty slots.
        lengths: ``(I, M) int64``.
        levels: ``(I, M) int64`` constraints met, at most the required number.
        pad_id: the padding.
    """

    required: Tensor
    tokens: Tensor
    scores: Tensor
    lengths: Tensor
    levels: Tensor
    pad_id: int

    @classmethod
    def empty(cls, settings: SearchSettings, request: SearchRequest, required: Tensor) -> Results:
        """Return results without captions."""
        shape = (request.num_images, settings.num_captions)
        zeros = torch.zeros(shape, dtype=torch.long, device=request.device)
        size = (*shape, settings.max_length)
        return cls(
            required=required,
            tokens=torch.full(size, request.pad_id, device=request.device),
            scores=torch.full(shape, DEAD, device=request.device),
            lengths=zeros,
            levels=zeros.clone(),
            pad_id=request.pad_id,
        )

    def offer(
        self, images: Tensor, tokens: Tensor, scores: Tensor, lengths: Tensor, met: Tensor
    ) -> None:
        """Merge new captions into the results and keep the M best.

        Args:
            images: ``(A,) int64``, distinct.
            tokens: ``(A, R, T) int64``.
            scores: ``(A, R) float32``, ``-inf`` in empty slots.
            lengths: ``(A, R) int64``.
            met: ``(A, R) int64`` constraints met.
        """
        levels = torch.minimum(met, self.required[images, None])
        all_scores = torch.cat([self.scores[images], scores], 1)
        all_levels = torch.cat([self.levels[images], levels], 1)
        order = all_scores.sort(dim=1, descending=True, stable=True).indices
        ranks = all_levels.masked_fill(all_scores.isneginf(), -1).gather(1, order)
        order = order.gather(1, ranks.sort(dim=1, descending=True, stable=True).indices)
        order = order[:, : self.scores.shape[1]]
        self.scores[images] = all_scores.gather(1, order)
        self.levels[images] = all_levels.gather(1, order)
        self.lengths[images] = torch.cat([self.lengths[images], lengths], 1).gather(1, order)
        self.tokens[images] = take_rows(torch.cat([self.tokens[images], tokens], 1), order)

    def worst(self, images: Tensor) -> Tensor:
        """Return the M-th score ``(A,)``; ``-inf`` if that slot is empty or misses constraints."""
        short = self.levels[images, -1] < self.required[images]
        return self.scores[images, -1].masked_fill(short, DEAD)

    def plain(self) -> SearchResult:
        """Return the result of a search without constraints."""
        free = self.scores.isneginf()
        lengths = self.lengths.masked_fill(free, 0)
        longest = int(lengths.max()) if lengths.numel() else 0
        places = torch.arange(longest, device=lengths.device)
        tokens = self.tokens[..., :longest].masked_fill(places >= lengths[..., None], self.pad_id)
        return SearchResult(tokens=tokens, scores=self.scores, lengths=lengths)

    def constrained(self, table: MachineTable, eos_id: int) -> ConstrainedResult:
        """Return the result, with met constraints recounted by the exact machines ``table``."""
        plain = self.plain()
        images = torch.arange(len(plain.scores), device=plain.scores.device)[:, None]
        met = table.met[images, table.run(plain.tokens)].masked_fill(plain.lengths == 0, 0)
        places = torch.arange(plain.tokens.shape[2], device=met.device)
        ended = ((plain.tokens == eos_id) & (places == plain.lengths[..., None] - 1)).any(2)
        return ConstrainedResult(
            tokens=plain.tokens,
            scores=plain.scores,
            lengths=plain.lengths,
            met=met,
            fulfilled=ended & (met >= self.required[:, None]),
        )


# Any token outside all phrases.
# Machines as in nocaps-org/updown-baseline, for constraints over words.
#
# A phrase that fails midway starts again: the failing token counts for no phrase. In a state
# without a begun phrase, words of all constraints but the last may lead to the next state or
# stay in the same state, so a hypothesis may ignore that it has said a word. Captions cut off
# within a phrase meet no constraint. `captioning.decoding.machine.build_machine` has none of
# this.
_OTHER = -1


def restarting(machine: Machine) -> Machine:
    """Return a machine with the same constraints as updown-baseline interprets them.

    Alternatives of equal length are sets of exchangeable words: ``red bus`` and ``big
    car`` also allow ``red car``, because there each word of a phrase has its own forms.

    Raises:
        ValueError: the tokenizer splits words into subwords, which the published code does not
            support.
    """
    if machine.continues:
        raise ValueError("machines of updown-baseline need a word tokenizer: got subwords")
    moves = _Moves(machine.phrases)
    for number, alternatives in enumerate(machine.phrases):
        for words in _positions(alternatives):
            moves.add(1 << number, words)
    states = range(len(moves.next))
    after_other = [next(iter(moves.next[state][_OTHER])) for state in states]
    moved = [moves.moved(state, after_other[state]) for state in states]
    return replace(
        machine,
        moves=tuple({token: targets[0] for token, targets in tokens.items()} for tokens in moved),
        further=tuple(
            tuple((token, to) for token, targets in tokens.items() for to in targets[1:])
            for tokens in moved
        ),
        defaults=tuple(after_other),
        continued=tuple(after_other),
        met=tuple(state.bit_count() if state < moves.num_main else 0 for state in states),
    )


def _positions(alternatives: Sequence[Phrase]) -> list[list[frozenset[int]]]:
    """Return, for each phrase length, the words at each position; short phrases first."""
    lengths = sorted({len(phrase) for phrase in alternatives})
    return [
        [frozenset(words) for words in zip(*(p for p in alternatives if len(p) == n), strict=True)]
        for n in lengths
    ]


class _Moves:
    """Targets of each token; states below ``num_main`` are the bits of the met constraints.

    Attributes:
        next: for each state the target states of each token.
    """

    def __init__(self, phrases: Sequence[Sequence[Phrase]]) -> None:
        words = {token for alternatives in phrases for phrase in alternatives for token in phrase}
        self.alphabet = [*sorted(words), _OTHER]
        self.num_main = 1 << len(phrases)
        self.next: list[dict[int, set[int]]] = [
            {token: {state} for token in self.alphabet} for state in range(self.num_main)
        ]

    def add(self, bit: int, words: Sequence[frozenset[int]]) -> None:
        """Add a phrase of a constraint to every state in which the constraint is unmet."""
        for state in (state for state in range(self.num_main) if not state & bit):
            source = state
            for forms in words[:-1]:
                self.next.append({token: set() for token in self.alphabet})
                self._connect(source, len(self.next) - 1, forms, otherwise=state)
                source = len(self.next) - 1
            self._connect(source, state | bit, words[-1], otherwise=state)

    def _connect(self, source: int, target: int, forms: frozenset[int], otherwise: int) -> None:
        for token in self.alphabet:
            targets = self.next[source][token]
            targets.discard(source)
            if token in forms:
                targets.discard(otherwise)
                targets.add(target)
            else:
                targets.add(otherwise)

    def moved(self, state: int, default: int) -> dict[int, list[int]]:
        """Return the targets of tokens that lead to states other than the default."""
        return {
            token: sorted(targets)
            for token, targets in self.next[state].items()
            if token != _OTHER and targets != {default}
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Beams:
    """Hypotheses of the A images still searched, sorted by machine state, best first.

    Attributes:
        images: ``(A,) int64``, ascending.
        tokens: ``(A, R, T) int64``, padded.
        scores: ``(A, R) float32`` summed log-probabilities, ``-inf`` in empty slots.
        states: ``(A, R) int64`` states of the image's machine.
        lengths: ``(A, R) int64`` lengths of ended hypotheses; 0 for unfinished ones.
    """

    images: Tensor
    tokens: Tensor
    scores: Tensor
    states: Tensor
    lengths: Tensor

    def live(self) -> Tensor:
        """Scores ``(A, R)`` of unfinished hypotheses, ``-inf`` for ended ones."""
        return self.scores.masked_fill(self.lengths > 0, DEAD)

    def of(self, active: Tensor) -> _Beams:
        """Select the images ``active (A',) int64``."""
        fields = ("images", "tokens", "scores", "states", "lengths")
        return _Beams(**{name: getattr(self, name)[active] for name in fields})


@final
@dataclass(frozen=True, kw_only=True)
class HeldBeamSearch(AbstractSearch):
    """Beam search as in the code of published UpDown models, with or without constraints.

    Each step keeps the K best continuations, ended or not; with constraints it keeps K in each
    state of an image's machine (see `ConstrainedBeamSearch`). Captions that reach
    ``max_length`` compete with ended captions by summed log-probability. An image leaves the
    batch when its result cannot change any more; this saves steps without changing results.

    Attributes:
        ended: ``"hold"``: an ended caption keeps its slot while fewer than K captions are better
            (AllenNLP 0.8.4, updown-baseline); ``"leave"``: it takes a slot only in the step in
            which it ends (ruotianluo/ImageCaptioning.pytorch).
        failed_phrases: rule for phrases that fail midway: ``"restart"`` as in updown-baseline
            (see `captioning.decoding.published_beam`), or ``"continue"`` as in
            `ConstrainedBeamSearch`.
        unknown: whether the unknown word may be produced, even if it is the padding token.
    """

    unused: ClassVar[tuple[str, ...]] = (
        "end_words", "end_ids", "exact", "length_penalty", "normalisation", "temperature", "seed",
    )  # fmt: skip
    takes_machines: ClassVar[bool] = True

    ended: Literal["hold", "leave"] = "hold"
    failed_phrases: Literal["restart", "continue"] = "restart"
    unknown: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_num_captions(self.settings)

    @torch.no_grad()
    def __call__(
        self, stepper: AbstractStepper, state: AbstractDecoderState, request: SearchRequest
    ) -> SearchResult | ConstrainedResult:
        """Return the best captions of each image; see `AbstractSearch`.

        Raises:
            ValueError: unmeetable constraints, a subword tokenizer, or NaN log-probabilities.
        """
        plain = request.machines is None
        machines = [build_machine(())] * request.num_images
        if not plain:
            machines = check_machines(request)
        rules = _HeldRules.build(self, machines, request)
        results = Results.empty(self.settings, request, rules.table.required)
        images = torch.arange(request.num_images, device=request.device)
        beams = _start(images, self.settings.max_length, request.pad_id)
        last = torch.full_like(images, request.bos_id)
        max_length = self.settings.max_length if request.num_images else 0
        for length in range(1, max_length + 1):
            log_probs, state = stepper.step(last, state)
            if length == 1:
                check_vocabulary(rules.table, log_probs.shape[1])
            beams, rows = _advance(beams, results, rules, log_probs, length)
            if not len(beams.images):
                break
            state = state.select(rows)
            last = beams.tokens[:, :, length - 1].reshape(-1)
        if plain:
            return results.plain()
        return results.constrained(MachineTable.of(machines, request.device), request.eos_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class _HeldRules:
    """Rules for continuing hypotheses; see `HeldBeamSearch`."""

    rules: Rules
    table: MachineTable
    beam_size: int
    per_node_beam: int
    num_captions: int
    hold: bool
    eos_id: int
    several: bool

    @classmethod
    def build(
        cls, search: HeldBeamSearch, machines: Sequence[Machine], request: SearchRequest
    ) -> _HeldRules:
        settings = search.settings
        if search.failed_phrases == "restart":
            machines = [restarting(machine) for machine in machines]
        return cls(
            rules=_rules(search, request),
            table=MachineTable.of(machines, request.device),
            beam_size=settings.beam_size,
            per_node_beam=min(settings.per_node_beam or settings.beam_size, settings.beam_size),
            num_captions=settings.num_captions,
            hold=search.ended == "hold",
            eos_id=request.eos_id,
            several=any(machine.further for machine in machines),
        )


def _rules(search: HeldBeamSearch, request: SearchRequest) -> Rules:
    rules = Rules.build(search.settings, request)
    if not search.unknown or request.unk_id is None:
        return rules
    banned, early = (ids[ids != request.unk_id] for ids in (rules.banned, rules.banned_early))
    return replace(rules, banned=banned, banned_early=early)


def _start(images: Tensor, max_length: int, pad_id: int) -> _Beams:
    """Return one empty hypothesis per image."""
    zeros = images.new_zeros((len(images), 1))
    return _Beams(
        images=images,
        tokens=images.new_full((len(images), 1, max_length), pad_id),
        scores=zeros.float(),
        states=zeros,
        lengths=zeros,
    )


def _advance(
    beams: _Beams, results: Results, rules: _HeldRules, log_probs: Tensor, length: int
) -> tuple[_Beams, Tensor]:
    """Make one step; finished images move to the results.

    Returns:
        Beams of the images that continue, and ``(A' * R',)`` the row of each hypothesis'
        parent.
    """
    num_rows = beams.scores.shape[1]
    beams, parents = _continued(beams, rules, log_probs, length)
    met = rules.table.met[beams.images[:, None], beams.states]
    last = length == rules.rules.max_length
    if not rules.hold:
        ended = beams.scores.masked_fill(beams.lengths == 0, DEAD)
        results.offer(beams.images, beams.tokens, ended, beams.lengths, met)
        beams = replace(beams, scores=beams.live())
    best = beams.live().amax(1)
    done = best.isneginf() | (_worst(beams, results, rules, met) >= best) | last
    leaving = done.nonzero().squeeze(1)
    gone = beams.of(leaving)
    lengths = torch.where(gone.lengths > 0, gone.lengths, length)
    # An unfinished caption that is not cut off has no comparable score.
    scores = gone.scores if last else gone.scores.masked_fill(gone.lengths == 0, DEAD)
    results.offer(gone.images, gone.tokens, scores, lengths, met[leaving])
    active = (~done).nonzero().squeeze(1)
    rows = (active[:, None] * num_rows + parents[active]).reshape(-1)
    return beams.of(active), rows


def _worst(beams: _Beams, results: Results, rules: _HeldRules, met: Tensor) -> Tensor:
    """Return the worst score ``(A,)`` in the result so far, ``-inf`` with too few captions."""
    if not rules.hold:
        return results.worst(beams.images)
    good = (beams.lengths > 0) & (met >= rules.table.required[beams.images, None])
    scores = beams.scores.masked_fill(~good, DEAD).sort(dim=1, descending=True).values
    if scores.shape[1] < rules.num_captions:
        return torch.full_like(scores[:, 0], DEAD)
    return scores[:, rules.num_captions - 1]


def _continued(
    beams: _Beams, rules: _HeldRules, log_probs: Tensor, length: int
) -> tuple[_Beams, Tensor]:
    """Return beams one token longer, and ``(A, R')`` the position of each parent."""
    ranked = _ranked(beams, rules, log_probs, length)
    kept = ranked.totals > DEAD
    kept &= ranked.places(kept) < rules.beam_size
    front = (~kept).to(torch.int8).sort(dim=1, stable=True).indices
    front = front[:, : max(1, int(kept.sum(1).max()))]
    parents, words = ranked.parents.gather(1, front), ranked.tokens.gather(1, front)
    lengths = beams.lengths.gather(1, parents)
    tokens = take_rows(beams.tokens, parents)
    goes_on = lengths == 0
    tokens[:, :, length - 1] = torch.where(goes_on, words, tokens[:, :, length - 1])
    ends_now = goes_on & (words == rules.eos_id)
    extended = _Beams(
        images=beams.images,
        tokens=tokens,
        scores=ranked.totals.masked_fill(~kept, DEAD).gather(1, front),
        states=ranked.targets.gather(1, front),
        lengths=lengths.masked_fill(ends_now, length),
    )
    return extended, parents


def _ranked(beams: _Beams, rules: _HeldRules, log_probs: Tensor, length: int) -> Continuations:
    table, images = rules.table, beams.images[:, None]
    history = beams.tokens[:, :, : length - 1].flatten(0, 1)
    log_probs = rules.rules.with_one_end(rules.rules.adjusted(log_probs, history))
    held = (beams.lengths > 0).flatten()
    if rules.hold and length > 1:
        # An ended caption continues only with further end tokens, at no cost.
        log_probs = log_probs.masked_fill(held[:, None], DEAD)
        log_probs[:, rules.eos_id].masked_fill_(held, 0.0)
    return continuations(
        log_probs,
        beams.scores,
        defaults=table.defaults[images, beams.states],
        continued=table.continued[images, beams.states],
        continues=table.continues,
        moves=table.tokens[images, beams.states],
        targets=table.targets[images, beams.states],
        per_target=rules.beam_size if length == 1 else rules.per_node_beam,
        banned=rules.rules.forbidden(length),
        banned_moves=rules.rules.banned,
        several=rules.several,
    )
