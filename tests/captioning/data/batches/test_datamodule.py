"""Batches and loaders, on generated photos with stored features."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from captioning.data.batches.base import AbstractBatchReader, Epoch, Read, of_captions
from captioning.data.batches.datamodule import CaptionDataModule
from captioning.data.batches.pictures import FeatureReader
from captioning.data.batches.settings import LoaderSettings, Splits
from captioning.data.roster import build_roster
from captioning.data.token_table import TokenTable
from captioning.text.tokenizers.words import WordTokenizer
from captioning.types import Edit, Sample

CAPTIONS = ("a dog", "a brown dog runs", "a dog runs on grass")


class Features:
    """Stands for a store: the features of image k are full of k."""

    kind = "grid"
    has_boxes = False

    def positions(self, paths) -> np.ndarray:
        return np.array([int(Path(path).stem) for path in paths])

    def read(self, positions):
        values = torch.as_tensor(np.asarray(positions), dtype=torch.float16)
        return values.view(-1, 1, 1).expand(-1, 2, 3).clone(), None


def roster(name: str, num_images: int = 4):
    return build_roster(
        name,
        [
            Sample(
                row=0,
                sample_id=f"{image}#{number}",
                image_id=str(image),
                image_path=Path(f"{image}.jpg"),
                caption=caption,
            )
            for image in range(num_images)
            for number, caption in enumerate(CAPTIONS)
        ],
    )


@pytest.fixture
def module() -> CaptionDataModule:
    tokenizer = WordTokenizer.build(CAPTIONS, min_count=1)
    return CaptionDataModule(
        splits=Splits(train=roster("train"), val=roster("val", 3)),
        tokenizer=tokenizer,
        readers={"pictures": FeatureReader(store=Features())},
        loader=LoaderSettings(batch_size=6, captions_per_image=3, eval_batch_size=2),
    )


def test_captions_meet_their_own_pictures(module: CaptionDataModule) -> None:
    pairs = []
    for batch in module.train_dataloader():
        assert len(batch.image_ids) == 2
        for number, sample_id in enumerate(batch.sample_ids):
            image = int(batch.image_index[number])
            assert batch.image_ids[image] == sample_id.split("#")[0]
            assert batch.regions[image].unique().item() == int(batch.image_ids[image])
            row = int(batch.rows[number])
            assert module.train.samples[row].sample_id == sample_id
            words = batch.tokens[number][batch.token_mask[number]].tolist()
            assert words == module.tokenizer.encode(module.train.samples[row].caption)
            pairs.append(row)
    assert sorted(pairs) == list(range(12))


def test_captions_stand_by_falling_length(module: CaptionDataModule) -> None:
    for batch in module.train_dataloader():
        lengths = batch.token_mask.sum(1).tolist()
        assert lengths == sorted(lengths, reverse=True)


def test_the_epoch_trains_on_the_view_and_keeps_its_length(module: CaptionDataModule) -> None:
    edits = [Edit(sample_id=f"0#{number}", action="remove") for number in range(3)]
    module.view = module.view.apply(edits)
    batches = list(module.train_dataloader())
    assert len(batches) == module.updates_per_epoch == 2
    assert all("0" not in batch.image_ids for batch in batches)
    module.loader = replace(module.loader, fixed_updates=False)
    assert sum(len(batch) for batch in module.train_dataloader()) == 9


def test_a_replaced_image_is_another_picture_of_the_same_image_id(module) -> None:
    edit = Edit(sample_id="1#0", action="replace_image", value="3.jpg", origin="made")
    module.view = module.view.apply([edit])
    for batch in module.probe_dataloader():
        for number, sample_id in enumerate(batch.sample_ids):
            picture = batch.regions[int(batch.image_index[number])].unique().item()
            assert picture == (3 if sample_id == "1#0" else int(sample_id.split("#")[0]))


def test_a_batch_carries_weights_where_one_is_not_1(module: CaptionDataModule) -> None:
    assert all(batch.weights is None for batch in module.train_dataloader())
    edit = Edit(sample_id=module.train.samples[3].sample_id, action="down_weight", value="0.25")
    module.view = module.view.apply([edit])
    for batch in module.train_dataloader():
        expected = [0.25 if row == 3 else 1.0 for row in batch.rows.tolist()]
        assert (batch.weights.tolist() if 3 in batch.rows else batch.weights) == (
            expected if 3 in batch.rows else None
        )


def test_a_batch_carries_weights_of_tokens_where_a_word_is_masked(module) -> None:
    assert all(batch.token_weights is None for batch in module.train_dataloader())
    sample = module.train.samples[3]
    span = f"{sample.caption.index(' ') + 1}-{len(sample.caption)}:0.25"
    edit = Edit(sample_id=sample.sample_id, action="mask_words", value=span)
    module.view = module.view.apply([edit])
    for batch in module.train_dataloader():
        if 3 not in batch.rows:
            assert batch.token_weights is None
            continue
        assert batch.token_weights.shape == batch.tokens.shape
        places = (batch.token_weights != 1).nonzero().tolist()
        assert places == [[batch.rows.tolist().index(3), 2]]  # the second word
        assert batch.token_weights.min() == 0.25
    assert module.train_dataloader().dataset[[3]].to("meta").token_weights.device.type == "meta"


def test_probe_shows_every_live_sample_once_in_order(module: CaptionDataModule) -> None:
    rows = torch.cat([batch.rows.sort().values for batch in module.probe_dataloader()])
    assert rows.tolist() == list(range(12))


def test_validation_shows_every_image_once(module: CaptionDataModule) -> None:
    images = [image for batch in module.val_dataloader() for image in batch.image_ids]
    assert images == ["0", "1", "2"]


def test_a_missing_test_split_is_named(module: CaptionDataModule) -> None:
    with pytest.raises(ValueError, match="no test split"):
        module.test_dataloader()


def test_batches_can_be_moved(module: CaptionDataModule) -> None:
    batch = next(iter(module.train_dataloader()))
    moved = batch.to("meta")
    assert moved.tokens.device.type == moved.regions.device.type == "meta"
    assert moved.sample_ids == batch.sample_ids


def test_features_of_new_photos_are_computed_when_they_are_first_trained_on(module, tmp_path):
    requested = []

    def extend(samples):
        requested.append([path.name for path in samples])
        return Features()

    first = module.readers["pictures"].store
    samples = {s.image_path: s for s in module.train.samples}
    reader = FeatureReader(store=first, samples=samples, extend=extend)
    built = CaptionDataModule(
        splits=module.splits,
        tokenizer=module.tokenizer,
        readers={"pictures": reader},
        loader=LoaderSettings(batch_size=6),
    )
    assert (built.refuses_photos, reader.store is first) == ("", True)
    next(iter(built.train_dataloader()))
    assert requested == []
    edit = Edit(sample_id="1#0", action="replace_image", value="9.jpg")
    built.view = built.view.apply([edit])
    batches = [batch for _ in range(2) for batch in built.train_dataloader()]
    assert requested == [["0.jpg", "1.jpg", "2.jpg", "3.jpg", "9.jpg"]]
    values = {float(b.regions[i, 0, 0]) for b in batches for i in range(len(b.image_ids))}
    assert 9.0 in values


def test_imported_features_refuse_new_photos(module):
    module.readers["pictures"].store.folder = Path("imported")
    assert "features in imported were imported" in module.refuses_photos
    bare = CaptionDataModule(splits=module.splits, tokenizer=module.tokenizer, readers={})
    assert bare.refuses_photos == ""


class Lengths(AbstractBatchReader):
    """Gives batches the lengths of their captions, in letters, under a name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def open(self, epoch: Epoch) -> Read | None:
        return None if epoch.stage == "eval" else of_captions(self._lengths)

    def _lengths(self, captions):
        return {self.name: torch.tensor([len(sample.caption) for sample in captions])}


def test_what_a_reader_gives_is_in_the_extras_of_its_stages(module):
    module.readers["lengths"] = Lengths("lengths")
    batch = next(iter(module.train_dataloader()))
    captions = [module.train.samples[row].caption for row in batch.rows.tolist()]
    assert batch.extras["lengths"].tolist() == [len(caption) for caption in captions]
    assert next(iter(module.val_dataloader())).extras == {}


@pytest.mark.parametrize("name", ["rows", "regions", "extras", "lengths"])
def test_two_readers_of_one_name_are_refused(module, name):
    module.readers |= {"first": Lengths("lengths"), "second": Lengths(name)}
    with pytest.raises(ValueError, match=f"a batch has {name} already"):
        next(iter(module.train_dataloader()))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch_size": 0}, r"loader\.batch_size must be a whole number of at least 1: got 0"),
        ({"eval_batch_size": -1}, r"loader\.eval_batch_size must be"),
        ({"num_workers": 0.5}, r"loader\.num_workers must be a whole number of at least 0"),
        (
            {"original_updates": True, "fixed_updates": False},
            r"loader\.original_updates=true needs",
        ),
        ({"updates_per_epoch": 0}, r"loader\.updates_per_epoch must be"),
        ({"one_caption": True}, r"loader\.one_caption=true selects one caption per image"),
        (
            {"updates_per_epoch": 7, "original_updates": True},
            r"loader\.updates_per_epoch=7 fixes an epoch's length",
        ),
    ],
)
def test_settings_of_loaders_that_cannot_be_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        LoaderSettings(**settings)


@pytest.mark.parametrize("number", [2, 9])
def test_an_epoch_has_the_updates_that_are_asked_for(module, number):
    module = CaptionDataModule(
        splits=module.splits,
        tokenizer=module.tokenizer,
        readers=module.readers,
        loader=LoaderSettings(batch_size=4, updates_per_epoch=number, num_workers=0),
    )
    batches = list(module.train_dataloader())  # of 12 captions
    assert [len(batch.rows) for batch in batches] == [4] * number
    rows = [row for batch in batches for row in batch.rows.tolist()]
    assert module.updates_per_epoch == number
    assert len(set(rows)) == min(12, 4 * number)


def test_tokens_of_a_table_are_taken_unless_the_caption_was_replaced(module) -> None:
    train, tokenizer = module.train, module.tokenizer
    marked = TokenTable.encode(["a"] * len(train), tokenizer)  # not what the captions say
    module = CaptionDataModule(
        splits=module.splits, tokenizer=tokenizer, readers=module.readers, tokens=marked
    )
    edit = Edit(sample_id="1#0", action="replace_caption", value="a brown dog", origin="model")
    module.view = module.view.apply([edit])
    batch = module.dataset(module.view.samples(), "train")[[0, 3]]
    texts = {
        row: tokenizer.decode(ids)
        for row, ids in zip(batch.rows.tolist(), batch.tokens.tolist(), strict=True)
    }
    assert texts == {0: "a", 3: "a brown dog"}
    with pytest.raises(ValueError, match="tokens must cover 12 captions"):
        CaptionDataModule(
            splits=module.splits,
            tokenizer=tokenizer,
            readers={},
            tokens=TokenTable.encode(["a"], tokenizer),
        )
