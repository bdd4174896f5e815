"""Greedy search."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from captioning.decoding.beam import BeamSearch
from captioning.decoding.greedy import GreedySearch
from tests.captioning.decoding.enumeration import rules
from tests.captioning.decoding.toy import BOS, EOS, PAD, TableStepper, random_table, run


def test_takes_the_best_allowed_token_and_sums_its_score():
    table = random_table(1, images=3)
    stepper = TableStepper(table)
    result = run(GreedySearch, stepper, max_length=5, forbidden_ids=(4,))
    for image in range(3):
        code, total, tokens = stepper.next_code(0, BOS), 0.0, []
        while len(tokens) < 5 and EOS not in tokens:
            values = table[image, code].clone()
            values[[BOS, PAD, 4]] = float("-inf")
            tokens.append(int(values.argmax()))
            total += float(values.max())
            code = stepper.next_code(code, tokens[-1])
        assert result.tokens[image, 0, : len(tokens)].tolist() == tokens
        assert result.lengths[image, 0] == len(tokens)
        assert float(result.scores[image, 0]) == pytest.approx(total, abs=1e-5)


def test_finished_images_leave_the_batch():
    table = torch.full((3, 5, 5), -3.0)
    table[:2, :, EOS] = -0.01
    table[2, :, EOS] = -30.0
    stepper = TableStepper(table)
    result = run(GreedySearch, stepper, max_length=4)
    assert stepper.rows == [3, 1, 1, 1]
    assert result.lengths[:, 0].tolist() == [1, 1, 4]


def test_fewest_tokens_are_kept():
    table = torch.full((1, 5, 5), -3.0)
    table[:, :, EOS] = -0.01
    stepper = TableStepper(table)
    result = run(GreedySearch, stepper, max_length=6, min_length=3)
    assert result.tokens[0, 0].tolist() == [3, 3, EOS]


def test_a_full_stop_ends_a_caption_and_stays_in_it():
    table = torch.full((2, 5, 6), -3.0)
    table[0, :, 5], table[1, :, EOS] = -0.01, -0.01
    stepper = TableStepper(table)
    options = {"max_length": 6, "min_length": 2, "end_ids": (5,)}
    result = run(GreedySearch, stepper, **options)
    assert result.tokens[:, 0].tolist() == [[3, 5], [3, EOS]]


def test_no_bigram_is_said_twice():
    # Always the lowest word that is left: "3 3", then "3 4" and so on.
    table = torch.full((1, 5, 6), -30.0)
    table[..., 3], table[..., 4], table[..., 5] = -1.0, -2.0, -3.0
    stepper = TableStepper(table)
    result = run(GreedySearch, stepper, max_length=7, no_repeat_ngram_size=2)
    assert result.tokens[0, 0].tolist() == [3, 3, 4, 3, 5, 3, EOS]


@pytest.mark.long
@given(seed=st.integers(0, 10**6), coarse=st.booleans(), restrictions=rules)
@settings(max_examples=100)
def test_equals_beam_one_under_all_rules(seed, coarse, restrictions):
    stepper = TableStepper(random_table(seed, images=4, coarse=coarse))
    greedy = run(GreedySearch, stepper, max_length=6, **restrictions)
    beam = run(BeamSearch, stepper, beam_size=1, max_length=6, **restrictions)
    for name in ("tokens", "scores", "lengths"):
        assert torch.equal(getattr(greedy, name), getattr(beam, name)), name


@pytest.mark.parametrize("lengths", [(0, 0), (3, 4), (3, -1)])
def test_lengths_out_of_range_are_refused(lengths):
    stepper = TableStepper(random_table(0))
    with pytest.raises(ValueError, match="(max|min)_length must be"):
        run(GreedySearch, stepper, max_length=lengths[0], min_length=lengths[1])
