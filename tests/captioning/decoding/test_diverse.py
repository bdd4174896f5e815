"""Diverse beam search against a slow search in plain lists, and its own promises."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from captioning.decoding.beam import BeamSearch
from captioning.decoding.diverse import DiverseBeamSearch
from captioning.decoding.state import SearchResult
from tests.captioning.decoding.enumeration import allowed, rules
from tests.captioning.decoding.toy import (
    BOS,
    EOS,
    PAD,
    Hypothesis,
    TableStepper,
    random_table,
    run,
)


def search(stepper: TableStepper, **options: object) -> SearchResult:
    return run(DiverseBeamSearch, stepper, **options)


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


Live = tuple[np.float32, tuple[int, ...], int]


def ranked_continuations(
    stepper: TableStepper,
    image: int,
    live: list[Live],
    lost: dict[int, np.float32],
    per_node_beam: int | None,
    restrictions: dict,
) -> list[Live]:
    """All continuations of one group's hypotheses, best first, with their plain sums."""
    ranked = []
    for place, (score, tokens, code) in enumerate(live):
        row = [
            (-np.float32(value - lost.get(token, np.float32(0))), token, value)
            for token, value in enumerate(stepper.table[image, code].numpy())
            if value > -np.inf and allowed(tokens, token, **restrictions)
        ]
        row.sort()
        if per_node_beam is not None and tokens:
            row = row[:per_node_beam]
        for loss, token, value in row:
            key = (-np.float32(score - loss), place, loss, token)
            longer, code_after = (*tokens, token), stepper.next_code(code, token)
            ranked.append((key, (np.float32(score + value), longer, code_after)))
    return [item for _, item in sorted(ranked, key=lambda pair: pair[0])]


def naive_diverse_search(
    stepper: TableStepper,
    image: int,
    *,
    beam_size: int,
    num_groups: int,
    diversity: float,
    max_length: int,
    length_penalty: float,
    per_node_beam: int | None,
    num_captions: int,
    **restrictions: object,
) -> list[Hypothesis]:
    """What `DiverseBeamSearch` promises for one image: lists, all steps, no early end."""
    size = beam_size // num_groups
    ends = (EOS, *restrictions["end_ids"])
    groups = [[(np.float32(0), (), stepper.next_code(0, BOS))] for _ in range(num_groups)]
    pools: list[list[Hypothesis]] = [[] for _ in range(num_groups)]
    for length in range(1, max_length + 1):
        token_counts: Counter[int] = Counter()
        for number, live in enumerate(groups):
            lost = {token: np.float32(diversity * count) for token, count in token_counts.items()}
            ranked = ranked_continuations(stepper, image, live, lost, per_node_beam, restrictions)
            for total, tokens, _ in ranked[:size]:
                if tokens[-1] in ends:
                    pools[number].append((normalised(total, length, length_penalty), tokens))
            groups[number] = [item for item in ranked if item[1][-1] not in ends][:size]
            token_counts.update(tokens[-1] for _, tokens, _ in groups[number])
    offered = []
    for pool, live in zip(pools, groups, strict=True):
        pool.sort(key=lambda item: -item[0])
        cut_off = [(normalised(s, max_length, length_penalty), tokens) for s, tokens, _ in live]
        cut_off.sort(key=lambda item: -item[0])
        offered += (pool + cut_off)[: min(num_captions, size)]
    scores: dict[tuple[int, ...], float] = {}
    for score, tokens in offered:
        scores.setdefault(tokens, score)
    once = [(score, tokens) for tokens, score in scores.items()]
    once.sort(key=lambda item: (item[1][-1] not in ends, -item[0]))
    return once[:num_captions]


def normalised(total: np.float32, length: int, penalty: float) -> float:
    return float(torch.tensor(total) / length**penalty)


@pytest.mark.long
@given(
    seed=st.integers(0, 10**6),
    images=st.integers(1, 3),
    coarse=st.booleans(),
    groups=st.integers(1, 3),
    size=st.integers(1, 3),
    best=st.integers(1, 9),
    diversity=st.sampled_from([0.0, 0.5, 2.0, 64.0]),
    length_penalty=st.sampled_from([0.0, 0.7, 1.0]),
    per_node_beam=st.sampled_from([None, 1, 2]),
    restrictions=rules,
)
@settings(max_examples=120)
def test_equals_the_naive_search(
    seed, images, coarse, groups, size, best, diversity, length_penalty, per_node_beam, restrictions
):
    stepper = TableStepper(random_table(seed, images=images, coarse=coarse))
    options = {
        "beam_size": groups * size,
        "num_groups": groups,
        "diversity": diversity,
        "max_length": 5,
        "length_penalty": length_penalty,
        "per_node_beam": per_node_beam,
        "num_captions": min(best, groups * size),
        **restrictions,
    }
    result = search(stepper, **options)
    for image in range(images):
        assert hypotheses(result, image) == naive_diverse_search(stepper, image, **options)


@given(
    seed=st.integers(0, 10**6),
    coarse=st.booleans(),
    exact=st.booleans(),
    normalisation=st.sampled_from(["power", "gnmt"]),
    restrictions=rules,
)
@settings(max_examples=60)
def test_one_group_is_beam_search(seed, coarse, exact, normalisation, restrictions):
    options = {
        "beam_size": 3,
        "num_captions": 2,
        "max_length": 6,
        "length_penalty": 0.7,
        **restrictions,
    }
    options |= {"exact": exact, "normalisation": normalisation}
    stepper = TableStepper(random_table(seed, images=4, coarse=coarse))
    other = TableStepper(stepper.table)
    diverse = search(stepper, num_groups=1, diversity=0.5, **options)
    beam = run(BeamSearch, other, **options)
    assert stepper.rows == other.rows
    for name in ("tokens", "scores", "lengths"):
        assert torch.equal(getattr(diverse, name), getattr(beam, name)), name


def test_groups_that_may_not_repeat_say_different_words():
    # 3 is best, then 4, then 5; each goes on with itself.
    table = torch.full((1, 1, 6), -9.0)
    table[0, 0, 3:], table[0, 0, EOS] = torch.tensor([-1.0, -1.5, -2.0]), -3.0
    options = {"beam_size": 3, "num_groups": 3, "num_captions": 3, "max_length": 3}
    stepper = TableStepper(table)
    strong = search(stepper, diversity=4.0, **options)
    assert strong.tokens[0].tolist() == [[3, 3, 3], [4, 4, 4], [5, 5, 5]]
    assert strong.scores[0].tolist() == [-3.0, -4.5, -6.0], "the model's own sums"
    weak = search(stepper, diversity=0.25, **options)
    assert weak.lengths[0].tolist() == [3, 0, 0], "what all groups found counts once"


def test_every_group_may_offer_its_own():
    table = random_table(2, images=5, vocabulary=12)
    options = {"beam_size": 6, "num_groups": 3, "num_captions": 6, "max_length": 5}
    undiversified = search(TableStepper(table), diversity=0.0, **options)
    differ = search(TableStepper(table), diversity=3.0, **options)
    assert (undiversified.lengths > 0).sum(1).tolist() == [2] * 5
    assert ((differ.lengths > 0).sum(1) >= 5).all()


def test_a_batch_gives_what_each_image_gives_alone():
    table = random_table(11, images=12)
    options = {
        "beam_size": 4,
        "num_groups": 2,
        "diversity": 0.5,
        "max_length": 8,
        "num_captions": 3,
    }
    together = search(TableStepper(table), **options)
    for image in range(12):
        alone = search(TableStepper(table[image : image + 1]), **options)
        assert hypotheses(alone, 0) == hypotheses(together, image)


def test_finished_images_leave_the_batch():
    table = torch.full((2, 5, 5), -3.0)
    table[0, :, EOS], table[1, :, EOS] = -0.01, -30.0
    stepper = TableStepper(table)
    search(stepper, beam_size=4, num_groups=2, diversity=0.5, max_length=5)
    assert stepper.rows == [2, 4, 4, 4, 4], "image 1 alone, with all groups, after step 1"


def test_of_what_several_groups_find_the_first_counts():
    # Three groups of one: the first says 3, the second 4, the third 3 again; all as probable.
    table = torch.full((1, 11, 7), -9.0)
    table[0, :, EOS] = -0.1
    table[0, TableStepper(table).next_code(0, BOS)] = torch.tensor([-9, -9, -9, -1, -1, -9, -9.0])
    options = {
        "beam_size": 3,
        "num_groups": 3,
        "diversity": 0.5,
        "max_length": 3,
        "num_captions": 3,
    }
    result = search(TableStepper(table), **options)
    assert [tokens for _, tokens in hypotheses(result, 0)] == [(3, EOS), (4, EOS)]
    assert result.scores[0, 0] == result.scores[0, 1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_groups": 0}, "num_groups must be a whole number of at least 1: got 0"),
        ({"num_groups": 3}, "beam_size must be a multiple of num_groups: got 4 for 3"),
        ({"beam_size": 0}, "beam_size must be a whole number of at least 1: got 0"),
        ({"diversity": -0.1}, "diversity must be at least 0 and finite: got -0.1"),
        ({"diversity": float("nan")}, "diversity must be at least 0 and finite: got nan"),
        ({"num_captions": 5}, "num_captions must be at most beam_size: got 5 > 4"),
    ],
)
def test_arguments_out_of_range_are_refused(options, message):
    defaults = {"beam_size": 4, "num_groups": 2, "diversity": 0.5, "max_length": 4}
    with pytest.raises(ValueError, match=message):
        search(TableStepper(random_table(0)), **{**defaults, **options})
