"""ViECap's beam search against the same in lists, for one image at a time."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from captioning.decoding.beam import BeamSearch
from captioning.decoding.beam_averaged import AveragedBeamSearch
from tests.captioning.decoding.plain_beams import averaged_search
from tests.captioning.decoding.toy import BOS, EOS, TableStepper, random_table, run

STOP = 5


@given(seed=st.integers(0, 10**6), beams=st.integers(1, 4), max_length=st.integers(1, 9))
@settings(max_examples=60)
def test_it_finds_what_a_plain_search_finds(seed, beams, max_length):
    stepper = TableStepper(random_table(seed, vocabulary=9))
    lengths = {"max_length": max_length, "beam_size": beams, "num_captions": min(2, beams)}
    options = {"end_ids": (STOP,), "special_tokens": True, **lengths}
    result = run(AveragedBeamSearch, stepper, **options)
    for image in range(3):
        expected = averaged_search(
            lambda tokens, image=image: stepper.after(image, (BOS, *tokens)),
            ends=(EOS, STOP),
            beams=beams,
            max_length=max_length,
        )[: min(2, beams)]
        rows = zip(result.tokens[image], result.lengths[image], strict=True)
        assert [tuple(row[:length].tolist()) for row, length in rows] == [t for _, t in expected]
        assert result.scores[image].tolist() == pytest.approx([m for m, _ in expected], rel=1e-5)


def test_its_captions_are_not_those_of_sums():
    stepper = TableStepper(random_table(1, images=50, vocabulary=9))
    averaged = run(AveragedBeamSearch, stepper, max_length=8, beam_size=3)
    by_sum = run(BeamSearch, stepper, max_length=8, beam_size=3, length_penalty=1.0)
    assert (averaged.lengths != by_sum.lengths).any()
    assert averaged.lengths.float().mean() != by_sum.lengths.float().mean()


def test_images_without_enough_tokens_have_fewer_captions():
    table = torch.full((2, 11, 4), -torch.inf)
    table[:, :, EOS] = -0.5
    options = {"max_length": 3, "beam_size": 2, "num_captions": 2}
    result = run(AveragedBeamSearch, TableStepper(table), **options)
    assert result.lengths.tolist() == [[1, 0]] * 2
    assert result.scores.tolist() == [[-0.5, -torch.inf]] * 2
