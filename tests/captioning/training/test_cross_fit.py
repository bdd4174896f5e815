"""Likeness by heads that never saw the pair: it finds what does not fit, and is trained once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from PIL import Image

from captioning.data.roster import Roster, build_roster
from captioning.metrics.detection import area_under_roc
from captioning.training import cross_fit
from captioning.training.cross_fit import CrossFit
from captioning.types import Sample
from captioning.vision.backbones import build_backbone

COLORS = ("red", "green", "blue", "white", "black", "yellow")


class ColorWords:
    """Sentences by the colour that they name."""

    identity, dim = "colours", len(COLORS)

    def embed_texts(self, texts: Sequence[str]) -> torch.Tensor:
        return torch.tensor([[1.0 * (color in text) for color in COLORS] for text in texts])


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> Roster:
    """Sixty photos of one colour each; every fifth sample names another colour."""
    folder = tmp_path_factory.mktemp("photos")
    samples = []
    for number in range(60):
        color = COLORS[number % 6]
        Image.new("RGB", (32 + number, 40), color).save(folder / f"{number}.png")
        for k in range(2):
            wrong = (2 * number + k) % 5 == 0
            named = COLORS[(number + 1 + k) % 6] if wrong else color
            samples.append(
                Sample(
                    row=0,
                    sample_id=f"{number}#{k}",
                    image_id=str(number),
                    image_path=folder / f"{number}.png",
                    caption=f"something {named}",
                    origin="noise:swap" if wrong else "human",
                )
            )
    return build_roster("colours", samples)


def make(folder: Path, **settings) -> CrossFit:
    training = {
        "num_epochs": 60,
        "batch_size": 20,
        "captions_per_image": 1,
        "lr": 0.01,
        "weight_decay": 0.01,
        "ema_decay": 0.9,
        "val_every": 60,
    }
    options = {"num_folds": 3, "seed": 0, "training": training} | settings
    torch.manual_seed(0)  # the same random backbone every time
    return CrossFit(
        backbone=build_backbone(name="test_resnet.r160_in1k", weights="random", image_size=32),
        sentences=ColorWords(),
        features={"folder": folder / "features", "progress": False},
        heads={"width": 32, "size": 8, "dropout": 0.0, "input_dropout": 0.0},
        cache_folder=folder / "heads",
        **options,
    )


@pytest.mark.long
def test_pairs_that_do_not_fit_are_found_and_heads_are_trained_once(
    photos: Roster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, real = [], cross_fit.read_pairs

    def read_pairs(roster, **parts):
        seen.append({sample.image_path for sample in roster.samples})
        return real(roster, **parts)

    monkeypatch.setattr(cross_fit, "read_pairs", read_pairs)
    likeness = make(tmp_path)(photos, photos.samples)
    faulty = [sample.sample_id in photos.planted for sample in photos.samples]
    assert area_under_roc(-likeness.numpy(), faulty) > 0.95
    # of each fold: the photos that the heads are trained on, and those that they judge
    assert len(seen) == 6
    for other_photos, own_photos in zip(seen[::2], seen[1::2], strict=True):
        assert not other_photos & own_photos
        assert len(own_photos) == 20
        assert len(other_photos | own_photos) == 60

    def refuse(*_, **__):
        raise AssertionError("trained again")

    monkeypatch.setattr(cross_fit, "fit", refuse)
    again = make(tmp_path)(photos, photos.samples[7:19])
    # heads are kept in half precision, and read from there the first time too
    torch.testing.assert_close(again, likeness[7:19])
    with pytest.raises(AssertionError, match="trained again"):
        make(tmp_path, seed=1)(photos, photos.samples)


def test_more_folds_than_images_are_refused(photos: Roster, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="num_folds must be at least 2: got 1"):
        make(tmp_path, num_folds=1)
    few = build_roster("few", photos.samples[:4])
    with pytest.raises(ValueError, match="few: 2 images cannot be dealt into 3 folds"):
        make(tmp_path)(few, few.samples)
