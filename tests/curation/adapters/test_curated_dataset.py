"""A data set that follows curation."""

from __future__ import annotations

import pickle
from collections import Counter

import numpy as np
import pytest
import torch
from foreign import make_policy, make_roster
from PIL import Image
from plain_run import opened, run_epoch
from torch.utils.data import DataLoader, Dataset

from captioning.types import Edit
from curation import CuratedDataset, with_rows
from curation.adapters.curated_dataset import check_loader, filled_up
from curation.amend.replace import ReplaceCaption


def item_of(sample):
    return {"text": sample.caption}


class Rows(Dataset):
    """A user's data set: an item for each caption of the roster."""

    def __init__(self, size: int = 18):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, row):
        return {"caption": f"  as written {row}", "image": f"pixels of {row}"}


@pytest.fixture
def curation(tmp_path):
    return opened(tmp_path)


def rows_of(data) -> list[int]:
    return [data[position]["row"] for position in range(len(data))]


def test_items_are_those_of_the_epoch_and_the_length_stays(curation):
    data = CuratedDataset(item_of, curation)
    assert rows_of(data) == list(range(18))
    assert data[3] == {"text": curation.roster.samples[3].caption, "row": 3}
    run_epoch(curation)
    live = [sample.row for sample in curation.samples()]
    rows = rows_of(data)
    assert rows[:16] == live
    assert len(rows) == 18
    assert set(rows) == set(live)
    assert max(Counter(rows).values()) == 2
    run_epoch(curation)
    assert set(rows_of(data)) == {sample.row for sample in curation.samples()}
    assert len(set(rows_of(data))) == 15


def test_a_length_that_follows_is_that_of_the_live_samples(curation):
    data = CuratedDataset(item_of, curation, fixed_length=False)
    run_epoch(curation)
    assert rows_of(data) == [sample.row for sample in curation.samples()]
    with pytest.raises(IndexError, match="position 16 is out of range for 16"):
        data[16]


def test_an_order_depends_on_seed_and_epoch_alone(curation, tmp_path):
    data = CuratedDataset(item_of, curation, shuffle=True)
    first = rows_of(data)
    assert sorted(first) == list(range(18))
    assert first != sorted(first)
    assert rows_of(CuratedDataset(item_of, curation, shuffle=True)) == first
    run_epoch(curation)
    second = rows_of(data)
    assert second != first
    again = CuratedDataset(item_of, opened(tmp_path), shuffle=True)
    assert rows_of(again) == second
    other = opened(tmp_path / "other", seed=1)
    assert rows_of(CuratedDataset(item_of, other, shuffle=True)) != first


def test_a_loader_with_workers_sees_the_edits(curation):
    loader = DataLoader(CuratedDataset(item_of, curation), batch_size=9, num_workers=1)
    run_epoch(curation)
    rows = torch.cat([batch["row"] for batch in loader]).tolist()
    assert set(rows) == {sample.row for sample in curation.samples()}


def test_workers_are_sent_samples_alone(curation):
    sent = pickle.dumps(CuratedDataset(item_of, curation))
    assert b"EpochSamples" in sent
    assert b"Curator" not in sent


def test_edits_reach_the_items_of_a_data_set(tmp_path):
    curation = opened(tmp_path, policy=make_policy(ratio=0.2, amend=ReplaceCaption()))
    data = CuratedDataset(Rows(), curation)
    assert data[5] == {"caption": "  as written 5", "image": "pixels of 5", "row": 5}
    run_epoch(curation)
    edited = {edit.sample_id: edit.value for edit in curation.view.journal}
    assert edited
    for sample in curation.samples():
        caption = edited.get(sample.sample_id, f"  as written {sample.row}")
        assert data[sample.row]["caption"] == caption
    other = CuratedDataset(Rows(), curation, caption_key="words")
    with pytest.raises(ValueError, match="the item has no key 'words'"):
        rows_of(other)


def test_another_picture_reaches_the_items(tmp_path):
    Image.new("RGB", (2, 2), "red").save(tmp_path / "new.png")
    curation = opened(tmp_path)
    edit = Edit(sample_id="img0#1", action="replace_image", value="new.png")
    curation.current.samples = curation.view.apply([edit]).samples()
    item = CuratedDataset(Rows(), curation)[1]
    assert item["image"].getpixel((0, 0)) == (255, 0, 0)


def test_wrong_sources_are_refused(curation):
    with pytest.raises(ValueError, match="the dataset has 17 items, but the roster has 18 samples"):
        CuratedDataset(Rows(17), curation)
    with pytest.raises(ValueError, match="the item of 'img0#0' must be a mapping"):
        CuratedDataset(lambda sample: (1, 2), curation)[0]


def test_rows_pass_a_collation_that_does_not_know_them():
    def collate(items):
        assert all(item.keys() == {"text"} for item in items)
        return {"texts": [item["text"] for item in items]}

    batch = with_rows(collate)([{"text": "a", "row": 5}, {"text": "b", "row": 2}])
    assert batch["texts"] == ["a", "b"]
    assert batch["row"].tolist() == [5, 2]
    assert with_rows(collate)([{"text": "a"}]) == {"texts": ["a"]}
    with pytest.raises(ValueError, match="1 of 2 items have no key 'row'"):
        with_rows(collate)([{"text": "a"}, {"text": "b", "row": 2}])


def test_what_comes_again_is_even_and_drawn():
    order = filled_up(5, 17, seed=(1, 2))
    assert order[:5].tolist() == [0, 1, 2, 3, 4]
    assert sorted(np.bincount(order).tolist()) == [3, 3, 3, 4, 4]
    assert order.tolist() == filled_up(5, 17, seed=(1, 2)).tolist()
    assert order.tolist() != filled_up(5, 17, seed=(1, 3)).tolist()


def test_a_loader_that_would_hide_the_edits_is_refused(curation, tmp_path):
    check_loader(DataLoader(CuratedDataset(item_of, curation)), curation)
    other = opened(tmp_path / "other", samples=make_roster())
    with pytest.raises(ValueError, match="needs a training loader over CuratedDataset"):
        check_loader(DataLoader(CuratedDataset(item_of, other)), curation)
    with pytest.raises(ValueError, match="loader over CuratedDataset.*got Rows"):
        check_loader(DataLoader(Rows()), curation)
    data = CuratedDataset(item_of, curation)
    with pytest.raises(ValueError, match="persistent workers keep the first epoch's samples"):
        check_loader(DataLoader(data, num_workers=1, persistent_workers=True), curation)
    shrinking = DataLoader(CuratedDataset(item_of, curation, fixed_length=False))
    with pytest.raises(ValueError, match=r"fixed_length=False\) shrinks"):
        check_loader(shrinking, curation)
    check_loader(shrinking, curation, rebuilt=True)


def test_a_table_follows_too(curation):
    pytest.importorskip("datasets", reason="needs datasets")
    table = CuratedDataset(item_of, curation).as_table()
    check_loader(DataLoader(table), curation)
    run_epoch(curation)
    live = {sample.row for sample in curation.samples()}
    assert len(table) == 18
    assert {table[position]["row"] for position in range(18)} == live
    assert table[0]["text"] == curation.samples()[0].caption
