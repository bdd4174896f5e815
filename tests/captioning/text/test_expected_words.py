"""What captions of a photo can be expected to name: ridge regression, each photo left out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from captioning.text import expected_words
from captioning.text.expected_words import ExpectedWords
from captioning.text.word_rows import closed_rows

COLORS = ("red", "blue", "green")
THING_OF = closed_rows().things[1]
THINGS = [THING_OF[word] for word in COLORS]


def world(number: int, size: int = 6) -> tuple[Tensor, list[str], list[int]]:
    """Features whose first three values are the photo's color, two captions a photo."""
    generator = np.random.default_rng(0)
    drawn = generator.integers(3, size=number)
    means = torch.from_numpy(generator.normal(size=(number, size)).astype(np.float32))
    means[:, :3] += 8 * torch.eye(3)[drawn]
    photos = [photo for photo in range(number) for _ in range(2)]
    captions = [f"a {COLORS[drawn[photo]]} thing" for photo in photos]
    return means, captions, photos


def test_the_color_of_an_unseen_photo_is_expected() -> None:
    means, captions, photos = world(90)
    learnt = [n for n, photo in enumerate(photos) if photo < 60]
    expected = ExpectedWords(
        means, [captions[n] for n in learnt], [photos[n] for n in learnt], THING_OF
    )
    colors = expected(means[60:])[:, THINGS]
    named = [COLORS.index(captions[2 * photo].split()[1]) for photo in range(60, 90)]
    assert colors.argmax(1).tolist() == named
    assert colors.max() < np.log(6)  # a share of about 1 against one of about a third
    assert not expected.left_out[60:].any()


def test_left_out_is_what_the_others_teach(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a regression without that photo, its scale and share those of all photos."""
    monkeypatch.setattr(expected_words, "_PENALTIES", (2.0,))
    means, captions, photos = world(20)
    captions[6] = captions[7] = "a purple thing"  # which no other photo has
    left_out = ExpectedWords(means, captions, photos, THING_OF).left_out
    inputs = (means - means.mean(0)) / (means.std(0, correction=0) + 1e-3) / 6**0.5
    for photo in (3, 11):
        others = torch.arange(20) != photo
        for color in (*COLORS, "purple"):
            named = torch.tensor([float(color in captions[2 * n]) for n in range(20)])
            share = named.mean()
            a, b = inputs[others], (named - share)[others]
            weights = torch.linalg.solve(a.T @ a + 2 * torch.eye(6), a.T @ b)
            expected = float((inputs[photo] @ weights + share).clamp_min(0))
            ratio = np.log((expected + 0.01) / (float(share) + 0.01))
            got = left_out[photo, THING_OF[color]]
            assert float(got) == pytest.approx(ratio, abs=2e-3)


def test_forms_and_words_of_one_meaning_are_one_thing_and_shares_count_captions() -> None:
    means = torch.tensor([[1.0], [1.0], [-1.0], [-1.0]]) + torch.arange(4)[:, None] / 100
    captions = ["gray dogs", "no word", "a grey dog", "grey", "a cat", "cats", "a cat", "cat"]
    expected = ExpectedWords(means, captions, [0, 0, 1, 1, 2, 2, 3, 3], THING_OF)
    numbers = THING_OF
    assert numbers["gray"] == numbers["grey"]
    assert numbers["dogs"] == numbers["dog"]
    ratios = expected(torch.tensor([[1.0], [-1.0]]))
    for word in ("gray", "dog"):
        assert ratios[0, numbers[word]] > 0 > ratios[1, numbers[word]]
    assert ratios[0, numbers["cat"]] < 0 < ratios[1, numbers["cat"]]
    assert float(ratios[0, numbers["horse"]]) == pytest.approx(0, abs=1e-4)  # never named


def test_noise_is_not_believed() -> None:
    """Where features tell nothing, the largest penalty keeps log-ratios near 0."""
    means, captions, photos = world(200)
    shuffled = means[torch.from_numpy(np.random.default_rng(1).permutation(200))]
    told = ExpectedWords(means, captions, photos, THING_OF).left_out[:, THINGS]
    noise = ExpectedWords(shuffled, captions, photos, THING_OF).left_out[:, THINGS]
    assert noise.abs().mean() < 0.2 < told.abs().mean()


def test_more_features_than_photos() -> None:
    means, captions, photos = world(12, size=40)
    expected = ExpectedWords(means, captions, photos, THING_OF)
    assert expected.left_out.isfinite().all()
    assert expected(means).isfinite().all()
