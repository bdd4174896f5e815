"""Training begins with a run, an export, or the captioner in the package, and learns new words."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from omegaconf import DictConfig

from captioning.config.compose import compose_config
from captioning.data.batches.datamodule import CaptionDataModule
from captioning.export.export import export
from captioning.inference import loading
from captioning.models.base import AbstractCaptioner
from captioning.results.checkpoints import load_checkpoint
from captioning.text.tokenizers.words import SPECIAL, WordTokenizer
from captioning.training.callbacks import StartScore
from captioning.training.inputs import load_inputs
from captioning.training.preflight import check_settings, settings_of
from captioning.training.run import build_captioner
from captioning.training.settings import TrainSettings
from captioning.training.start import Start, load_start
from captioning.vision.backbones import build_backbone
from tests import tiny
from tests.run_calls import train

Small = Callable[..., DictConfig]


def begun(config: DictConfig) -> tuple[AbstractCaptioner, CaptionDataModule]:
    """The captioner that a training begins with, and its data."""
    settings = TrainSettings.of(config)
    return build_captioner(settings, load_inputs(settings))


def started(config: DictConfig) -> Start | None:
    """What the config's ``start_from`` names."""
    return load_start(config.start_from, features=config.features.name)


@pytest.fixture
def run(trained: Callable[..., Path]) -> Path:
    return trained("num_epochs=1", "tokenizer.min_count=6", folder="first")


def weights_of(run: Path) -> dict[str, torch.Tensor]:
    return load_checkpoint(run / "checkpoints" / "best.ckpt")["state_dict"]


def test_an_export_begins_as_its_run_does(small: Small, run: Path, tmp_path: Path) -> None:
    exported = export(run, tmp_path / "exported")
    for place in (run, exported):
        config = small(f"start_from={place}")
        model, _ = begun(config)
        for name, tensor in weights_of(run).items():
            assert torch.equal(model.state_dict()[name], tensor), name


@pytest.mark.long
def test_new_words_stand_behind_the_others_and_are_learnt(
    small: Small, run: Path, tmp_path: Path
) -> None:
    known = load_checkpoint(run / "checkpoints" / "best.ckpt")
    words = known["captioner"]["tokenizer"]["words"]
    config = small(f"start_from={run}", "new_words=1", "num_epochs=1", folder="second")
    model, _ = begun(config)
    assert isinstance(model.tokenizer, WordTokenizer)
    grown = model.tokenizer.words[len(SPECIAL) :]
    assert list(grown[: len(words)]) == words
    assert len(grown) > len(words)
    size = len(SPECIAL) + len(words)
    for name in ("embed.weight", "output.weight", "output.bias"):
        tensor = model.state_dict()[name]
        assert torch.equal(tensor[:size], known["state_dict"][name])
        assert len(tensor) == len(model.tokenizer)
    first = model.state_dict()["output.weight"][size:].clone()
    train(config)
    assert (weights_of(tmp_path / "second")["output.weight"][size:] != first).any()


def test_new_words_stand_before_the_placeholders_of_objects(monkeypatch) -> None:
    old, checkpoint = tiny.build("cos_cvae"), {}
    old.on_save_checkpoint(checkpoint)
    weights = old.state_dict()
    start = Start(name="base", captioner=checkpoint["captioner"], weights=weights, features="x")
    words = start.tokenizer(["a unicorn sleeps"] * 2, new_words=2)
    known, size = len(old.tokenizer), len(words)
    assert size > known
    monkeypatch.setattr(tiny, "tokenizer", lambda: words)
    model = tiny.build("cos_cvae", seed=1)
    first = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    start.begin(model)
    grown = model.state_dict()
    for name in ("latents.context.embed.weight", "latents.objects.embed.weight"):
        assert torch.equal(grown[name][:known], weights[name][:known])
        assert torch.equal(grown[name][known:size], first[name][known:size])
        assert torch.equal(grown[name][size:], weights[name][known:])
    assert torch.equal(grown["decoder.output.weight"][:known], weights["decoder.output.weight"])
    for name in weights.keys() - {
        name for name in weights if len(grown[name]) != len(weights[name])
    }:
        assert torch.equal(grown[name], weights[name]), name


def test_new_words_are_as_frequent_as_in_their_own_captions() -> None:
    old = WordTokenizer.build(["a dog runs"] * 50, min_count=1)
    new = old.with_words(["a lynx", "a lynx", "one owl"], min_count=2)
    assert new.words == (*old.words, "lynx")
    assert old.counts is not None
    assert new.counts is not None
    assert new.counts[-1] == round(sum(old.counts) * 2 / 6)
    assert new.encode("a lynx") == [*old.encode("a")[:-1], len(old), new.eos_id]
    assert WordTokenizer(words=["a"]).with_words(["b"], min_count=1).counts is None


def test_no_words_come_behind_control_tokens() -> None:
    old = WordTokenizer.build(["a dog runs"] * 5, min_count=1, control=True)
    checkpoint = {"tokenizer": old.state()}
    start = Start(name="base", captioner=checkpoint, weights={}, features="x")
    assert start.tokenizer().state() == old.state()
    with pytest.raises(ValueError, match="start_from=base ends with control .* leave new_words"):
        start.tokenizer(["a unicorn sleeps"] * 2, new_words=2)


@pytest.mark.long
def test_what_a_training_begins_with_is_scored_and_nothing_else_changes(
    small: Small, run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The same bits with and without the score: weights, losses, scores and captions."""
    settings = (f"start_from={run}", "new_words=1", "num_epochs=2", "curation=track")
    settings += ("model.module.dropout=0.3", "logger=csv")
    with caplog.at_level("INFO"):
        train(small(*settings, folder="scored"))
    told = "before training, 20 validation images"
    assert caplog.text.count(told) == 1
    train(small(*settings, "start_score=false", folder="unscored"))
    assert caplog.text.count(told) == 1
    scored, unscored = tmp_path / "scored", tmp_path / "unscored"
    for name in ("best.ckpt", "last.ckpt"):
        first, second = (load_checkpoint(f / "checkpoints" / name) for f in (scored, unscored))
        for key, tensor in first["state_dict"].items():
            assert torch.equal(tensor, second["state_dict"][key]), key
    for name in ("history.json", "predictions.json", "curation/losses.npz", "curation.jsonl"):
        assert (scored / name).read_bytes() == (unscored / name).read_bytes(), name
    start = json.loads((scored / "start.json").read_text())
    assert (start["begins_with"], start["num_images"]) == (str(run), 20)
    logged = (scored / "logs" / "csv" / "metrics.csv").read_text().splitlines()[0]
    assert "start/CIDEr-D" in logged
    assert not (unscored / "start.json").exists()


@pytest.mark.long
def test_a_resumed_training_keeps_the_score_that_it_began_with(
    small: Small, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    train(small(f"start_from={run}", "num_epochs=1"))
    (folder / "metrics.json").unlink()
    start = json.loads((folder / "start.json").read_text())
    ended = json.loads((run / "history.json").read_text())[-1]
    assert start["scores"] == {name: ended[name] for name in start["scores"]}
    passes = []
    monkeypatch.setattr(StartScore, "_scored", lambda *_: passes.append(1))
    before = (folder / "start.json").read_bytes()
    (folder / "checkpoints" / "best.ckpt").unlink()
    train(small(f"start_from={run}", "num_epochs=1"))  # goes on from the checkpoint of the epoch
    (folder / "metrics.json").unlink()
    for path in (folder / "checkpoints").iterdir():
        path.unlink()
    train(small(f"start_from={run}", "num_epochs=1"))  # killed before the first checkpoint
    assert passes == []
    assert (folder / "start.json").read_bytes() == before


def test_new_weights_have_no_score_to_begin_with(run: Path) -> None:
    assert not (run / "start.json").exists()


def test_what_cannot_be_begun_with_is_refused_before_training(
    small: Small, run: Path, tmp_path: Path, monkeypatch
) -> None:
    def refused(error: type[Exception], text: str, *overrides: str) -> None:
        with pytest.raises(error, match=text):
            check_settings(settings_of(small(*overrides, folder="other")))

    refused(ValueError, "new_words: adds words to the vocabulary of start_from", "new_words=2")
    nowhere = f"start_from={tmp_path / 'nowhere'}"
    refused(FileNotFoundError, f"{nowhere}: no such folder; give a run", nowhere)
    monkeypatch.setattr(loading, "SHIPPED", tmp_path / "nothing")
    lacks = "start_from=shipped: this version ships no captioner: name a run or an export"
    refused(FileNotFoundError, lacks, "start_from=shipped")


def test_another_size_is_refused_with_what_to_choose(small: Small, run: Path) -> None:
    config = small(f"start_from={run}", "model.module.hidden_size=16")
    with pytest.raises(ValueError, match="first: .*choose the model= and features= of that run"):
        begun(config)


def test_features_of_another_name_are_said(small: Small, run: Path, caplog) -> None:
    assert started(small(f"start_from={run}")) is not None
    assert not caplog.records
    assert started(small(f"start_from={run}", "features.name=others")) is not None
    assert "has features=others: unless both come from the same backbone" in caplog.text


def pixels(*overrides: str) -> tuple[str, ...]:
    """Settings of a small run that trains its backbone."""
    return ("features=none", "features.backbone.weights=random", *overrides)


@pytest.mark.long
def test_a_captioner_of_cached_features_goes_on_with_its_backbone(
    small: Small, run: Path, tmp_path: Path
) -> None:
    exported = export(run, tmp_path / "exported")
    for place in (run, exported):
        config = small(f"start_from={place}", *pixels())
        model, _ = begun(config)
        for name, tensor in weights_of(run).items():
            assert torch.equal(model.state_dict()[name], tensor), name
        start = started(config)
        assert start is not None
        assert bool(start.backbone) == (place == exported)
        for name, tensor in start.backbone.items():
            assert torch.equal(model.state_dict()[f"backbone.{name}"], tensor), name


@pytest.mark.long
def test_a_trained_backbone_makes_the_features_that_its_captioner_goes_on_with(
    small: Small, tmp_path: Path
) -> None:
    train(small(*pixels("num_epochs=1"), folder="first"))
    first = weights_of(tmp_path / "first")
    checkpoint = tmp_path / "first" / "checkpoints" / "best.ckpt"
    cached = (f"features.backbone.weights={checkpoint}", f"start_from={tmp_path / 'first'}")
    config = small(*cached)
    model, _ = begun(config)
    assert not any(name.startswith("backbone.") for name in model.state_dict())
    assert torch.equal(model.state_dict()["embed.weight"], first["embed.weight"])
    backbone = build_backbone(name="test_resnet.r160_in1k", weights=checkpoint)
    for name, tensor in backbone.state_dict().items():
        assert torch.equal(tensor, first[f"backbone.{name}"]), name


def test_the_captioner_in_the_package_fits_the_default_model() -> None:
    config = compose_config("train", ["start_from=shipped"])
    start = started(config)
    assert start is not None
    assert start.features == config.features.name
    sizes = {name: config.model.module[f"{name}_size"] for name in ("hidden", "projection")}
    assert start.weights["hidden_to_gates.weight"].shape[1] == 2 * sizes["hidden"]
    assert start.weights["project.0.weight"].shape[0] == sizes["projection"]
