"""Constrained search against all captions there are, a naive reference, and its own promises."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from captioning.decoding.beam import BeamSearch
from captioning.decoding.constrained import ROWS_AT_ONCE, ConstrainedBeamSearch
from captioning.decoding.machine import Machine, build_machine
from captioning.decoding.settings import SearchSettings
from captioning.decoding.state import ConstrainedResult
from tests.captioning.decoding.constrained_truth import (
    Constraints,
    Hypothesis,
    all_captions,
    count_met,
    naive_search,
    random_constraints,
    random_continues,
)
from tests.captioning.decoding.toy import BOS, EOS, PAD, TableStepper, random_table, run


def search(stepper: TableStepper, machines: list[Machine], **options: object) -> ConstrainedResult:
    return run(ConstrainedBeamSearch, stepper, machines=machines, **options)


def hypotheses(
    result: ConstrainedResult, image: int, constraints: Constraints, machine: Machine
) -> list[Hypothesis]:
    """The existing hypotheses of an image, after a check of all that is said about them."""
    results = []
    for place, length in enumerate(result.lengths[image].tolist()):
        tokens, score = result.tokens[image, place].tolist(), float(result.scores[image, place])
        met = count_met(tuple(tokens[:length]), constraints, machine.continues)
        assert tokens[length:] == [PAD] * (len(tokens) - length)
        assert (length == 0) == (score == float("-inf"))
        assert int(result.met[image, place]) == met
        if length:
            finished = tokens[length - 1] == EOS
            results.append(
                Hypothesis(min(met, machine.required), finished, score, tuple(tokens[:length]))
            )
    good = bool(results) and results[0].finished and results[0].level == machine.required
    assert bool(result.satisfied[image]) == good
    return results


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
def test_a_wide_beam_finds_the_best_of_all_captions(seed):
    outcomes = []
    for case in range(32):
        generator = np.random.default_rng([seed, case])
        vocabulary = int(generator.integers(5, 8))
        constraints = random_constraints(generator, vocabulary)
        continues = random_continues(generator, vocabulary)
        required = int(generator.integers(0, 4))
        machine = build_machine(constraints, required=required, continues=continues)
        options = {
            "max_length": int(generator.integers(1, 6 if vocabulary < 7 else 5)),
            "min_length": int(generator.integers(0, 2)),
            "length_penalty": float(generator.choice([0, 0, 0.7, 1])),
            "forbidden_ids": tuple(
                generator.choice(range(3, vocabulary), size=generator.choice([0, 0, 1]))
            ),
        }
        coarse = bool(generator.integers(2))
        table = random_table(100 * seed + case, images=1, vocabulary=vocabulary, coarse=coarse)
        stepper = TableStepper(table)
        result = search(stepper, [machine], beam_size=256, num_captions=3, **options)
        best = hypotheses(result, 0, constraints, machine)
        everything = all_captions(stepper, 0, constraints, machine, **options)
        assert [hypothesis.rank for hypothesis in best] == [
            hypothesis.rank for hypothesis in everything[:3]
        ]
        assert set(best) <= set(everything)
        assert len(set(best)) == len(best)
        outcomes.append((bool(result.satisfied[0]), machine.required))
    # The cases are of all kinds: satisfied, not satisfiable, and without constraints.
    assert {(True, 0), (True, 1), (True, 2)} < set(outcomes)
    assert not all(satisfied for satisfied, _ in outcomes)


options = st.fixed_dictionaries(
    {
        "beam_size": st.integers(1, 4),
        "max_length": st.integers(1, 6),
        "min_length": st.integers(0, 1),
        "length_penalty": st.sampled_from([0.0, 0.7, 1.0]),
        "per_node_beam": st.sampled_from([None, 1, 2]),
        "forbidden_ids": st.sampled_from([(), (), (4,)]),
    }
)


@given(
    seed=st.integers(0, 10**6),
    images=st.integers(1, 4),
    coarse=st.booleans(),
    by_size=st.booleans(),
    best=st.integers(1, 3),
    options=options,
)
@settings(max_examples=100)
def test_equals_the_naive_search(seed, images, coarse, by_size, best, options):
    generator = np.random.default_rng(seed)
    stepper = TableStepper(random_table(seed, images=images, vocabulary=7, coarse=coarse))
    constraints = [random_constraints(generator, 7) for _ in range(images)]
    continues = random_continues(generator, 7)
    machines = [
        build_machine(
            image_constraints, required=int(generator.integers(0, 4)), continues=continues
        )
        for image_constraints in constraints
    ]
    options["num_captions"] = min(best, options["beam_size"])
    result = search(stepper, machines, by_size=by_size, **options)
    for image, machine in enumerate(machines):
        results = hypotheses(result, image, constraints[image], machine)
        expected, _ = naive_search(stepper, image, constraints[image], machine, **options)
        assert results == expected


@given(
    seed=st.integers(0, 10**6),
    coarse=st.booleans(),
    no_repeat_ngram_size=st.integers(0, 2),
    options=options,
)
@settings(max_examples=40)
def test_without_constraints_it_is_beam_search(seed, coarse, no_repeat_ngram_size, options):
    stepper = TableStepper(random_table(seed, images=3, coarse=coarse))
    options["num_captions"] = min(2, options["beam_size"])
    options["no_repeat_ngram_size"] = no_repeat_ngram_size
    result = search(stepper, [build_machine([])] * 3, **options)
    rows = stepper.rows.copy()
    stepper.rows.clear()
    plain = run(BeamSearch, stepper, **options)
    assert torch.equal(result.tokens, plain.tokens)
    assert torch.equal(result.scores, plain.scores)
    assert torch.equal(result.lengths, plain.lengths)
    assert sum(rows) <= sum(stepper.rows)


@pytest.mark.parametrize("by_size", [True, False])
def test_a_batch_gives_what_each_image_gives_alone(by_size):
    table = random_table(11, images=8)
    generator = np.random.default_rng(2)
    machines = [build_machine(random_constraints(generator, 7)) for _ in range(8)]
    options = {"beam_size": 3, "max_length": 8, "num_captions": 2, "per_node_beam": 2}
    together = search(TableStepper(table), machines, by_size=by_size, **options)
    again = search(TableStepper(table), machines, by_size=by_size, **options)
    assert torch.equal(together.tokens, again.tokens)
    for image in range(8):
        alone = search(
            TableStepper(table[image : image + 1]), machines[image : image + 1], **options
        )
        length = alone.tokens.shape[2]
        assert torch.equal(together.tokens[image, :, :length], alone.tokens[0])
        assert (together.tokens[image, :, length:] == PAD).all()
        for name in ("scores", "lengths", "met", "satisfied"):
            assert torch.equal(getattr(together, name)[image], getattr(alone, name)[0])


def test_a_gpu_searches_groups_together_as_long_as_they_fit():
    sizes = [0, 3, 1, 0, 2, 3, 1, 0]
    machines = [build_machine([[(3 + number,)] for number in range(size)]) for size in sizes]

    def groups(device: str, beam_size: int = 4, by_size: bool | None = None) -> list[list[int]]:
        chosen = ConstrainedBeamSearch(
            settings=SearchSettings(beam_size=beam_size), by_size=by_size
        )
        return chosen._groups(machines, torch.device(device))

    each = [[0, 3, 7], [2, 6], [4], [1, 5]]
    assert groups("cpu") == groups("cuda", by_size=True) == each
    assert groups("cuda") == groups("cpu", by_size=False) == [list(range(8))]
    few = ROWS_AT_ONCE // 24  # 24 states: six images of machines of 4, not eight of 8
    assert groups("cuda", beam_size=few) == [[0, 2, 3, 4, 6, 7], [1, 5]]


def test_only_live_hypotheses_are_stepped():
    # Nothing ends, so nothing is dropped: each image has as many rows as the one with most.
    table = random_table(4, images=5)
    table[..., EOS] = float("-inf")
    stepper, generator = TableStepper(table), np.random.default_rng(8)
    constraints = [random_constraints(generator, 7) for _ in range(5)]
    machines = [build_machine(image_constraints) for image_constraints in constraints]
    options = {"beam_size": 3, "max_length": 7}
    search(stepper, machines, by_size=False, **options)
    counts = [
        naive_search(stepper, image, constraints[image], machines[image], **options)[1]
        for image in range(5)
    ]
    assert stepper.rows == [5 * max(live) for live in zip(*counts, strict=True)]
    together = sum(stepper.rows)
    stepper.rows.clear()
    search(stepper, machines, by_size=True, **options)
    assert sum(map(sum, counts)) <= sum(stepper.rows) < together


def test_states_cost_nothing_before_they_are_reached():
    table = random_table(1, images=1, vocabulary=40)
    table[..., EOS] = float("-inf")
    stepper = TableStepper(table)
    search(stepper, [build_machine([[(10,)], [(11,)], [(12,)]])], beam_size=5, max_length=4)
    # One word meets at most one constraint, so one hypothesis for each; two words meet two in
    # either order; only after the third word all eight states are full.
    assert stepper.rows == [1, 5 + 3 * 1, 5 + 3 * 5 + 3 * 2, 5 + 3 * 5 + 3 * 5 + 5]


def test_one_hypothesis_gives_each_state_so_many_continuations():
    table = random_table(1, images=1, vocabulary=7)
    table[..., EOS] = float("-inf")
    stepper = TableStepper(table)
    machines = [build_machine([[(3,), (4,), (5,)]])]
    search(stepper, machines, beam_size=8, max_length=3, per_node_beam=1)
    # One word is left that meets nothing. From the second word on, each of the four hypotheses
    # goes on once in its own state, and the one of the first state once more into the second.
    assert stepper.rows == [1, 1 + 3, 1 + (3 + 1)]


def test_images_leave_and_hopeless_hypotheses_are_dropped():
    # Ending costs almost nothing; the word 3 costs 1, all others 5.
    table = torch.full((2, 11, 6), -5.0)
    table[..., EOS], table[..., 3] = -0.01, -1.0
    stepper = TableStepper(table)
    machines = [build_machine([]), build_machine([[(3,)]])]
    result = search(stepper, machines, beam_size=2, max_length=9, by_size=False)
    assert result.tokens[:, 0].tolist() == [[EOS, PAD], [3, EOS]]
    # Image 0 leaves after its end; of image 1 word 3 stays and two words that lead nowhere.
    assert stepper.rows == [2, 3]


def test_an_improbable_word_is_said_if_it_is_asked_for():
    table = random_table(7, images=1)
    table[..., 6] -= 30
    machine = build_machine([[(6,)], [(3, 4)]])
    result = search(TableStepper(table), [machine], beam_size=2, max_length=6)
    assert bool(result.satisfied[0])
    assert 6 in result.tokens[0, 0]
    assert int(result.met[0, 0]) == 2


def test_what_cannot_be_met_is_said():
    table = random_table(7, images=3)
    machines = [
        build_machine([[(3,)], []]),
        build_machine([[(3, 4, 5)], [(6, 6, 6)]]),
        build_machine([[(3,)]]),
    ]
    result = search(TableStepper(table), machines, beam_size=3, max_length=4)
    assert result.satisfied.tolist() == [False, False, True]
    assert result.met[:, 0].tolist() == [1, 1, 1], "the best of those that meet most is given"
    assert (result.tokens[:, 0] == EOS).any(1).tolist() == [True, True, True]


def test_cut_off_hypotheses_do_not_satisfy():
    table = torch.full((1, 11, 6), -1.0)
    table[..., EOS] = float("-inf")
    result = search(TableStepper(table), [build_machine([[(4,)]])], beam_size=2, max_length=3)
    assert result.met.tolist() == [[1]]
    assert result.satisfied.tolist() == [False]


def test_forbidden_ids_are_said_only_if_forced():
    table = random_table(5, images=1)
    machines = [build_machine([[(4, 5)]])]
    options = {"beam_size": 4, "max_length": 6, "forbidden_ids": (4, 6)}
    result = search(TableStepper(table), machines, **options)
    assert not result.satisfied[0]
    assert not torch.isin(result.tokens, torch.tensor([4, 6])).any()
    result = search(TableStepper(table), machines, **options, forced_ids=(4,))
    assert bool(result.satisfied[0])
    assert 4 in result.tokens[0, 0]
    assert 6 not in result.tokens[0, 0]


def test_one_boundary_token_can_begin_end_and_pad():
    stepper = TableStepper(random_table(3, images=2))
    machines = [build_machine([[(4,)]]), build_machine([[(4, 5, 6, 4, 5)]])]
    result = search(stepper, machines, beam_size=40, boundary=1, max_length=5)
    assert result.satisfied.tolist() == [True, False]
    for row, length in zip(result.tokens[:, 0], result.lengths[:, 0], strict=True):
        assert 1 not in row[: length - 1]
        assert (row[length:] == 1).all()


def test_the_lookup_table_is_left_as_it_was():
    table = random_table(9)
    before = table.clone()
    search(TableStepper(table), [build_machine([[(3,)]])] * 3, beam_size=2, max_length=4)
    assert torch.equal(table, before)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam_size": 0}, "beam_size must be a whole number of at least 1: got 0"),
        ({"max_length": 0}, "max_length must be a whole number of at least 1: got 0"),
        ({"per_node_beam": 0}, "per_node_beam must be a whole number of at least 1: got 0"),
        ({"num_captions": 3}, "num_captions must be at most beam_size: got 3 > 2"),
        ({"num_captions": 0}, "num_captions must be a whole number of at least 1: got 0"),
        ({"min_length": 5}, r"min_length must be in \[0, max_length\]: got 5 for 4"),
        ({"length_penalty": -0.5}, "length_penalty must be at least 0: got -0.5"),
        ({"forbidden_ids": (EOS,)}, "forbidden_ids must not hold eos_id 1"),
        ({"machines": []}, "machines must be one for each image: got 0 for 3"),
        ({"machines": [build_machine([[(3, EOS)]])] * 3}, r"begin, end or padding.*: got \[1\]"),
        ({"machines": [build_machine([[(3, BOS)]])] * 3}, r"begin, end or padding.*: got \[0\]"),
        ({"machines": [build_machine([[(3, PAD)]])] * 3}, r"begin, end or padding.*: got \[2\]"),
        ({"machines": [build_machine([[(7,)]])] * 3}, "need token 7, but the model has 7 tokens"),
    ],
)
def test_arguments_out_of_range_are_refused(options, message):
    stepper = TableStepper(random_table(0))
    arguments = {"machines": [build_machine([])] * 3, "beam_size": 2, "max_length": 4, **options}
    with pytest.raises(ValueError, match=message):
        search(stepper, **arguments)


def test_nan_is_refused():
    table = random_table(0)
    table[1, :, 4] = float("nan")
    with pytest.raises(ValueError, match="the decoder returned NaN"):
        search(TableStepper(table), [build_machine([[(4,)]])] * 3, beam_size=2, max_length=4)


def test_no_possible_token_gives_no_hypothesis():
    table = random_table(0, images=2)
    table[1] = float("-inf")
    result = search(TableStepper(table), [build_machine([])] * 2, beam_size=2, max_length=4)
    assert result.lengths.tolist() == [[4], [0]]
    assert result.satisfied.tolist() == [False, False]


@pytest.mark.parametrize("by_size", [True, False])
def test_no_images_give_an_empty_result(by_size):
    stepper = TableStepper(random_table(0)[:0])
    result = search(stepper, [], beam_size=2, max_length=4, by_size=by_size)
    assert result.tokens.shape == (0, 1, 0)
    assert result.satisfied.shape == (0,)
