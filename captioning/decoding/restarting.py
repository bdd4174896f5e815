"""Machines as those of nocaps-org/updown-baseline, for constraints over words.

A phrase that fails midway starts again: the token that ended it counts for no phrase. In a state
without a part of a phrase, words of all constraints but the last leave the choice between the
next state and the same one, so a hypothesis may ignore that it has said one. Captions cut off within a
phrase count as meeting nothing. `captioning.decoding.machine.build_machine` has none of this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from captioning.decoding.machine import Machine, Phrase

# Any token that no phrase has.
_OTHER = -1


def restarting(machine: Machine) -> Machine:
    """The same constraints as updown-baseline reads them.

    Alternatives of the same length are taken as words that may change places: ``red bus`` and
    ``big car`` also allow ``red car``, as there each word of a phrase has forms of its own.

    Raises:
        ValueError: tokens that go on with words, which that code does not know.
    """
    if machine.continues:
        raise ValueError("machines of updown-baseline need a tokenizer of words: got sub-words")
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
    """For each length of phrases the words at each position, short ones first."""
    lengths = sorted({len(phrase) for phrase in alternatives})
    return [
        [frozenset(words) for words in zip(*(p for p in alternatives if len(p) == n), strict=True)]
        for n in lengths
    ]


class _Moves:
    """Where each token leads; states below ``num_main`` are the bits of the constraints met.

    Attributes:
        next: for each state the targets of each token.
    """

    def __init__(self, phrases: Sequence[Sequence[Phrase]]) -> None:
        words = {token for alternatives in phrases for phrase in alternatives for token in phrase}
        self.alphabet = [*sorted(words), _OTHER]
        self.num_main = 1 << len(phrases)
        self.next: list[dict[int, set[int]]] = [
            {token: {state} for token in self.alphabet} for state in range(self.num_main)
        ]

    def add(self, bit: int, words: Sequence[frozenset[int]]) -> None:
        """A phrase of a constraint, from every state in which it is not met."""
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
        """Targets of the tokens that do not lead to the default alone."""
        return {
            token: sorted(targets)
            for token, targets in self.next[state].items()
            if token != _OTHER and targets != {default}
        }
