"""Rewards of single captions."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from captioning.metrics.bleu import prepare_bleu, score_bleu
from captioning.metrics.cider import CiderReferences
from captioning.metrics.tokenizer import tokenize_python
from captioning.training.objectives.rewards import (
    END,
    AbstractReward,
    BleuReward,
    CiderReward,
    FunctionReward,
    PairReward,
    SimilarityReward,
    WeightedReward,
    judged,
    try_reward,
)
from captioning.types import Sample
from captioning.vision.pair_scores import PairScores

REFERENCES = {
    "a": ["A dog runs on the grass.", "a brown dog runs"],
    "b": ["a red bird sits on a branch", "the bird sits"],
    "c": ["a boy throws a ball"],
}


def sample(image: str, caption: str, row: int = 0) -> Sample:
    path = Path(f"{image}.png")
    return Sample(row=row, sample_id=image, image_id=image, image_path=path, caption=caption)


SAMPLES = [sample(image, text) for image, texts in REFERENCES.items() for text in texts]


def opened(reward: AbstractReward) -> AbstractReward:
    reward.start(SAMPLES)
    reward.open(SAMPLES)
    return reward


def test_cider_is_that_of_the_metric_with_the_frequencies_of_the_training_set() -> None:
    captions = ["a dog runs on the grass", "the bird sits on grass", ""]
    images = [SAMPLES[0], SAMPLES[2], SAMPLES[4]]
    tokens = [tokenize_python(texts) for texts in REFERENCES.values()]
    expected = CiderReferences.prepare(tokens).score(captions, [0, 1, 2])
    rewards = opened(CiderReward(end_token=False)).rewards(captions, images, [True] * 3)
    torch.testing.assert_close(rewards, torch.from_numpy(expected).float())
    assert rewards[2] == 0


def test_a_caption_that_breaks_off_is_worth_less_only_where_the_end_counts() -> None:
    for end_token in (True, False):
        reward = opened(CiderReward(end_token=end_token))
        whole, cut = reward.rewards(["a brown dog runs"] * 2, [SAMPLES[0]] * 2, [True, False])
        assert bool(whole > cut) is end_token
    assert tokenize_python([END]) != [END]


def test_frequencies_stay_when_curation_changes_the_references() -> None:
    reward = opened(CiderReward())
    statistics = reward._statistics
    before = reward.rewards(["a boy throws a ball"], [SAMPLES[4]], [True])
    reward.open([*SAMPLES[:2], sample("c", "a boy throws a ball")])
    assert reward._statistics is statistics
    assert reward.rewards(["a boy throws a ball"], [SAMPLES[4]], [True]) == before
    # photos without references are worth nothing
    assert reward.rewards(["the bird sits"], [SAMPLES[2]], [True]) == 0


def test_bleu_is_that_of_the_metric() -> None:
    captions = ["a dog runs on the road", "the bird sits on a branch"]
    references = prepare_bleu([tokenize_python(REFERENCES[key]) for key in "ab"])
    _, (*_, expected) = score_bleu(captions, references)
    reward = opened(BleuReward(end_token=False))
    rewards = reward.rewards(captions, [SAMPLES[0], SAMPLES[2]], [True] * 2)
    assert rewards.tolist() == pytest.approx(expected)
    assert 0 < rewards[0] < rewards[1] < 1
    with pytest.raises(ValueError, match="must be 1 to 4: got 5"):
        BleuReward(order=5)


def test_a_weighted_sum_is_one() -> None:
    parts = {"cider": CiderReward(), "bleu": BleuReward()}
    weighted = opened(WeightedReward(rewards=parts, weights={"cider": 0.5, "bleu": 2.0}))
    captions, images, ended = ["a dog runs"], [SAMPLES[0]], [True]
    cider, bleu = (part.rewards(captions, images, ended) for part in parts.values())
    assert torch.equal(weighted.rewards(captions, images, ended), 0.5 * cider + 2 * bleu)
    with pytest.raises(ValueError, match=r"must name the rewards \['bleu', 'cider'\]: got \['b"):
        WeightedReward(rewards=parts, weights={"bleu": 1.0})


class Space:
    """Photos and texts by the number of their letters; counts the photos that it sees."""

    identity = space = "letters"
    dim, seen = 2, 0

    def embed_texts(self, texts) -> torch.Tensor:
        angles = torch.tensor([len(text) / 10 for text in texts])
        return torch.stack([angles.cos(), angles.sin()], 1)

    def embed_photos(self, photos) -> torch.Tensor:
        self.seen += len(photos)
        return torch.tensor([[1.0, 0.0]]).expand(len(photos), 2)


def test_similarity_reads_each_photo_once(tmp_path: Path) -> None:
    from PIL import Image

    path = tmp_path / "a.png"
    Image.new("RGB", (8, 8)).save(path)
    photo = Sample(row=0, sample_id="a", image_id="a", image_path=path, caption="no matter")
    space = Space()
    reward = SimilarityReward(encoder=space, weight=2.0)
    for _ in range(2):
        rewards = reward.rewards(["short", "a longer caption here"], [photo] * 2, [True] * 2)
    assert space.seen == 1
    expected = 2 * torch.tensor([0.5, 2.1]).cos().clamp(min=0)
    torch.testing.assert_close(rewards, expected)


class Scorer:
    """The number of a caption's words by the width of its photo; counts the photos it is given."""

    name = identity = "words"
    is_probability, given = False, 0

    def score_pairs(self, photos, captions, photo_of) -> torch.Tensor:
        self.given += len(photos)
        widths = [photos[place].size[0] for place in photo_of]
        return torch.tensor([len(c.split()) / w for c, w in zip(captions, widths, strict=True)])

    def release(self) -> None:
        """It is on no device."""


def test_pairs_are_scored_with_each_photo_given_once(tmp_path: Path) -> None:
    from PIL import Image

    photos = []
    for number, width in enumerate((8, 16)):
        path = tmp_path / f"{number}.png"
        Image.new("RGB", (width, 8)).save(path)
        photos.append(replace(SAMPLES[0], image_path=path))
    scorer = Scorer()
    reward = PairReward(pairs=PairScores(scorer=scorer))
    captions = ["a dog", "a dog runs off", ""]
    rewards = reward.rewards(captions, [photos[1], photos[0], photos[1]], [True] * 3)
    assert rewards.tolist() == [2 / 16, 4 / 8, 1 / 16]
    assert (scorer.given, reward.name) == (2, "words")


def shortness(captions, samples) -> list[float]:
    return [-len(caption.split()) for caption in captions]


def test_a_function_is_a_reward_by_its_name() -> None:
    reward = FunctionReward(function=partial(shortness))
    assert reward.name.endswith("test_rewards.shortness")
    assert judged(reward, ["a b", ""], SAMPLES[:2], [True] * 2).tolist() == [-2, 0]
    try_reward(reward, SAMPLES)


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (
            lambda captions, samples: [1.0] * len(captions),
            r"is 1 for each of 10 different captions",
        ),
        (
            lambda captions, samples: [1.0],
            r"must return a number for each caption: got \(1,\) for 10",
        ),
        (lambda captions, samples: None, r"must return a number for each caption: got NoneType"),
        (
            lambda captions, samples: [float(len(c)) or math.nan for c in captions],
            r"is nan for the caption '' of c\.png: it must be a finite number",
        ),
    ],
)
def test_a_reward_that_teaches_nothing_is_refused_before_training(function, problem: str) -> None:
    with pytest.raises(ValueError, match=rf"objective\.reward: .*lambda.*{problem}"):
        try_reward(FunctionReward(function=function), SAMPLES)
    parts = {"cider": opened(CiderReward()), "own": FunctionReward(function=function)}
    with pytest.raises(ValueError, match=problem):
        try_reward(WeightedReward(rewards=parts, weights={"cider": 1.0, "own": 1.0}), SAMPLES)


def test_usual_rewards_pass_the_trial() -> None:
    for reward in (CiderReward(), BleuReward(order=1)):
        try_reward(opened(reward), SAMPLES)
