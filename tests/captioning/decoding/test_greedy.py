"""Greedy search."""

from __future__ import annotations

import pytest
import torch

from captioning.decoding.greedy import greedy
from tests.captioning.decoding.toy import BOS, EOS, PAD, TableStepper, random_table

IDS = {"bos_id": BOS, "eos_id": EOS, "pad_id": PAD}


def test_takes_the_best_allowed_token_and_sums_its_score():
    table = random_table(1, images=3)
    stepper = TableStepper(table)
    result = greedy(stepper, stepper.start(), num_images=3, max_length=5, **IDS, forbidden_ids=(4,))
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
    result = greedy(stepper, stepper.start(), num_images=3, max_length=4, **IDS)
    assert stepper.rows == [3, 1, 1, 1]
    assert result.lengths[:, 0].tolist() == [1, 1, 4]


def test_fewest_tokens_are_kept():
    table = torch.full((1, 5, 5), -3.0)
    table[:, :, EOS] = -0.01
    stepper = TableStepper(table)
    result = greedy(stepper, stepper.start(), num_images=1, max_length=6, min_length=3, **IDS)
    assert result.tokens[0, 0].tolist() == [3, 3, EOS]


@pytest.mark.parametrize("lengths", [(0, 0), (3, 4), (3, -1)])
def test_lengths_out_of_range_are_refused(lengths):
    stepper = TableStepper(random_table(0))
    with pytest.raises(ValueError, match="0 <= min_length <= max_length"):
        greedy(
            stepper,
            stepper.start(),
            num_images=3,
            max_length=lengths[0],
            min_length=lengths[1],
            **IDS,
        )
