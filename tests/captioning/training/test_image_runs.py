"""Whole runs whose pictures are replaced while they train, or before."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from captioning.training import callbacks
from captioning.training.rosters import read_train
from captioning.training.settings import DataSettings
from curation.journal.journal import read_journal, replay
from tests.run_calls import train

REPLACE = ("curation=replace_image", "curation.select.ratio=0.2")
BEFORE = ("curation/select=share", "curation/schedule=before_training")
STATIC = ("curation=replace_image", *BEFORE)
TOY = (
    "~curation/image_source",
    "+curation.image_source._target_=tests.curation.toy_source.ToySource",
    "+curation.image_source.folder={pictures}",
)


@pytest.fixture
def toy(tmp_path: Path) -> tuple[str, ...]:
    return tuple(entry.format(pictures=tmp_path / "pictures") for entry in TOY)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]


def same(folder: Path, other_folder: Path) -> None:
    for name in ("curation.jsonl", "curation/epochs.json", "metrics.json", "predictions.json"):
        assert (folder / name).read_bytes() == (other_folder / name).read_bytes(), name
    first, second = weights(folder), weights(other_folder)
    assert all(torch.equal(first[key], second[key]) for key in first)


def test_replaced_pictures_are_trained_on_and_kept_in_the_run_folder(small, toy, tmp_path):
    config = small("num_epochs=2", *REPLACE, *toy)
    train(config)
    folder = tmp_path / "run"
    _, edits = read_journal(folder)
    assert [edit.epoch for edit in edits] == [0] * 20 + [1] * 20
    for edit in edits:
        assert edit.value.startswith("curation/images/")
        assert (folder / edit.value).is_file()
        assert edit.origin.startswith("toy:0 ")
    shutil.rmtree(tmp_path / "pictures")  # the run folder is enough, wherever it lies
    moved = shutil.move(folder, tmp_path / "elsewhere")
    view = replay(read_train(DataSettings.of(config))[0], moved)
    replaced = [sample for sample in view.samples() if sample.origin.startswith("toy:")]
    assert len({sample.sample_id for sample in replaced}) == len({e.sample_id for e in edits})
    assert all(sample.image_path.is_file() for sample in replaced)
    record = json.loads((Path(moved) / "curation" / "epochs.json").read_text())[0]
    assert (record["num_image_replaced"], record["notes"]) == (20, {"drawn": 20})
    assert record["num_live_after"] == 100


@pytest.mark.long
def test_what_is_trained_on_is_the_new_picture(small, toy, tmp_path):
    train(small("num_epochs=2", "curation=track", folder="track"))
    overrides = ("curation=replace_image", "curation.select.ratio=0.8")
    train(small("num_epochs=2", *overrides, *toy, folder="toy"))
    first, second = weights(tmp_path / "track"), weights(tmp_path / "toy")
    assert not all(torch.equal(first[key], second[key]) for key in first)


@pytest.mark.long
@pytest.mark.parametrize("policy", [REPLACE, (*STATIC, "curation.select.ratio=0.4")])
def test_a_killed_run_finds_its_pictures_and_ends_the_same(
    small, toy, tmp_path, monkeypatch, policy
):
    settings = ("num_epochs=3", *policy, *toy)
    train(small(*settings, folder="whole"))
    config = small(*settings, folder="halves")
    original = callbacks.Speed.on_train_batch_end

    def interrupt(self, trainer, *args) -> None:
        if trainer.current_epoch == 1 and args[-1] == 1:
            raise KeyboardInterrupt
        original(self, trainer, *args)

    monkeypatch.setattr(callbacks.Speed, "on_train_batch_end", interrupt)
    with pytest.raises(KeyboardInterrupt, match="resume=auto"):
        train(config)
    monkeypatch.undo()
    shutil.rmtree(tmp_path / "pictures")
    train(config)
    same(tmp_path / "whole", tmp_path / "halves")


@pytest.mark.long
def test_a_branch_with_pictures_ends_as_if_trained_alone(small, toy, tmp_path):
    policy = ("num_epochs=3", "curation=replace_both", "curation.select.ratio=0.2")
    policy = (*policy, "curation.schedule.from_epoch=1", *toy)
    train(small(*policy, folder="alone"))
    train(small("num_epochs=3", "curation=track", "keep_every_epoch=true", folder="tracked"))
    shared = tmp_path / "tracked" / "checkpoints" / "epoch1.ckpt"
    train(small(*policy, f"branch_from={shared}", folder="branch"))
    same(tmp_path / "alone", tmp_path / "branch")
    static = ("num_epochs=3", *STATIC, *toy)
    with pytest.raises(ValueError, match="acts before training"):
        train(small(*static, f"branch_from={shared}", folder="static"))


@pytest.mark.long
@pytest.mark.parametrize("amend", ["remove", "replace_both"])
def test_any_amender_can_act_before_training(small, toy, tmp_path, amend):
    static = (f"curation={amend}", *BEFORE, "curation.select.ratio=0.4")
    source = toy if amend == "replace_both" else ()
    train(small("num_epochs=1", "steps=[plant_swap20]", *static, *source))
    _, edits = read_journal(tmp_path / "run")
    assert {edit.epoch for edit in edits} == {-1}
    assert len({edit.sample_id for edit in edits}) == 40
    records = json.loads((tmp_path / "run" / "curation" / "epochs.json").read_text())
    assert [record["epoch"] for record in records] == [-1, 0]
    assert records[0]["num_live_after"] == (60 if amend == "remove" else 100)
    assert records[1]["num_selected"] == 0


@pytest.mark.long
def test_pixels_of_new_pictures_go_through_the_backbone(small, toy, tmp_path):
    pixels = (
        "features=none",
        "features.backbone.name=test_resnet.r160_in1k",
        "features.backbone.weights=random",
        "features.backbone.image_size=64",
    )
    policy = ("num_epochs=2", "first_images=8", *REPLACE)
    train(small(*pixels, *policy, *toy))
    assert len(read_journal(tmp_path / "run")[1]) == 16
