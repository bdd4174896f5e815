"""What constrained search should find, by enumeration and by a naive search with lists."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from captioning.decoding.machine import Machine
from tests.captioning.decoding.toy import BOS, EOS, PAD, TableStepper, normalised

Constraints = list[list[tuple[int, ...]]]


@dataclass(frozen=True, order=True)
class Hypothesis:
    """A hypothesis; better ones are greater."""

    level: int  # constraints met, at most as many as required
    finished: bool
    score: float
    tokens: tuple[int, ...] = ()

    @property
    def rank(self) -> tuple[int, bool, float]:
        return self.level, self.finished, self.score


def count_met(
    tokens: tuple[int, ...], constraints: Constraints, continues: frozenset[int] = frozenset()
) -> int:
    """How many constraints a caption meets by whole words."""

    def holds(phrase: tuple[int, ...]) -> bool:
        return any(
            tokens[i : i + len(phrase)] == phrase
            and not continues.intersection(tokens[i + len(phrase) :][:1])
            and (i == 0 or phrase[0] not in continues)
            for i in range(len(tokens))
        )

    return sum(any(map(holds, alternatives)) for alternatives in constraints)


def random_constraints(generator: np.random.Generator, vocabulary: int) -> Constraints:
    """Up to four constraints of up to three alternatives of one to three words."""
    return [
        [
            tuple(generator.integers(3, vocabulary, size=generator.choice([1, 1, 2, 3])).tolist())
            for _ in range(generator.integers(1, 4))
        ]
        for _ in range(generator.integers(0, 5))
    ]


def random_continues(generator: np.random.Generator, vocabulary: int) -> frozenset[int]:
    """Tokens that go on with a word; for half of all cases none, as with a word tokenizer."""
    size = int(generator.integers(0, vocabulary - 3)) * int(generator.integers(2))
    return frozenset(generator.choice(range(3, vocabulary), size=size, replace=False).tolist())


def all_captions(
    stepper: TableStepper, image: int, constraints: Constraints, machine: Machine, **options
) -> list[Hypothesis]:
    """Every hypothesis that could be returned, best first."""
    table, longest = stepper.table[image].numpy(), options["max_length"]
    words = [t for t in range(3, table.shape[1]) if t not in options["forbidden_ids"]]
    captions = []
    for length in range(1, longest + 1):
        ends = [(EOS,)] if length >= options["min_length"] else []
        bodies = [
            (*body, *end) for end in ends for body in itertools.product(words, repeat=length - 1)
        ]
        bodies += itertools.product(words, repeat=length) if length == longest else ()
        for tokens in bodies:
            total, code = np.float32(0), stepper.next_code(0, BOS)
            for token in tokens:
                total += table[code, token]
                code = stepper.next_code(code, token)
            if total > -np.inf:
                met = count_met(tokens, constraints, machine.continues)
                level = min(met, machine.required)
                score = normalised(total, length, options["length_penalty"])
                captions.append(Hypothesis(level, tokens[-1] == EOS, score, tokens))
    return sorted(captions, reverse=True)


def naive_search(
    stepper: TableStepper,
    image: int,
    constraints: Constraints,
    machine: Machine,
    *,
    beam_size: int,
    max_length: int,
    min_length: int = 0,
    length_penalty: float = 0.0,
    per_node_beam: int | None = None,
    forbidden_ids: tuple[int, ...] = (),
    num_captions: int = 1,
) -> tuple[list[Hypothesis], list[int]]:
    """What is promised for one image, word by word: lists, nothing dropped early.

    Returns:
        The hypotheses, and how many were live at each step.
    """
    table, banned = stepper.table[image].numpy(), {BOS, PAD, *forbidden_ids}
    live, pool, counts = [(np.float32(0), ())], [], []

    def hypothesis(total: np.float32, tokens: tuple[int, ...]) -> Hypothesis:
        level = min(count_met(tokens, constraints, machine.continues), machine.required)
        score = normalised(total, len(tokens), length_penalty)
        return Hypothesis(level, tokens[-1] == EOS, score, tokens)

    for length in range(1, max_length + 1):
        counts.append(len(live))
        into: dict[int, list] = {}
        for place, (score, tokens) in enumerate(live):
            code = stepper.next_code(0, BOS)
            for token in tokens:
                code = stepper.next_code(code, token)
            by_state: dict[int, list] = {}
            for token, value in enumerate(table[code]):
                early = token == EOS and length < min_length
                if token not in banned and not early and value > -np.inf:
                    # The end of a hypothesis belongs to no phrase.
                    by_state.setdefault(machine.run((*tokens, token)), []).append((-value, token))
            for state, live_in_state in by_state.items():
                limit = per_node_beam if length > 1 else None
                into.setdefault(state, []).extend(
                    (-np.float32(score - loss), place, loss, token, tokens)
                    for loss, token in sorted(live_in_state)[:limit]
                )
        live, ended = [], []
        for _, live_in_state in sorted(into.items()):
            live_in_state.sort()
            ended += [s for s in live_in_state[:beam_size] if s[3] == EOS]
            going = [(-s[0], (*s[4], s[3])) for s in live_in_state if s[3] != EOS]
            live += going[:beam_size]
        # Of one step by the place of their parent, of which each ends once.
        ended.sort(key=lambda s: s[1])
        pool += [hypothesis(-s[0], (*s[4], EOS)) for s in ended]
    live.sort(key=lambda entry: -entry[0])
    pool.sort(key=lambda entry: -entry.score)
    everything = pool + [hypothesis(*entry) for entry in live]
    everything.sort(key=lambda entry: (-entry.level, not entry.finished))
    return everything[:num_captions], counts
