"""Machines against a search for the phrases in the tokens themselves."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from captioning.decoding.machine import Machine, MachineTable, build_machine
from tests.captioning.decoding.constrained_truth import count_met

A, B, C = 3, 4, 5


phrases = st.lists(st.integers(A, C), min_size=1, max_size=4).map(tuple)
constraints = st.lists(st.lists(phrases, max_size=3), max_size=4)
# Tokens that go on with a word, as of a sub-word tokenizer; 9 is in no phrase.
continues = st.just(frozenset()) | st.frozensets(st.sampled_from([A, B, C, 9]))


@given(
    constraints=constraints,
    continues=continues,
    required=st.integers(0, 5),
    seed=st.integers(0, 10**6),
)
@settings(max_examples=100)
def test_every_string_meets_what_a_plain_search_finds(constraints, continues, required, seed):
    machine = build_machine(constraints, required=required, continues=continues)
    assert machine.required == min(required, len(constraints))
    short = (tokens for n in range(5) for tokens in itertools.product((A, B, C, 9), repeat=n))
    long = np.random.default_rng(seed).integers(A, C + 1, size=(30, 12)).tolist()
    for tokens in (*short, *map(tuple, long)):
        met = count_met(tokens, constraints, continues)
        state = machine.run(tokens)
        assert machine.met[state] == met
        assert machine.accepting[state] == (met >= machine.required)


@given(constraints=constraints, continues=continues)
@settings(max_examples=60)
def test_each_state_is_reached_and_no_move_is_the_default(constraints, continues):
    machine = build_machine(constraints, continues=continues)
    reached, new = {0}, [0]
    for state in new:
        defaults = machine.defaults[state], machine.continued[state]
        after = {*defaults, *machine.moves[state].values()}
        new += sorted(after - reached)
        reached |= after
        assert all(n != defaults[t in continues] for t, n in machine.moves[state].items())
        assert list(machine.moves[state]) == sorted(machine.moves[state])
        if not continues:
            assert defaults[0] == defaults[1]
            assert all(machine.met[target] >= machine.met[state] for target in after)
    assert reached == set(range(machine.num_states))


@given(
    several=st.lists(constraints, max_size=4),
    continues=continues,
    seed=st.integers(0, 10**6),
    length=st.integers(0, 8),
)
@settings(max_examples=40)
def test_the_table_runs_as_its_machines(several, continues, seed, length):
    machines = [build_machine(constraints, continues=continues) for constraints in several]
    table = MachineTable.of(machines)
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(A, 7, (len(machines), 2, length), generator=generator)
    states = table.run(tokens)
    for image, machine in enumerate(machines):
        expected = [machine.run(row.tolist()) for row in tokens[image]]
        assert states[image].tolist() == expected
        assert table.met[image, states[image]].tolist() == [machine.met[s] for s in expected]
        assert table.required[image] == machine.required


def met_along(machine: Machine, tokens: list[int]) -> list[int]:
    return [machine.met[machine.run(tokens[:end])] for end in range(len(tokens) + 1)]


def test_a_phrase_that_fails_midway_falls_back_to_what_is_good_of_it():
    machine = build_machine([[(A, A, B)]])
    assert met_along(machine, [A, A, A, B]) == [0, 0, 0, 0, 1]
    assert met_along(machine, [A, B, A, A, C, B]) == [0] * 7
    assert machine.num_states == 4


def test_one_token_carries_on_several_constraints():
    machine = build_machine([[(A, B)], [(B, C)], [(B,)]])
    assert met_along(machine, [A, B, C]) == [0, 0, 2, 3]
    assert met_along(machine, [B, C]) == [0, 1, 2]


def test_phrases_of_several_constraints_are_read_side_by_side():
    # After A B both the first phrase and the second one, begun later, may go on.
    machine = build_machine([[(A, B, A)], [(B, C)]])
    assert met_along(machine, [A, B, C]) == [0, 0, 0, 1]
    assert met_along(machine, [A, B, A, B, C]) == [0, 0, 0, 1, 1, 2]


def test_single_words_need_a_state_for_each_set_of_constraints():
    assert build_machine([[(3,), (4,)], [(5,)], [(6,), (7,)]]).num_states == 8


def test_as_many_constraints_as_are_allowed_are_taken():
    assert build_machine([[(token,)] for token in range(3, 11)]).num_states == 2**8


def test_an_alternative_that_holds_another_costs_no_state():
    dog, hot = 3, 4
    assert build_machine([[(dog,), (hot, dog)]]) == build_machine([[(dog,)]])


def test_without_constraints_one_state_accepts():
    machine = build_machine([])
    assert (machine.num_states, machine.accepting, machine.required) == (1, (True,), 0)


def test_a_constraint_without_alternatives_is_never_met():
    machine = build_machine([[(A,)], []])
    assert machine.required == 2
    assert not any(machine.accepting)


@pytest.mark.parametrize(
    ("constraints", "required", "message"),
    [
        ([[(3,)]] * 9, 2, "constraints must be at most 8: got 9"),
        ([[(3,), ()]], 2, r"a phrase must hold token ids of at least 0: got \(\)"),
        ([[(3, -1)]], 2, r"a phrase must hold token ids of at least 0: got \(3, -1\)"),
        ([[(3,)]], -1, "required must be at least 0: got -1"),
    ],
)
def test_bad_constraints_are_refused(constraints, required, message):
    with pytest.raises(ValueError, match=message):
        build_machine(constraints, required=required)
