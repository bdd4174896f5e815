"""From config to run folder: what a run leaves, and that stopping it changes nothing."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

from captioning.config.compose import compose_config
from captioning.evaluation.predict import predict_run
from captioning.interfaces import AbstractTokenizer
from captioning.models.updown import UpDown
from captioning.results.run_folder import RunFolder
from captioning.runtime.file_lock import held
from captioning.training import callbacks, preflight, run
from captioning.training.inputs import load_inputs
from captioning.training.run import build_model
from captioning.training.settings import TrainSettings
from tests.run_calls import train

REPLACE = ("steps=[plant_swap20]", "curation=replace_caption", "curation.select.ratio=0.1")


def weights(folder: Path, name: str = "last.ckpt") -> dict[str, torch.Tensor]:
    return torch.load(folder / "checkpoints" / name, weights_only=True)["state_dict"]


def same_weights(path: Path, other_path: Path) -> bool:
    first, second = weights(path), weights(other_path)
    return first.keys() == second.keys() and all(torch.equal(first[k], second[k]) for k in first)


def test_a_run_leaves_a_folder_that_explains_itself(small, tmp_path: Path) -> None:
    scores = train(small("num_epochs=2", *REPLACE, plots=True))
    folder = tmp_path / "run"
    assert scores == json.loads((folder / "metrics.json").read_text())["test"]["corpus"]
    assert set(scores) == {"BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "CIDEr-D"}
    predictions = json.loads((folder / "predictions.json").read_text())
    assert len(predictions) == len({entry["image_id"] for entry in predictions}) == 20
    truth = json.loads((folder / "noise_truth.json").read_text())
    assert truth
    history = json.loads((folder / "history.json").read_text())
    assert [entry["epoch"] for entry in history] == [0, 1]
    assert all(len(entry["samples"]) == 8 for entry in history)
    assert len((folder / "curation.jsonl").read_text().splitlines()) > 1
    dropped = json.loads((folder / "dropped.json").read_text())
    assert set(dropped) == {f"miniworld_tiny/{split}" for split in ("train", "val", "test_in")}
    versions = json.loads((folder / "versions.json").read_text())
    assert versions["torch"] == version("torch")
    timing = json.loads((folder / "timing.json").read_text())["epochs"]
    assert [entry["updates"] for entry in timing] == [entry["step"] for entry in history]
    for name in ("config.yaml", "curation/report.html", "curation/epoch_000.png"):
        assert (folder / name).stat().st_size > 0


def test_two_and_two_epochs_are_four(small, tmp_path: Path, monkeypatch) -> None:
    train(small("num_epochs=4", *REPLACE, folder="whole"))
    config = small("num_epochs=4", *REPLACE, folder="halves")
    _stop_after(monkeypatch, epochs=2)
    with pytest.raises(KeyboardInterrupt, match="resume=auto"):
        train(config)
    monkeypatch.undo()
    assert not (tmp_path / "halves" / "metrics.json").exists()
    train(config)
    complete, halves = tmp_path / "whole", tmp_path / "halves"
    for name in ("curation.jsonl", "metrics.json", "predictions.json", "history.json"):
        assert (complete / name).read_bytes() == (halves / name).read_bytes(), name
    assert same_weights(complete, halves)
    assert len(json.loads((halves / "versions.json").read_text())["resumed"]) == 1


@pytest.mark.long
def test_a_rate_by_epoch_is_that_of_the_epoch_in_shrunken_and_resumed_runs(
    small, tmp_path: Path, monkeypatch
) -> None:
    config = small(
        "num_epochs=4",
        "schedule=cosine_by_epoch",
        "optimizer.lr=0.004",
        "loader.fixed_updates=false",
        *("curation=remove", "curation.select.ratio=0.5"),
        *("logger=csv", "trainer.log_every_n_steps=1"),
    )
    _stop_after(monkeypatch, epochs=2)
    with pytest.raises(KeyboardInterrupt, match="resume=auto"):
        train(config)
    monkeypatch.undo()
    train(config)
    text = (tmp_path / "run" / "logs" / "csv" / "metrics.csv").read_text(encoding="utf-8")
    logged = [row for row in csv.DictReader(text.splitlines()) if row["train/learning_rate"]]
    assert [row["epoch"] for row in logged] == list("00000111223"), "epochs become shorter"
    shares = (1, 0.853553, 0.5, 0.146447)
    for row in logged:
        rate = 0.004 * shares[int(row["epoch"])]
        assert float(row["train/learning_rate"]) == pytest.approx(rate, rel=1e-5)


def _stop_after(monkeypatch, epochs: int) -> None:
    """Raise what Ctrl-C raises, in the middle of the epoch after ``epochs``."""
    original = callbacks.Speed.on_train_batch_end

    def interrupt(self, trainer, *args) -> None:
        if trainer.current_epoch == epochs and args[-1] == 1:
            raise KeyboardInterrupt
        original(self, trainer, *args)

    monkeypatch.setattr(callbacks.Speed, "on_train_batch_end", interrupt)


@pytest.mark.long
def test_seeds_differ_and_repeat(small, trained, tmp_path: Path) -> None:
    trained("num_epochs=1", folder="a")
    for folder, seed in (("b", 0), ("c", 1)):
        train(small("num_epochs=1", f"seed={seed}", folder=folder))
    assert same_weights(tmp_path / "a", tmp_path / "b")
    assert not same_weights(tmp_path / "a", tmp_path / "c")


def test_a_finished_run_is_not_trained_again(small, tmp_path: Path) -> None:
    config = small("num_epochs=1")
    scores = train(config)
    checkpoint = tmp_path / "run" / "checkpoints" / "last.ckpt"
    before = checkpoint.stat().st_mtime_ns
    written = (tmp_path / "run" / "versions.json").read_bytes()
    ended: list[object] = []
    assert train(config, lambda _, datamodule: ended.append(datamodule)) == scores
    assert ended == [None], "what a kill may have cut short is not done again"
    assert checkpoint.stat().st_mtime_ns == before
    assert (tmp_path / "run" / "versions.json").read_bytes() == written


def test_a_run_without_a_test_ends_and_is_finished(small, tmp_path: Path) -> None:
    config = small("num_epochs=1", "data.test=null")
    assert train(config) == {}
    assert RunFolder(tmp_path / "run").finished()
    ended: list[object] = []
    assert train(config, lambda _, datamodule: ended.append(datamodule)) == {}
    assert ended == [None]
    for path in (tmp_path / "run" / "checkpoints").iterdir():
        path.unlink()
    with pytest.raises(ValueError, match="holds a run with another config"):
        train(small("num_epochs=1", "data.test=null", "seed=7"))


@pytest.mark.long
def test_a_run_killed_after_its_last_epoch_ends_with_its_report(small, tmp_path: Path) -> None:
    train(small("num_epochs=1", "curation=remove"))
    run = next(tmp_path.rglob("metrics.json")).parent
    for name in ("metrics.json", "curation/report.html"):
        (run / name).unlink()
    train(small("num_epochs=1", "curation=remove"))
    assert (run / "curation" / "report.html").is_file()


def test_two_programs_do_not_train_in_one_folder(small, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(run, "LOCK_SECONDS", 0.05)
    settings = {"subject": "", "warn": print, "seconds": 0.0}
    with (
        held(tmp_path / ".run.lock", **settings),
        pytest.raises(ValueError, match=r"run_dir=\S+ is in use by process \d+ on"),
    ):
        train(small("num_epochs=1"))
    assert not (tmp_path / "run").exists()


def test_the_gpu_of_a_training_is_taken_before_anything_is_built(small, monkeypatch) -> None:
    class Taken(Exception):
        pass

    def take(number: int) -> None:
        raise Taken(number)

    monkeypatch.setattr(run, "uses_cuda", lambda config: True)
    monkeypatch.setattr(run, "own_device", lambda config: torch.device("cuda", 3))
    monkeypatch.setattr(run, "take_gpu", take)
    monkeypatch.setattr(run, "build", lambda *arguments: pytest.fail("built before"))
    with pytest.raises(Taken, match="3"):
        train(small())


@pytest.mark.long
def test_another_config_is_refused_the_folder_and_never_sets_it_aside(small, tmp_path) -> None:
    train(small("num_epochs=1"))
    with pytest.raises(ValueError, match=r"optimizer\.lr: 0\.001 -> 0\.5"):
        train(small("num_epochs=1", "optimizer.lr=0.5"))
    train(small("num_epochs=1", "optimizer.lr=0.5", "resume=never"))
    assert RunFolder(tmp_path / "run.old1").config().optimizer.lr == 0.001
    assert RunFolder(tmp_path / "run").config().optimizer.lr == 0.5


def test_a_checkpoint_path_that_is_no_file_is_named(small) -> None:
    with pytest.raises(FileNotFoundError, match=r"resume=nowhere\.ckpt"):
        train(small("resume=nowhere.ckpt"))


def test_a_keep_list_that_is_not_there_is_refused_before_anything_is_read(small, tmp_path) -> None:
    with pytest.raises(FileNotFoundError, match=r"curation.keep=nowhere\.json: no such keep-list"):
        train(small("curation=remove", "curation.keep=nowhere.json"))
    assert not (tmp_path / "run").exists()


def test_an_unwritable_folder_is_refused_before_anything_is_read(small, tmp_path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(PermissionError, match="run_dir="):
        train(small(folder="file/run"))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("num_epochs=0", "num_epochs: must be a whole number of at least 1"),
        ("num_epochs=many", "num_epochs: must be a whole number of at least 1, got many"),
        ("ema_decay=1.5", "ema_decay: must be a number above 0 and below 1"),
        ("first_images=0", "first_images: must be a whole number of at least 1"),
        ("steps=[hold_out]", "steps.hold_out.classes: must be given"),
    ],
)
def test_settings_out_of_range_are_named(small, override: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        train(small(override))


@pytest.mark.parametrize(
    ("search", "message"),
    [
        ("constrained", "ConstrainedBeamSearch needs words for each image"),
        ("latents", "search=latents needs a model with latents.*got UpDown;"),
        ("latents_published", "search=latents_published needs a model with latents.*got UpDown;"),
        ("generate", "search=generate needs a model with its own search.*got UpDown;"),
    ],
)
def test_a_search_that_cannot_work_is_refused_before_anything_is_read(
    small, tmp_path: Path, search: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        train(small(f"search={search}", "search.max_length=8"))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "overrides",
    [
        ("search=beam_allennlp",),
        ("model=cos_cvae_small", "search=latents"),
        ("model=cos_cvae_small", "search=latents_published"),
        ("model=vlm", "search=generate"),
    ],
)
def test_a_search_that_fits_the_model_may_train(small_settings, tmp_path, overrides) -> None:
    own = [*small_settings, f"run_dir={tmp_path / 'run'}", *overrides]
    preflight._check_search(TrainSettings.of(compose_config("train", own)))


def built_by_a_function(**parts: Any) -> UpDown:
    """A captioner of whose class the config does not tell."""
    return UpDown(**parts)


def test_a_search_is_checked_with_what_a_function_has_built(small, monkeypatch) -> None:
    config = small("search=latents", "search.max_length=8")
    target = f"{__name__}.{built_by_a_function.__name__}"
    config.model.module._target_ = target
    settings = TrainSettings.of(config)
    preflight._check_search(settings)
    with pytest.raises(ValueError, match="search=latents needs a model with latents"):
        run.build_captioner(settings, load_inputs(settings))


def test_a_loss_that_is_not_finite_stops_the_run(small) -> None:
    with pytest.raises(ValueError, match=r"loss is .* at epoch 0, step"):
        train(small("optimizer.lr=1e30", "trainer.gradient_clip_val=null", "num_epochs=2"))


def test_a_run_describes_other_splits_with_its_own_vocabulary(trained, tmp_path: Path) -> None:
    trained("num_epochs=1")
    predictions, roster, _ = predict_run(tmp_path / "run", split="test_near")
    assert {group[0].image_id for group in predictions} == set(roster.rows_by_image)
    again, *_ = predict_run(tmp_path / "run", split="test")
    stored = json.loads((tmp_path / "run" / "predictions.json").read_text())
    assert {p.image_id: p.caption for [p] in again} == {e["image_id"]: e["caption"] for e in stored}
    greedy = OmegaConf.create(
        {"_target_": "captioning.decoding.greedy.GreedySearch.with_settings", "max_length": 1}
    )
    words, _, decoding = predict_run(tmp_path / "run", search=greedy)
    assert {len(p.caption.split()) for [p] in words} == {1}
    assert decoding["search"]["max_length"] == 1
    assert decoding["rerank"] is None
    with pytest.raises(ValueError, match=r"data\.nosuch is not set"):
        predict_run(tmp_path / "run", split="nosuch")


@pytest.mark.long
def test_photos_can_train_the_backbone_end_to_end(small, tmp_path: Path) -> None:
    train(
        small(
            "features=none",
            "features.backbone.name=test_resnet.r160_in1k",
            "features.backbone.weights=random",
            "features.backbone.image_size=64",
            "num_epochs=1",
            "first_images=8",
        )
    )
    assert any(name.startswith("backbone.") for name in weights(tmp_path / "run"))


@pytest.mark.long
def test_a_policy_that_branches_ends_as_if_trained_alone(small, tmp_path: Path) -> None:
    policy = ("num_epochs=4", *REPLACE, "curation.schedule.from_epoch=1")
    train(small(*policy, folder="alone"))
    tracked = ("num_epochs=4", "steps=[plant_swap20]", "curation=track")
    train(small(*tracked, "keep_every_epoch=true", folder="tracked"))
    shared = tmp_path / "tracked" / "checkpoints" / "epoch1.ckpt"
    train(small(*policy, f"branch_from={shared}", folder="branch"))
    alone, branch = tmp_path / "alone", tmp_path / "branch"
    names = (
        "curation.jsonl",
        "curation/epochs.json",
        "curation/losses.npz",
        "curation/report.html",
    )
    for name in (*names, "metrics.json", "predictions.json", "history.json"):
        assert (alone / name).read_bytes() == (branch / name).read_bytes(), name
    assert len((branch / "curation.jsonl").read_text().splitlines()) > 1
    assert same_weights(alone, branch)
    assert not same_weights(alone, tmp_path / "tracked")

    early = (*policy, "curation.schedule.from_epoch=0")
    with pytest.raises(ValueError, match=r"acts at the end of epoch 0.*from_epoch=1"):
        train(small(*early, f"branch_from={shared}", folder="early"))
    with pytest.raises(ValueError, match=r"more than its curation \(optimizer\.lr: "):
        train(small(*policy, "optimizer.lr=0.5", f"branch_from={shared}", folder="other"))
    older = OmegaConf.load(tmp_path / "tracked" / "config.yaml")
    del older.start_from
    older.tracked = "runs/before/they/were/moved"  # where to branch from says nothing of the run
    OmegaConf.save(older, tmp_path / "tracked" / "config.yaml")
    train(small(*policy, f"branch_from={shared}", folder="newer"))
    assert same_weights(alone, tmp_path / "newer")
    edited = branch / "checkpoints" / "last.ckpt"
    with pytest.raises(ValueError, match="can only branch from a run that changed nothing"):
        train(small(*tracked, f"branch_from={edited}", folder="edited"))
    with pytest.raises(FileNotFoundError, match="keep_every_epoch=true"):
        train(small(*policy, "branch_from=nowhere.ckpt", folder="nowhere"))


@pytest.mark.long
def test_automatic_precision_is_that_of_the_device(small, tmp_path: Path, monkeypatch) -> None:
    for is_fast, precision in ((True, "bf16-mixed"), (False, "32-true")):
        monkeypatch.setattr(
            preflight, "fast_bfloat16", lambda accelerator, is_fast=is_fast: is_fast
        )
        train(small("num_epochs=1", "trainer.precision=auto", folder=precision))
        assert RunFolder(tmp_path / precision).config().trainer.precision == precision


def test_a_gpu_itself_is_asked_for_bfloat16(monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for is_fast in (True, False):
        monkeypatch.setattr(
            torch.cuda,
            "is_bf16_supported",
            lambda including_emulation, is_fast=is_fast: is_fast and not including_emulation,
        )
        for accelerator in ("auto", "gpu", "cuda"):
            assert preflight.fast_bfloat16(accelerator) == is_fast
    assert not preflight.fast_bfloat16("tpu")


class Pieces(AbstractTokenizer):
    """A tokenizer whose tokens are no words."""

    pad_id = bos_id = eos_id = unk_id = 0

    def __len__(self) -> int:
        return 1

    def encode(self, caption: str) -> list[int]:
        return [0]

    def decode(self, ids: Sequence[int]) -> str:
        return ""

    def state(self) -> dict[str, Any]:
        return {}


def test_word_vectors_without_words_name_the_tokenizer() -> None:
    settings = TrainSettings.of(compose_config("train", ["model=updown_small"]))
    vectors = OmegaConf.create({"_target_": "no.matter"})
    settings = replace(settings, model=replace(settings.model, word_vectors=vectors))
    nothing = SimpleNamespace(backbone=None)
    with pytest.raises(ValueError, match=r"got Pieces; choose tokenizer=words"):
        build_model(settings, Pieces(), inputs=SimpleNamespace(pictures=nothing), horizon=1)
