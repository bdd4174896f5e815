"""Finite-state machines over token ids that track which constraints a hypothesis has met.

A constraint is met by any of its alternatives; an alternative is a phrase of one or more tokens. A
state holds the constraints met and the longest suffix of the hypothesis that begins an unmet phrase
(as in Knuth-Morris-Pratt and Aho-Corasick). A phrase that fails midway thus falls back to its
longest valid part, and one token may extend phrases of several
constraints.

The machine is deterministic: a hypothesis is in one state. Most tokens lead from a state to its
default state, where no phrase has begun; only the few other moves are listed.

With a sub-word tokenizer a phrase counts only as complete words. The token after the phrase decides
whether its last word ends there; until then its constraint is pending. If the next token continues
the word, the constraint falls back to unmet; if it begins another word, the constraint is met for
good. So states have two defaults, one for each kind of token; word tokenizers have just one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

Phrase = tuple[int, ...]
# Bits of met constraints, bits of pending constraints, and the begun part of unmet phrases.
_State = tuple[int, int, Phrase]
# Comes before the first token of phrases that are valid only at the start of a caption.
_BEGIN = -2

# States double with each constraint, so long lists of words raise an error.
MAX_CONSTRAINTS = 8
NO_TOKEN = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A deterministic machine; states are numbers, 0 is the start.

    Attributes:
        moves: for each state the non-default next states by token, tokens ascending.
        defaults: each state's next state after any other token.
        continued: each state's next state after any other token that continues a word.
        continues: tokens that continue the previous word; empty for word tokenizers.
        met: each state's number of met or pending constraints; without pending constraints the
            number never falls along a path.
        num_constraints: number of constraints n.
        required: number of constraints to meet, in [0, n].
        phrases: the alternatives of each constraint.
        further: each state's further moves for tokens that lead to several states; empty for a
            deterministic machine.
    """

    moves: tuple[Mapping[int, int], ...]
    defaults: tuple[int, ...]
    continued: tuple[int, ...]
    continues: frozenset[int]
    met: tuple[int, ...]
    num_constraints: int
    required: int
    phrases: tuple[tuple[Phrase, ...], ...] = field(default=(), compare=False)
    further: tuple[tuple[tuple[int, int], ...], ...] = ()

    @property
    def num_states(self) -> int:
        """Number of states S."""
        return len(self.defaults)

    @property
    def accepting(self) -> tuple[bool, ...]:
        """For each state, whether the required number of constraints is met."""
        return tuple(met >= self.required for met in self.met)

    def run(self, tokens: Sequence[int], state: int = 0) -> int:
        """Return the state after reading ``tokens``."""
        for token in tokens:
            default_states = self.continued if token in self.continues else self.defaults
            state = self.moves[state].get(token, default_states[state])
        return state


def build_machine(
    constraints: Sequence[Sequence[Phrase]],
    *,
    required: int = 2,
    continues: Collection[int] = frozenset(),
) -> Machine:
    """Build the machine of n constraints.

    Args:
        constraints: n sets of alternative phrases of token ids. A constraint without
            alternatives cannot be met.
        required: number of constraints to meet, at most n (nocaps uses 2).
        continues: tokens of a subword tokenizer that continue the previous word. A phrase is then
            met only if no such token follows. A phrase that begins with such a token is met only
            at the start of a caption.

    Raises:
        ValueError: too many constraints, an empty phrase, a negative id or ``required``.
    """
    _check(constraints, required)
    continues = frozenset(continues)
    phrases = _Phrases(constraints, continues)
    states: list[_State] = [phrases.start()]
    numbers = {states[0]: 0}

    def number(state: _State) -> int:
        if state not in numbers:
            numbers[state] = len(states)
            states.append(state)
        return numbers[state]

    moves, defaults, continued = [], [], []
    for state in states:  # grows while it is walked
        met, pending, _ = state
        after_other, after_continuing = (met | pending, 0, ()), (met, 0, ())
        defaults.append(number(after_other))
        continued.append(number(after_continuing))
        after = {token: phrases.after(state, token) for token in phrases.alphabet[met]}
        moves.append(
            {
                token: number(target)
                for token, target in after.items()
                if target != (after_continuing if token in continues else after_other)
            }
        )
    return Machine(
        moves=tuple(moves),
        defaults=tuple(defaults),
        continued=tuple(continued),
        continues=continues,
        met=tuple((met | pending).bit_count() for met, pending, _ in states),
        num_constraints=len(constraints),
        required=min(required, len(constraints)),
        phrases=tuple(tuple(map(tuple, alternatives)) for alternatives in constraints),
    )


def _check(constraints: Sequence[Sequence[Phrase]], required: int) -> None:
    if len(constraints) > MAX_CONSTRAINTS:
        raise ValueError(
            f"constraints must be at most {MAX_CONSTRAINTS}: got {len(constraints)}; the number of "
            "states doubles with each, so keep the most important ones"
        )
    if required < 0:
        raise ValueError(f"required must be at least 0: got {required}")
    for phrase in (phrase for alternatives in constraints for phrase in alternatives):
        if not phrase or min(phrase) < 0:
            raise ValueError(f"a phrase must hold token ids of at least 0: got {tuple(phrase)}")


def _anchored(alternatives: Sequence[Phrase], continues: frozenset[int]) -> tuple[Phrase, ...]:
    """Return distinct phrases; phrases that begin within a word must start a caption."""
    distinct = sorted({tuple(phrase) for phrase in alternatives})
    return tuple((_BEGIN, *phrase) if phrase[0] in continues else phrase for phrase in distinct)


def _shortest(alternatives: Sequence[Phrase], _: frozenset[int]) -> tuple[Phrase, ...]:
    """Return distinct phrases, except phrases that contain a shorter phrase, met earlier."""
    distinct = sorted({tuple(phrase) for phrase in alternatives}, key=lambda p: (len(p), p))
    shortest: list[Phrase] = []
    for phrase in distinct:
        if not any(_holds(phrase, shorter) for shorter in shortest):
            shortest.append(phrase)
    return tuple(shortest)


def _holds(phrase: Phrase, part: Phrase) -> bool:
    size = len(part)
    return any(phrase[i : i + size] == part for i in range(len(phrase) - size + 1))


class _Phrases:
    """Index of the phrases of constraints; lists are indexed by bits of the met constraints.

    Attributes:
        continues: tokens that continue a word.
        alphabet: tokens of the unmet phrases, ascending.
        begun: proper prefixes of the unmet phrases.
        endings: for each token the phrases that it completes, with the bit of their constraint.
    """

    def __init__(self, constraints: Sequence[Sequence[Phrase]], continues: frozenset[int]) -> None:
        self.continues = continues
        # A longer phrase may be a complete word although a shorter phrase within it is not.
        distinct = _anchored if continues else _shortest
        phrases = [
            (1 << i, p)
            for i, alternatives in enumerate(constraints)
            for p in distinct(alternatives, continues)
        ]
        self.alphabet: list[list[int]] = []
        self.begun: list[set[Phrase]] = []
        for met in range(1 << len(constraints)):
            unmet = [phrase for bit, phrase in phrases if not bit & met]
            self.alphabet.append(sorted({token for phrase in unmet for token in phrase} - {_BEGIN}))
            self.begun.append({p[:size] for p in unmet for size in range(1, len(p))})
        self.endings: dict[int, list[tuple[int, Phrase]]] = {t: [] for t in self.alphabet[0]}
        for bit, phrase in phrases:
            self.endings[phrase[-1]].append((bit, phrase))

    def start(self) -> _State:
        """State before the first token."""
        return 0, 0, (_BEGIN,) if (_BEGIN,) in self.begun[0] else ()

    def after(self, state: _State, token: int) -> _State:
        """Return the state after ``token``, which must be in the alphabet."""
        met, pending, read = state[0], 0, (*state[2], token)
        if token not in self.continues:
            met |= state[1]
        for bit, phrase in self.endings[token]:
            if read[-len(phrase) :] == phrase:
                pending |= bit & ~met
        if not self.continues:
            met, pending = met | pending, 0
        ends = (read[start:] for start in range(len(read)))
        return met, pending, next((end for end in ends if end in self.begun[met]), ())


def _pairs(machine: Machine) -> list[list[tuple[int, int]]]:
    """Return tokens and targets of all moves of each state."""
    further = machine.further or ((),) * machine.num_states
    return [[*moves.items(), *more] for moves, more in zip(machine.moves, further, strict=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineTable:
    """Machines of I images as tensors; S states and X moves per state, padded.

    Attributes:
        tokens: ``(I, S, X) int64`` tokens of the moves, padded with `NO_TOKEN`.
        targets: ``(I, S, X) int64`` target states of the moves.
        defaults: ``(I, S) int64`` states after all other tokens.
        continued: ``(I, S) int64`` states after all other tokens that continue a word.
        continues: ``(C,) int64`` tokens that continue a word.
        met: ``(I, S) int64``.
        required: ``(I,) int64``.
    """

    tokens: Tensor
    targets: Tensor
    defaults: Tensor
    continued: Tensor
    continues: Tensor
    met: Tensor
    required: Tensor

    @classmethod
    def of(cls, machines: Sequence[Machine], device: torch.device | str = "cpu") -> MachineTable:
        """Build the tables, one machine per image."""
        num_states = max((machine.num_states for machine in machines), default=1)
        all_moves = [
            moves
            for machine in machines
            for moves in (*_pairs(machine), *[[]] * (num_states - machine.num_states))
        ]
        width = max(map(len, all_moves), default=0)

        def rows(lists: list[list[int]], columns: int, fill: int) -> Tensor:
            padded = [values + [fill] * (columns - len(values)) for values in lists]
            return torch.tensor(padded, dtype=torch.long, device=device).view(len(lists), columns)

        shape = (len(machines), num_states, width)
        continues = sorted(frozenset().union(*(machine.continues for machine in machines)))
        return cls(
            tokens=rows([[t for t, _ in moves] for moves in all_moves], width, NO_TOKEN).view(
                shape
            ),
            targets=rows([[to for _, to in moves] for moves in all_moves], width, 0).view(shape),
            defaults=rows([list(machine.defaults) for machine in machines], num_states, 0),
            continued=rows([list(machine.continued) for machine in machines], num_states, 0),
            continues=torch.tensor(continues, dtype=torch.long, device=device),
            met=rows([list(machine.met) for machine in machines], num_states, 0),
            required=rows([[machine.required] for machine in machines], 1, 0)[:, 0],
        )

    def run(self, tokens: Tensor) -> Tensor:
        """Return states ``(I, M)`` after reading ``tokens (I, M, T) int64`` from the start."""
        images = torch.arange(len(tokens), device=tokens.device)[:, None]
        states = torch.zeros(tokens.shape[:2], dtype=torch.long, device=tokens.device)
        for token in tokens.unbind(2):
            listed = self.tokens[images, states] == token[..., None]
            target = (self.targets[images, states] * listed).sum(2)
            goes_on = torch.isin(token, self.continues)
            default_states = self.continued[images, states].where(
                goes_on, self.defaults[images, states]
            )
            states = torch.where(listed.any(2), target, default_states)
        return states
