"""Shares of a data set, and augmented pairs that go with them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from captioning.data.batches.datamodule import CaptionDataModule
from captioning.data.batches.settings import LoaderSettings, Splits
from captioning.data.roster import Roster, build_roster
from captioning.data.steps.add_pairs import AddPairs, ShareOfPhotos, original_samples
from captioning.data.steps.base import StepContext, apply_steps
from captioning.data.steps.hold_out import HoldOut
from captioning.runtime.files import write_json
from captioning.text.tokenizers.words import WordTokenizer
from captioning.types import Sample


@pytest.fixture
def roster() -> Roster:
    samples = [
        Sample(
            row=0,
            sample_id=f"p{n}#{k}",
            image_id=f"p{n}",
            image_path=Path(f"p{n}.jpg"),
            caption="a dog",
        )
        for n in range(20)
        for k in range(2)
    ]
    return build_roster("r", samples)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Ten pairs, one of each of the photos p0 to p9."""
    (tmp_path / "pairs" / "images").mkdir(parents=True)
    photos, captions, records = [], [], []
    for n in range(10):
        Image.new("RGB", (8, 8)).save(tmp_path / "pairs" / "images" / f"x{n}.png")
        photos.append({"id": f"x{n}", "file_name": f"x{n}.png", "width": 8, "height": 8})
        captions.append({"id": n, "image_id": f"x{n}", "caption": "a cat"})
        records.append({"name": f"x{n}", "target": {"image_id": f"p{n}"}})
    records.append({"name": "x0", "refused": {"why": 1}})
    folder_ = tmp_path / "pairs"
    write_json(folder_ / "captions.json", {"images": photos, "annotations": captions})
    write_json(folder_ / "instances.json", {"images": photos, "annotations": [], "categories": []})
    lines = "".join(json.dumps(record) + "\n" for record in records)
    (folder_ / "provenance.jsonl").write_text(lines)
    return folder_


def context(*, is_cut: bool = False) -> StepContext:
    return StepContext(split="train", seed=0, cache_folder=Path("cache"), is_cut=is_cut)


def share_of_photos(roster: Roster, share: float, *, seed: int) -> Roster:
    return ShareOfPhotos(share=share, seed=seed)(roster, context())


def with_added(roster: Roster, folders: list[Path], *, is_cut: bool = False, **settings) -> Roster:
    return AddPairs(folders=folders, **settings)(roster, context(is_cut=is_cut))


def test_smaller_shares_lie_in_larger_ones_whatever_the_order(roster):
    shares = [set(share_of_photos(roster, s, seed=0).rows_by_image) for s in (0.1, 0.3, 1)]
    assert [len(share) for share in shares] == [2, 6, 20]
    assert shares[0] < shares[1] < shares[2]
    turned = build_roster("r", roster.samples[::-1])
    assert set(share_of_photos(turned, 0.3, seed=0).rows_by_image) == shares[1]
    assert set(share_of_photos(roster, 0.3, seed=1).rows_by_image) != shares[1]
    assert len(share_of_photos(roster, 0.1, seed=0)) == 4


def test_a_share_may_be_of_the_photos_of_a_file(roster, folder):
    """The thesis' 30% are the photos of COCO's val2014, its 10% some of them."""
    file, step = folder / "half.json", context()
    write_json(file, {"images": [{"id": f"p{n}"} for n in range(10, 30)], "annotations": []})
    half = ShareOfPhotos(share=1.0, photos_of=str(file))(roster, step)
    assert set(half.rows_by_image) == {f"p{n}" for n in range(10, 20)}
    assert step.is_cut
    assert {sample.image_id for sample in step.left_out} == {f"p{n}" for n in range(10)}
    assert step.words == ()
    ShareOfPhotos(share=1.0, photos_of=str(file), all_words=True)(roster, step)
    assert {sample.image_id for sample in step.words} == {f"p{n}" for n in range(10)}
    some = ShareOfPhotos(share=0.3, photos_of=str(file))(roster, context())
    assert len(some.rows_by_image) == 3
    assert set(some.rows_by_image) <= set(half.rows_by_image)
    write_json(file, {"images": [{"id": "other"}], "annotations": []})
    with pytest.raises(ValueError, match=r"photos_of=.*half.json has no photo of r"):
        ShareOfPhotos(share=1.0, photos_of=str(file))(roster, context())


@pytest.mark.parametrize("share", [0, 1.5, 0.01])
def test_shares_without_photos_are_refused(roster, share):
    with pytest.raises(ValueError, match=r"steps\.share_of_photos\.share"):
        share_of_photos(roster, share, seed=0)


def test_as_many_pairs_as_asked_for_and_only_of_the_photos_left(roster, folder):
    def added(share, of, is_cut=True):
        roster_ = with_added(of, [folder], share=share, is_cut=is_cut)
        return {s.image_id for s in roster_.samples if s.origin == "added:pairs"}

    assert len(added(0.2, roster)) == 4
    assert added(0.1, roster) < added(0.2, roster)
    assert added(0.0, roster) == set()
    assert len(added(None, roster, is_cut=False)) == 10
    half = share_of_photos(roster, 0.5, seed=0)
    remaining = {f"x{name[1:]}" for name in half.rows_by_image if int(name[1:]) < 10}
    assert added(None, half) == remaining
    with pytest.raises(ValueError, match="the folders have 10 that fit"):
        added(0.9, roster)


def test_added_pairs_make_no_epoch_longer_where_updates_are_of_the_own_captions(roster, folder):
    more = with_added(roster, [folder])
    assert (len(original_samples(more)), len(more)) == (40, 50)

    def batches(of: Roster, **options) -> int:
        module = CaptionDataModule(
            splits=Splits(train=of, val=of),
            tokenizer=WordTokenizer.build(["a dog", "a cat"], min_count=1),
            readers={},
            loader=LoaderSettings(batch_size=8, **options),
        )
        assert len(module.train_dataloader().sampler) == module.updates_per_epoch
        return module.updates_per_epoch

    assert batches(more, original_updates=True) == batches(roster, original_updates=True) == 5
    assert batches(more) == 7
    single = {"one_caption": True, "captions_per_image": 1}
    assert batches(more, original_updates=True, **single) == batches(roster, **single) == 3
    assert batches(more, **single) == 4  # 30 images
    with pytest.raises(ValueError, match="original_updates"):
        batches(more, original_updates=True, fixed_updates=False)


def test_a_share_may_be_of_the_captions(roster, folder):
    def added(share: float, of: str) -> int:
        roster_ = with_added(roster, [folder], share=share, share_of=of)
        return len(roster_) - len(roster)

    assert (added(0.2, "photos"), added(0.2, "captions")) == (4, 8)
    with pytest.raises(ValueError, match=r"0\.3 of 40 captions needs 12, but the folders have 10"):
        added(0.3, "captions")
    with pytest.raises(ValueError, match="photos or captions: got 'images'"):
        added(0.2, "images")


def test_a_share_tells_the_steps_behind_it_what_it_leaves_out(roster, folder):
    after = context()
    selected = ShareOfPhotos(share=0.5)(roster, after)
    assert after.is_cut
    assert [s.sample_id for s in after.left_out] == [
        s.sample_id for s in roster.samples if s.image_id not in selected.rows_by_image
    ]
    behind = AddPairs(folders=[folder])(selected, after).samples[len(selected) :]
    assert {f"p{s.image_id[1:]}" for s in behind} <= selected.rows_by_image.keys()
    unchanged = context()
    assert ShareOfPhotos(share=1)(roster, unchanged) is roster
    assert (unchanged.is_cut, unchanged.left_out) == (False, ())


@pytest.mark.parametrize("share", [-0.1, "all"])
def test_a_share_of_pairs_that_cannot_be_is_named(share):
    with pytest.raises(ValueError, match=r"steps\.add_pairs\.share must be"):
        AddPairs(folders=[], share=share)


def test_words_of_pairs_count_unless_that_is_not_asked(roster, folder):
    for count_words, expected in ((True, frozenset()), (False, {f"added:{folder.name}"})):
        step = context()
        AddPairs(folders=[folder], count_words=count_words)(roster, step)
        assert step.uncounted == expected


@pytest.mark.parametrize("waiting", [0, 2])
def test_held_out_photos_do_not_come_back_as_pairs_or_captions(roster, folder, tmp_path, waiting):
    """Photos that wait for captions are in the roster, but nothing made of them is taken."""
    samples = [
        replace(sample, caption="a bus" if sample.image_id in ("p3", "p12") else "a dog")
        for sample in roster.samples
    ]
    captions = tmp_path / "captions"
    captions.mkdir()
    record = {"caption": "a street", "phrases": [], "boxes": []}
    lines = [json.dumps(record | {"image_id": f"p{n}"}) + "\n" for n in (11, 12)]
    (captions / "captions.jsonl").write_text("".join(lines))
    after = context()
    steps = [
        HoldOut(classes={"bus": ["bus"]}, samples_per_photo=waiting),
        AddPairs(folders=[folder, captions]),
    ]
    result = apply_steps(build_roster("r", samples), steps, after)
    assert after.is_cut
    assert ("p3" in result.rows_by_image) == bool(waiting)
    added = [s.image_id for s in result.samples if s.origin.startswith("added:")]
    assert added == [f"x{n}" for n in range(10) if n != 3] + ["p11"]


def test_pictures_of_a_folder_that_tells_no_photos_are_their_own(roster, folder):
    (folder / "provenance.jsonl").unlink()
    assert len(with_added(roster, [folder])) == 50
    assert len(with_added(roster, [folder], is_cut=True)) == 50
