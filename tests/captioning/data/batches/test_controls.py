"""Controls of captions' own phrases, and their way into batches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image

from captioning.config.compose import compose_config
from captioning.data.batches.controls import CaptionControls, FixedControls
from captioning.data.batches.datamodule import CaptionDataModule
from captioning.data.batches.pictures import FeatureReader
from captioning.data.batches.settings import Splits
from captioning.data.features.build import ensure_features
from captioning.data.roster import build_roster
from captioning.text.control_tokens import CONTROL_TOKENS
from captioning.text.tokenizers.words import WordTokenizer
from captioning.types import Control, Phrase, Region, Sample, Token
from captioning.vision.backbones import build_backbone

CAPTION = "A dog holds a red ball ."
REGIONS = tuple(
    Region(box=box, label="other") for box in ((0, 0, 8, 8), (8, 0, 16, 12), (4, 4, 12, 12))
)


def phrase(text: str, *regions: int) -> Phrase:
    return Phrase(start=CAPTION.index(text), text=text, chain_id=text, regions=regions)


def sample(**changes) -> Sample:
    built = Sample(
        row=0,
        sample_id="1#0",
        image_id="1",
        image_path=Path("1.png"),
        caption=CAPTION,
        regions=REGIONS,
        phrases=(phrase("A dog", 2, 0), phrase("a red ball", 1, 2)),
    )
    return replace(built, **changes)


class Verbs:
    name = "verbs"

    def parse(self, captions: list[str]) -> list[tuple[Token, ...]]:
        """Every word that ends with s is a verb."""
        return [
            tuple(
                Token(text=w, lemma=w, pos="X", tag="VBZ" if w[-1] == "s" else "X", dep="", head=0)
                for w in caption.split()
            )
            for caption in captions
        ]


def test_a_caption_asks_for_its_phrases_regions_in_order() -> None:
    (control,) = CaptionControls()([sample()])
    assert control == Control(regions=(2, 0, 1), num_words=6)
    (theirs,) = CaptionControls(full_stops_count=True)([sample()])
    assert theirs == replace(control, num_words=7)
    (control,) = CaptionControls(ordered=False, length=False, parser=Verbs())([sample()])
    assert control == Control(regions=(2, 0, 1), ordered=False, verbs=("holds",))


def test_regions_without_features_and_captions_without_phrases() -> None:
    assert CaptionControls(max_regions=2)([sample()])[0].regions == (0, 1)
    replaced = sample(caption=". . .", phrases=())
    assert CaptionControls()([replaced]) == (Control(regions=()),)
    assert CaptionControls(length=False)([sample(regions=())]) == (Control(regions=()),)
    assert CaptionControls()([]) == ()


@pytest.mark.parametrize(
    ("features", "last"), [(["features=bottom_up", "features.imported=x"], (0, 179)), ([], (0,))]
)
def test_controls_ask_for_all_regions_of_imported_features(features: list[str], last: tuple):
    """COCO Entities lists a box once for each class, so more of them than have features."""
    many = sample(regions=REGIONS * 60, phrases=(phrase("A dog", 0, 179),))
    chosen = ["experiment=cic_bart/flickr8k_small", *features]
    max_regions = compose_config("train", chosen).control.max_regions
    assert CaptionControls(max_regions=max_regions)([many])[0].regions == last


def test_batches_hold_controls_and_boxes(tmp_path: Path) -> None:
    first, second = tmp_path / "1.png", tmp_path / "2.png"
    Image.new("RGB", (16, 12)).save(first)
    Image.new("RGB", (20, 10)).save(second)
    samples = [
        sample(image_path=first),
        sample(image_path=second, image_id="2", sample_id="2#0", regions=(), phrases=()),
        sample(image_path=first, sample_id="1#1", caption="A dog runs in a big park today"),
    ]
    roster = build_roster("x", samples)
    samples = roster.samples
    backbone = build_backbone(name="resnet10t", weights="random", image_size=64)
    boxes = [[region.box for region in s.regions] for s in samples[:2]]
    store = ensure_features(
        [first, second],
        backbone=backbone,
        folder=tmp_path,
        kind="regions",
        boxes=boxes,
        progress=False,
    )
    words = WordTokenizer.build([s.caption for s in samples], min_count=1, control=True)
    assert words.words[-200:] == CONTROL_TOKENS
    controls = CaptionControls()(samples)
    splits = Splits(train=roster, val=roster)
    readers = {"pictures": FeatureReader(store=store), "control": CaptionControls()}
    module = CaptionDataModule(splits=splits, tokenizer=words, readers=readers)
    batch = module.dataset(samples, "train")[[0, 1, 2]]
    assert batch.sample_ids == ("1#1", "1#0", "2#0")
    assert batch.controls == (controls[2], controls[0], controls[1])
    assert batch.region_mask.tolist() == [[True] * 4, [True, False, False, False]]
    torch.testing.assert_close(
        batch.extras["boxes"],
        torch.tensor(
            [
                [[0, 0, 1, 1], [0, 0, 0.5, 2 / 3], [0.5, 0, 1, 1], [0.25, 1 / 3, 0.75, 1]],
                [[0, 0, 1, 1], [0.0] * 4, [0.0] * 4, [0.0] * 4],
            ]
        ),
    )
    assert batch.to("cpu").controls == batch.controls
    other = {"control": FixedControls(controls[1:] + controls[:1])}
    swapped = module.dataset(samples, "eval", overrides=other)[[0, 1, 2]]
    assert swapped.controls == (controls[0], controls[1], controls[2])
    del module.readers["control"]
    plain = module.dataset(samples, "train")[[0, 1, 2]]
    assert plain.controls is None
    assert plain.extras == {}
    grid = ensure_features([first, second], backbone=backbone, folder=tmp_path, progress=False)
    other = {"pictures": FeatureReader(store=grid), "control": CaptionControls()}
    with pytest.raises(
        ValueError, match="requests regions of photos, but the batches have grid features"
    ):
        module.dataset(samples, "train", overrides=other)
