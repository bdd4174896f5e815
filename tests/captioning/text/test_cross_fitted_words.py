"""Photos are judged by what other photos taught: networks, and what captions would name."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from captioning.text import cross_fitted_words
from captioning.text.cross_fitted_words import CrossFittedWords
from captioning.text.expected_words import ExpectedWords, PhotoFeatures
from captioning.text.masked_words import FusedAdamW, WordTraining, new_network, predict
from captioning.text.word_groups import Vocabulary

FOLDS = [0, 1, 2, 1, 0, 2, 2, 1, 0]
CAPTIONS = [f"a {'red' if photo % 2 else 'blue'} thing" for photo in range(9) for _ in range(2)]
PHOTOS = [photo for photo in range(9) for _ in range(2)]


def test_no_photo_is_expected_to_name_what_its_own_captions_taught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    learnt: list[set[int]] = []

    class Marked(ExpectedWords):
        """Its values say which regression they are of."""

        def __init__(self, means, captions, photos, thing_of):
            super().__init__(means, captions, photos, thing_of)
            assert captions == [CAPTIONS[2 * photo] for photo in photos]
            self.number = len(learnt)
            learnt.append(set(photos))

        def __call__(self, means):
            return torch.full_like(super().__call__(means), self.number)

    used: list[tuple[int, set[int]]] = []
    plain = cross_fitted_words.predict

    def predict(network, groups, photos):
        used.append((int(photos.expected[0, 0]), {group.photo for group in groups}))
        return plain(network, groups, photos)

    monkeypatch.setattr(cross_fitted_words, "ExpectedWords", Marked)
    monkeypatch.setattr(cross_fitted_words, "predict", predict)
    means = torch.randn(9, 4, generator=torch.Generator().manual_seed(0))
    features = PhotoFeatures(cells=means[:, None], means=means)
    networks = CrossFittedWords(
        captions=CAPTIONS,
        photos=PHOTOS,
        folds=FOLDS,
        features=features,
        network={"width": 8, "num_heads": 2},
        training=WordTraining(num_epochs=1),
        seed=0,
    )
    networks.judge(CAPTIONS, PHOTOS, FOLDS, features)
    assert learnt == [{n for n in range(9) if FOLDS[n] != fold} for fold in range(3)]
    assert used == [(fold, {n for n in range(9) if FOLDS[n] == fold}) for fold in range(3)]


@pytest.mark.parametrize("siblings", [True, False])
def test_words_are_judged_alike_beside_whatever_groups(siblings: bool) -> None:
    captions = [
        "a red dog",
        "two men in blue shirts and a small black dog run on a green field near three white cars",
        "a woman with a yellow hat", "a man", "a brown horse", "one girl and two boys in a boat",
    ]  # fmt: skip
    torch.manual_seed(0)
    vocabulary = Vocabulary(captions)
    groups = vocabulary.groups(captions, [0, 1, 1, 2, 2, 2])
    network = new_network(vocabulary, siblings=siblings).eval()
    together = predict(network, groups, None)
    alone = np.concatenate([predict(network, [group], None) for group in groups])
    assert len(together) == sum(len(group.places) for group in groups) > 12
    np.testing.assert_allclose(together, alone, atol=1e-5)


def test_an_update_has_the_bits_of_torchs() -> None:
    torch.manual_seed(0)
    ours = [torch.nn.Parameter(torch.randn(3, 2)), torch.nn.Parameter(torch.randn(2))]
    theirs = [torch.nn.Parameter(own.detach().clone()) for own in ours]
    optimizer = FusedAdamW(ours, weight_decay=0.1)
    expected = torch.optim.AdamW(theirs, weight_decay=0.1, fused=True)
    for lr in (0.1, 0.05, 0.01):
        gradients = [torch.randn_like(own) for own in ours]
        for own, gradient in zip(theirs, gradients, strict=True):
            own.grad = gradient.clone()
        expected.param_groups[0]["lr"] = lr
        expected.step()
        optimizer.step(gradients, lr)
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
