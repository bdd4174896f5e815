"""Sampling: frequencies against exact chances, support, and what its randomness depends on."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from captioning.decoding import sampling
from captioning.decoding.greedy import GreedySearch
from captioning.decoding.sampling import Sampling, Truncation
from captioning.decoding.state import SearchResult
from tests.captioning.decoding.enumeration import every_caption, rules
from tests.captioning.decoding.toy import EOS, PAD, TableStepper, random_table, run

NUM_SAMPLES = 8000


def draw(stepper: TableStepper, **options: object) -> SearchResult:
    return run(Sampling, stepper, **{"max_length": 3, **options})


def shares(
    log_probs: dict[int, float],
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
) -> dict[int, float]:
    """The chance of each allowed token, in plain floats, from the definitions."""
    order = sorted(log_probs, key=lambda token: (-log_probs[token], token))[:top_k]
    weights = {token: math.exp(log_probs[token] / temperature) for token in order}
    total, nucleus, mass = sum(weights.values()), {}, 0.0
    for token in order:
        if top_p is not None and mass >= top_p:
            break
        nucleus[token] = weights[token] / total
        mass += nucleus[token]
    return {token: nucleus.get(token, 0.0) / mass for token in log_probs}


@pytest.mark.parametrize(
    ("truncation", "restrictions"),
    [
        ({}, {}),
        ({"temperature": 0.5}, {}),
        ({"temperature": 2.0}, {"min_length": 2}),
        ({"top_k": 2}, {"forbidden_ids": (4,)}),
        ({"top_p": 0.7}, {}),
        ({"top_p": 0.4, "temperature": 1.5}, {"end_ids": (5,)}),
        ({"top_k": 3, "top_p": 0.8, "temperature": 1.3}, {"no_repeat_ngram_size": 1}),
        ({}, {"min_length": 2, "end_ids": (5,), "no_repeat_ngram_size": 2, "forbidden_ids": (6,)}),
    ],
)
def test_captions_are_as_frequent_as_they_are_probable(truncation, restrictions):
    # Flat enough that even a small nucleus leaves a choice.
    stepper = TableStepper((0.4 * random_table(3, images=2)).log_softmax(-1))
    result = draw(stepper, num_captions=NUM_SAMPLES, seed=1, **truncation, **restrictions)
    for image in range(2):
        exact = {
            caption.tokens: caption
            for caption in every_caption(
                stepper,
                image,
                max_length=3,
                shares=lambda p: shares(p, **truncation),
                **restrictions,
            )
        }
        assert sum(caption.chance for caption in exact.values()) == pytest.approx(1)
        lengths = result.lengths[image].tolist()
        drawn = [
            tuple(tokens[:length])
            for tokens, length in zip(result.tokens[image].tolist(), lengths, strict=True)
        ]
        assert all(exact[tokens].chance > 0 for tokens in {*drawn}), "only what may be drawn"
        totals = [exact[tokens].total for tokens in drawn[:50]]
        assert result.scores[image, :50].tolist() == pytest.approx(totals, abs=1e-5)
        possible = {key: item.chance for key, item in exact.items() if item.chance > 0}
        check_frequencies(Counter(drawn), possible)


def check_frequencies(drawn: Counter, chances: dict[tuple[int, ...], float]) -> None:
    """Pearson's statistic, rare captions put together, within five deviations of its mean."""
    cells: dict[tuple[int, ...], list[float]] = {}
    for tokens, chance in chances.items():
        expected = chance * NUM_SAMPLES
        assert drawn[tokens] > 0 or expected < 20, f"{tokens} is never drawn"
        cell = cells.setdefault(tokens if expected >= 5 else (), [0.0, 0.0])
        cell[0] += drawn[tokens]
        cell[1] += expected
    free = len(cells) - 1
    assert free > 1, "else nothing is compared"
    statistic = sum((observed - expected) ** 2 / expected for observed, expected in cells.values())
    assert statistic < free + 5 * math.sqrt(2 * free)


@given(
    seed=st.integers(0, 10**6),
    vocabulary=st.sampled_from([5, 300, 700]),
    levels=st.sampled_from([3, 10**6]),
    spread=st.sampled_from([0.1, 3.0]),
    top_k=st.sampled_from([None, 1, 7, 400]),
    top_p=st.sampled_from([None, 0.05, 0.5, 0.93, 1.0]),
    temperature=st.sampled_from([0.3, 1.0, 2.0]),
)
@settings(max_examples=60)
def test_weights_are_in_proportion_to_the_chances(
    seed, vocabulary, levels, spread, top_k, top_p, temperature
):
    generator = np.random.default_rng(seed)
    # Three levels make most tokens equally probable, and the nucleus end among them.
    values = spread * generator.integers(levels, size=(2, vocabulary)) / levels
    log_probs = torch.tensor(values, dtype=torch.float32).log_softmax(1)
    cut = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    weights = Truncation(**cut).weights(log_probs, torch.tensor([1, 3]))
    for row in range(2):
        allowed = {t: float(log_probs[row, t]) for t in range(vocabulary) if t not in (1, 3)}
        chances = shares(allowed, **{**cut, "top_p": None if top_p == 1 else top_p})
        expected = np.array([chances.get(token, 0.0) for token in range(vocabulary)])
        proportions = (weights[row] / weights[row].sum()).numpy()
        # A token may lie on either side of the nucleus' edge where rounding decides.
        differing = np.flatnonzero((proportions > 0) != (expected > 0))
        assert len(differing) <= 1
        if not len(differing):
            np.testing.assert_allclose(proportions, expected, rtol=1e-5)


@pytest.mark.long
@given(seed=st.integers(0, 10**6), coarse=st.booleans(), restrictions=rules)
@settings(max_examples=60)
@pytest.mark.parametrize("cut", [{"top_k": 1}, {"top_p": 1e-9}, {"temperature": 1e-9}])
def test_the_sharpest_sampling_is_greedy(cut, seed, coarse, restrictions):
    # Equally probable tokens stay equally probable at any temperature.
    coarse = coarse and "temperature" not in cut
    stepper = TableStepper(random_table(seed, images=3, coarse=coarse))
    sampled = draw(stepper, max_length=4, **restrictions, **cut)
    best = run(GreedySearch, stepper, max_length=4, **restrictions)
    for name in ("tokens", "scores", "lengths"):
        assert torch.equal(getattr(sampled, name), getattr(best, name)), name


def is_same(
    result: SearchResult, image: int, other: SearchResult, place: int, samples: int
) -> bool:
    width = min(result.tokens.shape[2], other.tokens.shape[2])
    tokens, other_tokens = result.tokens[image, :samples], other.tokens[place, :samples]
    return bool(
        torch.equal(tokens[:, :width], other_tokens[:, :width])
        and (tokens[:, width:] == PAD).all()
        and (other_tokens[:, width:] == PAD).all()
        and torch.equal(result.scores[image, :samples], other.scores[place, :samples])
        and torch.equal(result.lengths[image, :samples], other.lengths[place, :samples])
    )


@pytest.mark.parametrize("keys", [range(100, 112), [f"photo {n}" for n in range(12)], None])
def test_a_batch_gives_what_each_image_gives_alone(keys):
    table = random_table(11, images=12)
    options = {"num_captions": 4, "top_p": 0.9, "max_length": 8, "seed": 5}
    together = draw(TableStepper(table), image_ids=keys, **options)
    for image in range(12):
        key = [image] if keys is None else [keys[image]]
        alone = draw(TableStepper(table[image : image + 1]), image_ids=key, **options)
        assert is_same(alone, 0, together, image, 4)
    backwards = (range(12) if keys is None else keys)[::-1]
    turned = draw(TableStepper(table.flip(0)), image_ids=backwards, **options)
    assert all(is_same(turned, image, together, 11 - image, 4) for image in range(12))


def test_more_samples_begin_with_the_same_ones():
    stepper = TableStepper(random_table(1))
    few, many = (draw(stepper, num_captions=number, max_length=6) for number in (3, 7))
    assert all(is_same(few, image, many, image, 3) for image in range(3))


def test_seeds_and_keys_choose_the_samples():
    stepper = TableStepper(random_table(1, images=1))
    options = {"num_captions": 30, "max_length": 6}
    first = draw(stepper, seed=4, **options)
    assert is_same(first, 0, draw(stepper, seed=4, **options), 0, 30)
    for other in ({"seed": 5}, {"seed": 4, "image_ids": [1]}, {"seed": 4, "image_ids": ["1"]}):
        assert not is_same(first, 0, draw(stepper, **other, **options), 0, 30), other


@pytest.mark.parametrize(("chance", "token"), [(0.0, 3), (float(np.nextafter(1.0, 0.0)), 5)])
def test_the_outermost_chances_draw_the_outermost_possible_tokens(monkeypatch, chance, token):
    table = torch.full((2, 1, 9), -torch.inf)
    table[:, :, 3:6] = torch.tensor([-4.0, -0.1, -25.0])
    table[..., EOS] = -torch.inf
    monkeypatch.setattr(
        sampling, "draw_chances", lambda *shape: torch.full((2, *shape[2:]), chance).double()
    )
    result = draw(TableStepper(table), num_captions=2)
    assert result.tokens.tolist() == [[[token] * 3] * 2] * 2


def test_images_leave_when_all_of_their_samples_have_ended():
    table = torch.full((2, 5, 5), -torch.inf)
    table[0, :, EOS], table[1, :, 3] = 0.0, 0.0
    stepper = TableStepper(table)
    result = draw(stepper, num_captions=3, max_length=4)
    assert stepper.rows == [2, 3, 3, 3], "image 1 alone, with all samples, after step 1"
    assert result.tokens[0].tolist() == [[EOS, PAD, PAD, PAD]] * 3
    assert result.tokens[1].tolist() == [[3] * 4] * 3
    assert result.scores.tolist() == [[0.0] * 3] * 2


def test_no_possible_token_gives_no_hypothesis():
    table = random_table(0, images=2)
    table[1] = -torch.inf
    stepper = TableStepper(table)
    for cut in ({}, {"top_k": 2}, {"top_p": 0.5}):
        result = draw(stepper, num_captions=2, max_length=4, **cut)
        assert (result.lengths[0] > 0).all()
        assert result.lengths[1].tolist() == [0, 0]
        assert result.scores[1].tolist() == [-torch.inf] * 2
        assert (result.tokens[1] == PAD).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": 0.0}, "temperature must be above 0 and finite: got 0.0; use .*greedy"),
        ({"temperature": float("nan")}, "temperature must be at least 0 and finite: got nan"),
        ({"top_k": 0}, "top_k must be a whole number of at least 1: got 0"),
        ({"top_p": 0.0}, r"top_p must be in \(0, 1\]: got 0.0"),
        ({"top_p": 1.1}, r"top_p must be in \(0, 1\]: got 1.1"),
        ({"num_captions": 0}, "num_captions must be a whole number of at least 1: got 0"),
        ({"image_ids": [1]}, "image_ids must be one for each image: got 1 for 3"),
        ({"image_ids": [1, -2, 3]}, "seed and keys must be at least 0: got -2"),
        ({"seed": -1}, "seed must be a whole number of at least 0: got -1"),
    ],
)
def test_arguments_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        draw(TableStepper(random_table(0)), **options)
