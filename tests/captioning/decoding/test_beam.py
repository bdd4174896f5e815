"""Beam search against a naive reference, exhaustive enumeration, and its own promises."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from captioning.decoding.beam import BeamSearch
from captioning.decoding.greedy import GreedySearch
from captioning.decoding.state import SearchResult
from tests.captioning.decoding.enumeration import every_caption, rules
from tests.captioning.decoding.toy import (
    BOS,
    EOS,
    PAD,
    Hypothesis,
    TableStepper,
    naive_beam_search,
    random_table,
    run,
)


def search(stepper: TableStepper, **options: object) -> SearchResult:
    return run(BeamSearch, stepper, **options)


def hypotheses(result: SearchResult, image: int) -> list[Hypothesis]:
    """The existing hypotheses of an image, with the padding checked and taken off."""
    results = []
    for tokens, score, length in zip(
        result.tokens[image], result.scores[image], result.lengths[image], strict=True
    ):
        assert (tokens[length:] == PAD).all()
        assert (length == 0) == (score == float("-inf"))
        if length:
            results.append((float(score), tuple(tokens[:length].tolist())))
    return results


options = st.fixed_dictionaries(
    {
        "beam_size": st.integers(1, 4),
        "max_length": st.integers(1, 6),
        "min_length": st.integers(0, 1),
        "length_penalty": st.sampled_from([0.0, 0.7, 1.0]),
        "per_node_beam": st.sampled_from([None, 1, 2]),
        "forbidden_ids": st.sampled_from([(), (3,), (4, 6)]),
    }
)


@pytest.mark.long
@given(
    seed=st.integers(0, 10**6),
    images=st.integers(1, 4),
    vocabulary=st.integers(3, 9),
    coarse=st.booleans(),
    longer=st.integers(0, 3),
    best=st.integers(1, 4),
    options=options,
)
@settings(max_examples=150)
def test_equals_the_naive_search(seed, images, vocabulary, coarse, longer, best, options):
    table = random_table(seed, images=images, vocabulary=vocabulary, coarse=coarse)
    stepper = TableStepper(table)
    options["min_length"] = min(options["min_length"] + longer, options["max_length"])
    options["num_captions"] = min(best, options["beam_size"])
    result = search(stepper, **options)
    for image in range(images):
        assert hypotheses(result, image) == naive_beam_search(stepper, image, **options)


@pytest.mark.parametrize("length_penalty", [0.0, 1.0])
def test_a_wide_beam_finds_the_best_of_all_captions(length_penalty):
    stepper = TableStepper(random_table(5, images=2, vocabulary=6))
    result = search(
        stepper, beam_size=4**4, max_length=4, length_penalty=length_penalty, num_captions=3
    )
    for image in range(2):
        scored = []
        for words in range(4):
            for caption in itertools.product([3, 4, 5], repeat=words):
                tokens = (*caption, EOS)
                total, code = 0.0, stepper.next_code(0, BOS)
                for token in tokens:
                    total += float(stepper.table[image, code, token])
                    code = stepper.next_code(code, token)
                scored.append((total / len(tokens) ** length_penalty, tokens))
        scored.sort(reverse=True)
        best = hypotheses(result, image)
        assert [tokens for _, tokens in best] == [tokens for _, tokens in scored[:3]]
        assert [s for s, _ in best] == pytest.approx([s for s, _ in scored[:3]], abs=1e-5)


@pytest.mark.long
@given(
    seed=st.integers(0, 10**6),
    restrictions=rules,
    normalisation=st.sampled_from(["none", "power", "gnmt"]),
    length_penalty=st.sampled_from([0.0, 0.7, 1.0, 2.5]),
    num_captions=st.integers(1, 5),
)
@settings(max_examples=80)
def test_a_wide_beam_is_exact_under_all_rules(
    seed, restrictions, normalisation, length_penalty, num_captions
):
    if normalisation == "none":
        length_penalty = 0.0
    stepper = TableStepper(random_table(seed, images=1))
    result = search(
        stepper,
        # All that can be said with 4 words and 4 tokens fits into the beam.
        beam_size=4**3 * 5,
        max_length=4,
        normalisation=normalisation,
        length_penalty=length_penalty,
        num_captions=num_captions,
        **restrictions,
    )
    scored = {}
    for caption in every_caption(stepper, 0, max_length=4, **restrictions):
        length = len(caption.tokens)
        base = (5 + length) / 6 if normalisation == "gnmt" else length
        scored[caption.tokens] = (caption.finished, caption.total / base**length_penalty)
    best = hypotheses(result, 0)
    expected = sorted(scored.values(), reverse=True)[:num_captions]
    assert [s for s, _ in best] == pytest.approx([s for _, s in expected], abs=1e-5)
    assert len({tokens for _, tokens in best}) == len(best)
    for (score, tokens), (finished, _) in zip(best, expected, strict=True):
        assert scored[tokens] == (finished, pytest.approx(score, abs=1e-5))


@pytest.mark.parametrize("normalisation", ["power", "gnmt"])
@pytest.mark.parametrize("length_penalty", [0.7, 1.5, 4.0])
def test_an_image_leaves_only_when_nothing_better_can_come(normalisation, length_penalty):
    stepper = TableStepper(random_table(8, images=60, vocabulary=6))
    options = {"beam_size": 4**3, "max_length": 4, "length_penalty": length_penalty}
    options["normalisation"] = normalisation
    result, hasty = search(stepper, **options), search(stepper, exact=False, **options)
    best = []
    for image in range(60):
        scores = []
        for caption in every_caption(stepper, image, max_length=4):
            length = len(caption.tokens)
            base = (5 + length) / 6 if normalisation == "gnmt" else length
            scores.append((caption.finished, caption.total / base**length_penalty))
        best.append(max(scores)[1])
    assert result.scores[:, 0].tolist() == pytest.approx(best, abs=1e-5)
    if length_penalty > 1:
        assert (hasty.scores < result.scores - 1e-3).any(), "else the test sees nothing"


@pytest.mark.long
@given(seed=st.integers(0, 10**6), coarse=st.booleans(), min_length=st.integers(0, 4))
@settings(max_examples=100)
def test_beam_one_is_greedy(seed, coarse, min_length):
    stepper = TableStepper(random_table(seed, images=4, coarse=coarse))
    lengths = {"max_length": 6, "min_length": min_length}
    beam = search(stepper, beam_size=1, **lengths)
    greedy = run(GreedySearch, stepper, **lengths)
    for image in range(4):
        assert hypotheses(greedy, image) == hypotheses(beam, image)


def test_a_batch_gives_what_each_image_gives_alone():
    table = random_table(11, images=20)
    together = search(TableStepper(table), beam_size=3, max_length=8, num_captions=2)
    for image in range(20):
        alone = search(
            TableStepper(table[image : image + 1]), beam_size=3, max_length=8, num_captions=2
        )
        assert hypotheses(alone, 0) == hypotheses(together, image)


def test_finished_images_leave_the_batch():
    # Image 0 ends at once, image 1 never does.
    table = torch.full((2, 5, 5), -3.0)
    table[0, :, EOS] = -0.01
    table[1, :, EOS] = -30.0
    stepper = TableStepper(table)
    result = search(stepper, beam_size=2, max_length=6)
    assert stepper.rows == [2, 2, 2, 2, 2, 2], "image 1 alone, with both beams, after step 1"
    assert result.tokens[0, 0].tolist() == [EOS, PAD, PAD, PAD, PAD, PAD]
    assert result.lengths.tolist() == [[1], [6]]


def test_giving_up_early_saves_steps_and_may_miss_the_best():
    # Ending at once costs 1 a token; going on for four tokens .5 a token, but at first 1.5.
    table = torch.full((1, 23, 4), -20.0)
    stepper = TableStepper(table)
    code = stepper.next_code(0, BOS)
    table[0, code, EOS], table[0, code, 3] = -1.0, -1.5
    for value in (-0.2, -0.2):
        code = stepper.next_code(code, 3)
        table[0, code, 3] = value
    table[0, stepper.next_code(code, 3), EOS] = -0.1
    options = {"beam_size": 2, "max_length": 6, "length_penalty": 1.0}
    assert hypotheses(search(stepper, **options), 0) == [(pytest.approx(-0.5), (3, 3, 3, EOS))]
    stepper.rows.clear()
    assert hypotheses(search(stepper, **options, exact=False), 0) == [(-1.0, (EOS,))]
    assert stepper.rows == [1]


def test_search_ends_when_all_images_have_ended():
    table = torch.full((3, 5, 5), -3.0)
    table[:, :, EOS] = -0.01
    stepper = TableStepper(table)
    search(stepper, beam_size=2, max_length=50)
    assert stepper.rows == [3]


def test_equal_scores_go_to_the_lower_token():
    table = torch.full((1, 3, 40), -1.0)
    table[..., EOS] = -5.0
    result = search(TableStepper(table), beam_size=3, max_length=2, num_captions=3)
    assert result.tokens[0].tolist() == [[3, 3], [3, 4], [3, 5]]


def test_cut_off_hypotheses_come_after_finished_ones():
    table = torch.full((1, 3, 5), -1.0)
    table[..., EOS] = -1.5
    result = search(TableStepper(table), beam_size=3, max_length=1, num_captions=3)
    assert result.tokens[0].tolist() == [[EOS], [3], [4]]
    assert result.scores[0].tolist() == [-1.5, -1.0, -1.0]


def test_one_boundary_token_can_begin_end_and_pad():
    table = random_table(3, images=2)
    stepper = TableStepper(table)
    result = search(stepper, beam_size=3, boundary=1, max_length=5)
    for row, length in zip(result.tokens[:, 0], result.lengths[:, 0], strict=True):
        assert 1 not in row[: length - 1]
        assert (row[length:] == 1).all()


def test_the_lookup_table_is_left_as_it_was():
    table = random_table(9)
    before = table.clone()
    search(TableStepper(table), beam_size=2, max_length=4, forbidden_ids=(3,), min_length=3)
    assert torch.equal(table, before)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam_size": 0}, "beam_size must be a whole number of at least 1: got 0"),
        ({"max_length": 0}, "max_length must be a whole number of at least 1: got 0"),
        ({"per_node_beam": 0}, "per_node_beam must be a whole number of at least 1: got 0"),
        ({"num_captions": 3}, "num_captions must be at most beam_size: got 3 > 2"),
        ({"min_length": 5}, r"min_length must be in \[0, max_length\]: got 5 for 4"),
        ({"length_penalty": -0.5}, "length_penalty must be at least 0: got -0.5"),
        ({"length_penalty": float("nan")}, "length_penalty must be at least 0: got nan"),
        ({"forbidden_ids": (EOS,)}, "forbidden_ids must not hold eos_id 1"),
        ({"normalisation": "mean"}, "normalisation must be one of"),
    ],
)
def test_arguments_out_of_range_are_refused(options, message):
    stepper = TableStepper(random_table(0))
    with pytest.raises(ValueError, match=message):
        search(stepper, **{"beam_size": 2, "max_length": 4, **options})


def test_nan_is_refused():
    table = random_table(0)
    table[1, :, 4] = float("nan")
    with pytest.raises(ValueError, match="the decoder returned NaN"):
        search(TableStepper(table), beam_size=2, max_length=4)


def test_no_possible_token_gives_no_hypothesis():
    table = random_table(0, images=2)
    table[1] = float("-inf")
    result = search(TableStepper(table), beam_size=2, max_length=4, num_captions=2)
    assert len(hypotheses(result, 0)) == 2
    assert hypotheses(result, 1) == []


@pytest.mark.parametrize("vocabulary", [7, 3000])
def test_no_images_give_an_empty_result(vocabulary):
    table = random_table(0, vocabulary=vocabulary)[:0]
    result = search(TableStepper(table), beam_size=2, max_length=4)
    assert result.tokens.shape == (0, 1, 0)
