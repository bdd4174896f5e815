"""Controls on imported features: annotated regions stand for imported boxes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from captioning.data.batches.controls import CaptionControls, FixedControls, overlap
from captioning.data.batches.datamodule import CaptionDataModule
from captioning.data.batches.pictures import FeatureReader, with_whole_photo
from captioning.data.batches.settings import Splits
from captioning.data.features.importing import import_features
from captioning.data.features.store import FeatureStore
from captioning.data.roster import build_roster
from captioning.text.tokenizers.words import WordTokenizer
from captioning.types import Control, Phrase, Region, Sample
from tests.captioning.data.features.layouts import Photo, write_npz, write_vl_bart

DOG, BALL, CAP, TREE = (10, 10, 50, 50), (60, 10, 90, 40), (62, 12, 90, 40), (0, 60, 30, 90)
WHOLE = (0, 0, 100, 100)


def sample(image_id: str, size: tuple[float, float] | None = (100, 100)) -> Sample:
    return Sample(
        row=0,
        sample_id=f"{image_id}#0",
        image_id=image_id,
        image_path=Path(f"{image_id}.jpg"),
        caption="ball cap dog tree",
        regions=tuple(Region(box=box, label="x") for box in (DOG, BALL, CAP, TREE)),
        phrases=(
            Phrase(start=0, text="ball", chain_id="1", regions=(1, 2)),
            Phrase(start=9, text="dog", chain_id="2", regions=(0,)),
            Phrase(start=13, text="tree", chain_id="3", regions=(3,)),
        ),
        size=size,
    )


def photo(*boxes: tuple[float, ...]) -> Photo:
    values = 1 + np.arange(len(boxes), dtype=np.float32)
    features = np.repeat(values[:, None], 3, axis=1)
    return Photo(features=features, boxes=np.array(boxes, np.float32), width=100, height=100)


@pytest.fixture
def store(tmp_path: Path) -> FeatureStore:
    photos = {
        "1": photo(WHOLE, DOG, BALL, CAP, TREE),  # as CIC-BART's own, the whole photo first
        "2": photo((11, 11, 52, 49), (40, 60, 90, 90), (61, 11, 90, 40)),  # of a detector
    }
    return import_features([write_vl_bart(tmp_path / "f.h5", photos)], folder=tmp_path / "s")


def module(store: FeatureStore, samples: list[Sample], **control: object) -> CaptionDataModule:
    roster = build_roster("x", samples)
    return CaptionDataModule(
        splits=Splits(train=roster, val=roster),
        tokenizer=WordTokenizer.build(["ball cap dog tree"], min_count=1, control=True),
        readers={
            "pictures": FeatureReader(store=store, whole_first=True),
            "control": CaptionControls(**control),  # type: ignore[arg-type]
        },
    )


def test_regions_are_those_of_imported_boxes_in_the_captions_order(store: FeatureStore) -> None:
    batch = (made := module(store, [sample("1"), sample("2")])).dataset(
        made.train.samples, "train"
    )[[0, 1]]
    assert batch.regions is not None
    assert batch.region_mask is not None
    assert batch.region_mask.sum(1).tolist() == [5, 4]
    # Image 2: the ball and the cap stand for one box, and no box is near the tree.
    assert batch.controls == (
        Control(regions=(1, 2, 0, 3), num_words=4),
        Control(regions=(2, 0), num_words=4),
    )
    boxes = batch.extras["boxes"]
    assert boxes[:, 0].tolist() == [[0, 0, 1, 1]] * 2
    torch.testing.assert_close(boxes[0, 1], torch.tensor(DOG) / 100)
    assert batch.regions[:, :, 0].tolist() == [[1, 2, 3, 4, 5], [2, 1, 2, 3, 0]]


def test_the_nearest_boxes_can_be_taken_as_the_authors_do(store: FeatureStore) -> None:
    made = module(store, [sample("2")], min_overlap=0, ordered=False)
    (control,) = made.dataset(made.train.samples, "train")[[0]].controls or ()
    # Nothing overlaps the tree but the whole photo, which is shown in any case.
    assert control == Control(regions=(2, 0), ordered=False, num_words=4)
    fixed = FixedControls(
        [
            Control(regions=(3,)),
        ],
        min_overlap=0,
    )
    dataset = made.dataset(made.train.samples, "eval", overrides={"control": fixed})
    assert dataset[[0]].controls == (Control(regions=()),)
    fixed = FixedControls([Control()])
    dataset = made.dataset(made.train.samples, "eval", overrides={"control": fixed})
    assert dataset[[0]].controls == (Control(),)


def test_what_does_not_suit_is_refused(store: FeatureStore, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="size of the photo is unknown.*--sizes FILE"):
        (made := module(store, [sample("2", size=None)])).dataset(made.train.samples, "train")
    with pytest.raises(ValueError, match="0% of .* overlap an imported box.*control.min_overlap=0"):
        (made := module(store, [sample("1", size=(9000, 9000))])).dataset(
            made.train.samples, "train"
        )
    bare = import_features(
        [write_npz(tmp_path / "f.npz", {"1": photo(WHOLE)})], folder=tmp_path / "bare"
    )
    with pytest.raises(ValueError, match="the imported features have no boxes"):
        (made := module(bare, [sample("1")])).dataset(made.train.samples, "train")


def test_the_whole_photo_is_put_first_where_it_is_not() -> None:
    regions = torch.tensor([[[1.0], [2.0], [0.0]], [[2.0], [4.0], [6.0]]]).half()
    boxes = torch.tensor([[[0, 0, 1, 1], [0, 0, 0.5, 1], [0, 0, 0, 0]], [[0, 0, 0.5, 0.5]] * 3])
    mask = torch.tensor([[True, True, False], [True] * 3])
    whole, exists, places = with_whole_photo(regions, mask, boxes)
    assert whole[..., 0].tolist() == [[1, 2, 0, 0], [4, 2, 4, 6]]
    assert exists is not None
    assert exists.tolist() == [[True, True, False, False], [True] * 4]
    assert places[1, :2].tolist() == [[0, 0, 1, 1], [0, 0, 0.5, 0.5]]
    whole, exists, _ = with_whole_photo(regions[1:], None, boxes[1:])
    assert (whole.shape, exists) == ((1, 4, 1), None)
    assert with_whole_photo(regions[:1], mask[:1], boxes[:1])[0] is not None


def test_overlap_is_intersection_over_union() -> None:
    first = np.array([[0, 0, 1, 1], [0, 0, 0.5, 1]])
    second = np.array([[0, 0, 1, 1], [0.25, 0, 0.75, 1], [0.9, 0.9, 0.9, 0.9]])
    expected = [[1, 0.5, 0], [0.5, 1 / 3, 0]]
    np.testing.assert_allclose(overlap(first, second), expected, atol=1e-7)
