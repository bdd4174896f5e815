"""A second look at words in doubt: networks that know photos confirm a doubt or lift it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from captioning.data.roster import CurationView, build_roster
from captioning.types import Sample
from curation.base import AbstractWordScore, Context, WordDoubt
from curation.score.words import SecondLook, Words, again, log_likelihood_ratios

NUM_SOUND = 200


class Doubts(AbstractWordScore):
    """The given doubts, whatever the captions are."""

    name = "given doubts"

    def __init__(self, doubts: Sequence[WordDoubt]) -> None:
        self._doubts = list(doubts)

    def scores(self, context: Context) -> Tensor:
        raise AssertionError("a second look reads doubts")

    def doubts(self, context: Context) -> list[WordDoubt]:
        return list(self._doubts)


class Shown:
    """Knows the colour that each photo shows, with some noise."""

    name = "colours"

    def __init__(self, *, noise: float = 0.3, sign: float = 1.0, probability: bool = False) -> None:
        self._noise, self._sign, self.is_probability = noise, sign, probability
        self.asked: list[tuple[Path, str]] = []
        self.released = 0

    def scores(self, pairs: Sequence[tuple[Path, str]]) -> Tensor:
        self.asked += pairs
        drawn = np.random.default_rng(len(pairs)).normal(size=len(pairs)) * self._noise
        fits = [float(path.stem.split("-")[1] in caption) for path, caption in pairs]
        values = torch.tensor(self._sign * np.array(fits) + drawn)
        return torch.sigmoid(values) if self.is_probability else values

    def release(self) -> None:
        self.released += 1


def world(shown: Sequence[str], *, doubtful: float) -> tuple[Context, list[WordDoubt]]:
    """Captions that all say "A red ball"; the first `NUM_SOUND` are sound and hardly in doubt."""
    colors = ["red"] * NUM_SOUND + list(shown)
    samples = [
        Sample(
            row=row,
            sample_id=f"{row}#0",
            image_id=str(row),
            image_path=Path(f"{row}-{color}.jpg"),
            caption="A red ball",
        )
        for row, color in enumerate(colors)
    ]
    context = Context.before_training(CurationView(roster=build_roster("world", samples)))
    fields = {"start": 2, "word": "red", "alternative": "blue", "topic": "color"}
    doubts = [
        WordDoubt(
            row=row,
            **fields,
            log_odds=0.0,
            probability=0.001 if row < NUM_SOUND else doubtful,
        )
        for row in range(len(samples))
    ]
    return context, doubts


@pytest.mark.parametrize(
    ("value", "score", "name"),
    [("probability", 0.1, "probability of a wrong"), ("log_odds", 4.0, "log-odds of another")],
)
def test_a_caption_is_scored_by_what_the_first_score_counts(value, score, name):
    context, _ = world([], doubtful=0)
    doubt = WordDoubt(
        row=0, start=2, word="red", alternative="blue", log_odds=4.0, probability=0.1, topic="color"
    )
    first = Words(value=value)
    first.doubts = lambda context: [doubt]
    look = SecondLook(words=first, pairs={"colours": Shown()})
    scores = look.scores(context)
    assert scores[0] == pytest.approx(score)
    assert torch.equal(scores[:1], first.scores(context)[:1])
    assert scores[1:].isnan().all()
    assert look.name.startswith(name)


def test_what_the_photo_shows_decides_between_equal_doubts():
    context, first = world(["red", "blue", "green"], doubtful=0.3)
    score = SecondLook(words=Doubts(first), pairs={"colours": Shown()})
    *sound, kept, wrong, unclear = score.doubts(context)
    assert kept.probability < 0.01
    assert wrong.probability > 0.99
    assert kept.log_odds < -3 < 3 < wrong.log_odds
    assert kept.log_odds < unclear.log_odds < wrong.log_odds  # neither word is shown
    assert sound == first[:NUM_SOUND]  # they only teach how right words look
    assert score.scores(context)[NUM_SOUND + 1] == pytest.approx(wrong.probability)


def test_only_words_in_doubt_and_some_others_are_looked_at():
    context, first = world(["blue"], doubtful=0.3)
    network = Shown()
    score = SecondLook(words=Doubts(first), pairs={"colours": network}, num_sound=60)
    assert score.doubts(context)[-1].probability > 0.99
    assert len(network.asked) == 2 * 61
    assert network.released == 1
    score.scores(context)
    assert len(network.asked) == 2 * 61, "the same context is looked at once"
    none = SecondLook(words=Doubts(first), pairs={"colours": Shown()}, least=0.5)
    assert none.doubts(context) == first


def test_where_all_words_are_in_some_doubt_the_less_doubtful_half_teaches():
    context, first = world(["blue"], doubtful=0.3)
    rising = [
        replace(doubt, probability=0.05 + number / 1000) for number, doubt in enumerate(first[:-1])
    ]
    score = SecondLook(words=Doubts([*rising, first[-1]]), pairs={"colours": Shown()})
    *sound, wrong = score.doubts(context)
    assert wrong.probability > 0.85
    before = np.mean([doubt.probability for doubt in rising])
    assert np.mean([doubt.probability for doubt in sound]) < before / 4


def test_topics_with_few_words_learn_from_the_others():
    context, first = world(["blue"], doubtful=0.3)
    first[-1] = replace(first[-1], topic="number")
    score = SecondLook(words=Doubts(first), pairs={"colours": Shown()})
    assert score.doubts(context)[-1] == first[-1]  # nobody has taught it anything
    first[-2] = replace(first[-2], probability=0.3)
    score = SecondLook(words=Doubts(first), pairs={"colours": Shown()})
    assert score.doubts(context)[-1].probability > 0.9


def test_the_other_word_stands_as_the_caption_wants_it():
    context, first = world(["blue"], doubtful=0.3)
    first[-1] = WordDoubt(
        row=NUM_SOUND,
        start=2,
        word="red",
        alternative="orange",
        log_odds=0.0,
        probability=0.3,
        topic="color",
    )
    network = Shown()
    SecondLook(words=Doubts(first), pairs={"colours": network}).doubts(context)
    assert (Path(f"{NUM_SOUND}-blue.jpg"), "An orange ball") in network.asked


def test_several_networks_agree_and_one_that_knows_nothing_is_left_out():
    context, first = world(["blue"], doubtful=0.3)
    alone = SecondLook(words=Doubts(first), pairs={"a": Shown(noise=1.0)})
    both = SecondLook(
        words=Doubts(first), pairs={"a": Shown(noise=1.0), "b": Shown(probability=True)}
    )
    assert both.doubts(context)[-1].probability > alone.doubts(context)[-1].probability
    wrong_way = SecondLook(words=Doubts(first), pairs={"c": Shown(sign=-1.0)})
    assert wrong_way.doubts(context) == first
    assert "a, b" in both.name


def test_probabilities_count_by_their_logits():
    context, first = world(["blue", "red"], doubtful=0.3)
    raw, squeezed = (
        SecondLook(words=Doubts(first), pairs={"a": Shown(probability=asked)}).doubts(context)
        for asked in (False, True)
    )
    found = [doubt.log_odds for doubt in squeezed[-2:]]
    assert found == pytest.approx([doubt.log_odds for doubt in raw[-2:]], rel=1e-3)


def test_a_network_that_gains_by_changing_right_words_has_no_say():
    generator = np.random.default_rng(0)
    good = generator.normal(-1, 1, size=5000)
    bad = good + 1.5 + generator.normal(0, 0.5, size=5000)
    gains = np.array([[1.0, 5.0], [1.0, -5.0]])
    found = log_likelihood_ratios(gains, np.stack([good, bad], axis=1))
    alone = log_likelihood_ratios(gains[:, :1], good[:, None])
    np.testing.assert_allclose(found, alone)


def test_the_ratio_is_that_of_two_gaussians():
    generator = np.random.default_rng(0)
    spread = np.array([[1.0, 0.6], [0.6, 2.0]])
    sound = generator.multivariate_normal([-1.0, -0.5], spread, size=200_000)
    gains = np.array([[0.0, 0.0], [1.0, 0.5], [-1.0, 2.0]])

    def log_density(values: np.ndarray, centre: np.ndarray) -> np.ndarray:
        off = values - centre
        return -0.5 * np.einsum("ni,ij,nj->n", off, np.linalg.inv(spread), off)

    centre = np.array([1.0, 0.5])
    expected = log_density(gains, centre) - log_density(gains, -centre)
    found = log_likelihood_ratios(gains, sound)
    np.testing.assert_allclose(found, expected, atol=0.05)
    assert not log_likelihood_ratios(gains, sound[:1]).any(), "one word teaches no spread"
    assert not log_likelihood_ratios(gains, sound[:0]).any()


@pytest.mark.parametrize("ratio", [-1e4, -1.0, 0.0, 1.0, 1e4])
def test_probabilities_stay_in_their_range(ratio):
    for probability in (0.0, 0.3, 1.0):
        doubt = WordDoubt(
            row=0, start=0, word="a", alternative="b", log_odds=0.0, probability=probability
        )
        after = again(doubt, ratio)
        assert 0 <= after.probability <= 1
        assert (after.probability > probability) == (ratio > 0) or probability in (0.0, 1.0)
        assert after.log_odds == ratio


def test_a_second_look_needs_a_network():
    with pytest.raises(ValueError, match="needs a matching model"):
        SecondLook(words=Doubts([]), pairs={})
