"""Photos of held-out classes get captions by the captioner, and training goes on with them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from omegaconf import DictConfig
from PIL import Image

from captioning.models.updown import UpDown
from captioning.results.checkpoints import load_checkpoint
from captioning.runtime.files import read_json, write_json
from captioning.training.rosters import read_train
from captioning.training.settings import DataSettings
from captioning.types import Batch, CaptionLosses
from tests.run_calls import train

HELD_OUT = (
    "steps=[hold_out]",
    "steps.hold_out.classes={laptop: [laptop, laptops], bus: [bus, buses]}",
    "tokenizer.extra_words=[laptop, laptops, bus, buses]",
    "metrics.test=[BLEU]",
    "first_images=null",
    "ema_decay=null",
    "optimizer.lr=0.01",
    "data.train.num_scenes=24",
    "monitor=last",
)
SECOND = (
    *HELD_OUT,
    "steps.hold_out.samples_per_photo=2",
    "curation=pseudo_label",
    "curation.schedule.every_n_epochs=1",
    "curation.schedule.until_epoch=0",
    "search.max_length=20",
    "schedule=rounds",
    "schedule.num_rounds=2",
    "num_epochs=2",
)
Small = Callable[..., DictConfig]


def journal(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "curation.jsonl").read_text().splitlines()[1:]]


@pytest.fixture
def first(trained: Callable[..., Path]) -> Path:
    return trained("num_epochs=1", *HELD_OUT, folder="first")


def test_the_test_scores_the_classes_held_out(small: Small, tmp_path) -> None:
    novel = ("extra_metrics=[novel_objects]", "extra_metrics.novel_objects.metrics=[CIDEr-D]")
    train(small("num_epochs=1", *HELD_OUT, *novel, "metrics.tokenizer=python"))
    scores = read_json(tmp_path / "run" / "metrics.json")["test"]
    assert {"F1 out-of-domain", "CIDEr-D in-domain"} <= scores["corpus"].keys()
    assert scores["settings"]["novel_objects"]["forms"]["laptop"] == ["laptop", "laptops"]


@pytest.mark.long
def test_forms_that_a_class_lacks_are_recorded(small: Small, tmp_path, caplog) -> None:
    overrides = ("+steps.hold_out.classes.cake=[cake]", "steps.hold_out.samples_per_photo=1")
    config = small("num_epochs=1", *HELD_OUT, *overrides)
    train(config)
    remaining = [
        s.caption
        for s in read_train(DataSettings.of(config))[0].samples
        if "cakes" in s.caption.lower()
    ]
    assert remaining
    assert read_json(tmp_path / "run" / "held_out_left.json") == {"cakes": len(remaining)}
    assert (
        f"still hold held-out words, with counts: cakes ({len(remaining)}); to hold" in caplog.text
    )
    assert read_train(DataSettings.of(small("num_epochs=1")))[1].held_out_remaining is None


@pytest.mark.long
def test_two_steps_of_partially_supervised_training(small: Small, first: Path, tmp_path) -> None:
    # learns so fast that its captions are others at the next epoch's end
    train(small(*SECOND, "optimizer.lr=0.05", f"start_from={first}", folder="second"))
    edits = [e for e in journal(tmp_path / "second") if e["action"] == "replace_caption"]
    constrained = [e for e in edits if e["origin"] == "pseudo-label:constrained"]
    plain = [e for e in edits if e["origin"] == "pseudo-label:plain"]
    before = [e for e in constrained if e["epoch"] == -1]
    assert len(before) == 3
    assert all({"laptop", "laptops", "bus", "buses"} & set(e["value"].split()) for e in constrained)
    assert all(e["sample_id"].endswith("#unpaired0") for e in constrained)
    assert plain
    assert all(e["sample_id"].endswith("#unpaired1") for e in plain)
    assert {e["epoch"] for e in edits} == {-1, 0}
    # what waited had no weight until it had a caption
    weights = [e for e in journal(tmp_path / "second") if e["action"] == "down_weight"]
    assert {e["value"] for e in weights} == {"1"}
    assert len(weights) == len({e["sample_id"] for e in edits})


@pytest.mark.long
@pytest.mark.parametrize("online", [True, False])
def test_captions_are_written_anew_in_each_batch(
    small: Small, first: Path, tmp_path, monkeypatch, online: bool
) -> None:
    trained_on: list[dict[str, str]] = []
    losses = UpDown.losses

    def noted(self: UpDown, batch: Batch) -> CaptionLosses:
        if self.training:
            texts = [self.tokenizer.decode(row) for row in batch.tokens.tolist()]
            trained_on.append(dict(zip(batch.sample_ids, texts, strict=True)))
        return losses(self, batch)

    monkeypatch.setattr(UpDown, "losses", noted)
    more = ("curation.schedule.until_epoch=-1", "loader.batch_size=20", "optimizer.lr=0.05")
    choice = f"curation.amend.online={online}".lower()
    train(small(*SECOND, *more, choice, f"start_from={first}", folder="on"))
    edits = [e for e in journal(tmp_path / "on") if e["action"] == "replace_caption"]
    before = {edit["sample_id"]: edit["value"] for edit in edits}
    of_batches = [
        {key: text for key, text in batch_texts.items() if key in before}
        for batch_texts in trained_on
    ]
    met = next(batch_texts for batch_texts in of_batches if batch_texts)
    assert all(before[key] == text for key, text in met.items())
    changed = [
        key
        for batch_texts in of_batches
        for key, text in batch_texts.items()
        if before[key] != text
    ]
    assert bool(changed) == online


@pytest.mark.long
def test_a_run_begins_with_anothers_weights_and_words(small: Small, first: Path, tmp_path) -> None:
    more = ("num_epochs=1", "optimizer.lr=0.0", "ema_decay=null", "tokenizer.extra_words=[zebra]")
    train(small(*HELD_OUT, *more, f"start_from={first}", folder="second"))
    old, new = (
        load_checkpoint(folder / "checkpoints" / "last.ckpt")
        for folder in (first, tmp_path / "second")
    )
    assert old["captioner"] == new["captioner"]
    assert old["state_dict"].keys() == new["state_dict"].keys()
    assert all(torch.equal(old["state_dict"][k], v) for k, v in new["state_dict"].items())


def test_a_start_of_another_model_is_refused(small: Small, first: Path) -> None:
    with pytest.raises(ValueError, match=r"start_from=.*first: .*choose the model= and features="):
        train(small(*HELD_OUT, "model.module.hidden_size=16", f"start_from={first}", folder="b"))
    with pytest.raises(FileNotFoundError, match="no such folder; give a run, an export"):
        train(small(*HELD_OUT, f"start_from={first / 'nothing'}", folder="c"))


def test_photos_must_have_a_sample_for_each_search(small: Small, first: Path) -> None:
    with pytest.raises(ValueError, match=r"has 1 samples for 2 pseudo-labels"):
        train(
            small(*SECOND, "steps.hold_out.samples_per_photo=1", f"start_from={first}", folder="b")
        )


def test_pairs_of_a_folder_are_trained_on_too(small: Small, tmp_path: Path) -> None:
    folder = tmp_path / "more"
    (folder / "images").mkdir(parents=True)
    Image.new("RGB", (96, 96), "red").save(folder / "images" / "new.png")
    photo = {"id": "new", "file_name": "new.png", "width": 96, "height": 96}
    caption = {"id": 1, "image_id": "new", "caption": "a red laptop"}
    write_json(folder / "captions.json", {"images": [photo], "annotations": [caption]})
    boxes = {"images": [photo], "annotations": [], "categories": []}
    write_json(folder / "instances.json", boxes)
    added = ("steps=[hold_out,add_pairs]", f"steps.add_pairs.folders=[{folder}]")
    roster, context = read_train(DataSettings.of(small(*HELD_OUT, *added)))
    assert roster.samples[-1].caption == "a red laptop"
    assert roster.samples[-1].origin == "added:more"
    assert "laptop" not in " ".join(sample.caption for sample in roster.samples[:-1])
    # the pairs are made to say the held-out words
    assert context.held_out_remaining == {}
    with pytest.raises(FileNotFoundError, match=r"folders: nowhere has no captions\.json"):
        read_train(DataSettings.of(small("steps=[add_pairs]", "steps.add_pairs.folders=[nowhere]")))
