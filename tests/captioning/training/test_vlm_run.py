"""Image-to-text models of transformers trained, curated, evaluated and saved by configs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from omegaconf import DictConfig, OmegaConf
from transformers import AutoModelForImageTextToText, AutoProcessor

from captioning import Captioner
from captioning.config.compose import compose_config
from captioning.evaluation.predict import load_run, predict_run
from captioning.export.export import export
from captioning.training import callbacks
from tests.run_calls import train
from tests.tiny_vlm import batch_of, captioner, model_folder

LORA = "{rank:2,alpha:4,dropout:0.0,modules:[query,value],within:'*encoder.layer.*'}"


@pytest.fixture
def vlm(cache: Path, tmp_path: Path) -> Callable[..., DictConfig]:
    """A resolved config of a small run of a family."""

    def build(*overrides: str, family: str = "git", folder: str = "run") -> DictConfig:
        chosen = [
            "experiment=vlm/fine_tuning",
            f"model.pretrained={model_folder(family)}",
            "data=miniworld_tiny",
            "first_images=12",
            "num_epochs=2",
            "loader.batch_size=8",
            "search.beam_size=2",
            "search.max_length=6",
            "optimizer.lr=1e-3",
            "metrics.test=[BLEU,CIDEr-D]",
            "metrics.tokenizer=python",
            "logger=none",
            "monitor=last",
            "trainer.accelerator=cpu",
            "trainer.precision=32-true",
            f"paths.cache={cache}",
            f"run_dir={tmp_path / folder}",
        ]
        config = compose_config("train", [*chosen, *overrides])
        OmegaConf.resolve(config)
        return config

    return build


def checkpoint(folder: Path) -> dict:
    return torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)


@pytest.mark.long
def test_a_curated_run_is_evaluated_and_saved_for_transformers(vlm, tmp_path: Path) -> None:
    scores = train(vlm("curation=remove", "curation.select.ratio=0.1", "model.prompt=a photo of"))
    folder = tmp_path / "run"
    journal = [json.loads(line) for line in (folder / "curation.jsonl").read_text().splitlines()]
    assert [entry["action"] for entry in journal[1:]].count("remove") >= 2
    groups, roster, _ = predict_run(folder)
    assert len(groups) == len(roster.rows_by_image) == 12
    saved = json.loads((folder / "predictions.json").read_text())
    assert {e["image_id"]: e["caption"] for e in saved} == {
        group[0].image_id: group[0].caption for group in groups
    }
    assert set(scores) >= {"CIDEr-D", "BLEU-4"}
    model = load_run(folder).model
    model.save_pretrained(tmp_path / "saved")
    network = AutoModelForImageTextToText.from_pretrained(tmp_path / "saved")
    trained = checkpoint(folder)["state_dict"]
    for name, value in network.state_dict().items():
        assert torch.equal(value, trained[f"network.{name}"]), name
    assert AutoProcessor.from_pretrained(tmp_path / "saved").tokenizer("a dog").input_ids


def test_low_rank_runs_keep_only_what_they_trained(vlm, tmp_path: Path) -> None:
    pytest.importorskip("peft", reason="needs peft")
    train(vlm(f"+model.lora={LORA}", "model.weights=bfloat16"))
    weights = checkpoint(tmp_path / "run")["state_dict"]
    assert weights
    assert all(".lora_" in name for name in weights)
    assert {value.dtype for value in weights.values()} == {torch.float32}
    assert any(value.abs().sum() > 0 for name, value in weights.items() if ".lora_B" in name)
    groups, _, _ = predict_run(tmp_path / "run")
    saved = json.loads((tmp_path / "run" / "predictions.json").read_text())
    assert {e["image_id"]: e["caption"] for e in saved} == {
        group[0].image_id: group[0].caption for group in groups
    }


def test_a_run_on_quantized_weights_is_evaluated_and_exported_with_its_losses(
    vlm, tmp_path: Path, caplog
) -> None:
    pytest.importorskip("peft", reason="needs peft")
    pytest.importorskip("torchao", reason="needs torchao")
    chosen = ("model.quantize=int8", "num_epochs=1")
    with pytest.raises(
        ValueError, match="model.quantize=int8: quantized weights cannot be trained"
    ):
        train(vlm(*chosen))
    train(vlm(f"+model.lora={{kind:dora,{LORA[1:]}", *chosen, folder="quantized"))
    added = f"+model.lora={{kind:dora,{LORA[1:]}"
    with pytest.raises(ValueError, match=r"start_from=.*is null, .* model\.quantize=int8; set"):
        train(vlm(added, f"start_from={tmp_path / 'quantized'}", folder="dense"))
    weights = checkpoint(tmp_path / "quantized")["state_dict"]
    assert weights
    assert all(".lora_" in name for name in weights)
    with caplog.at_level("INFO"):
        groups, _, _ = predict_run(tmp_path / "quantized")
    assert "model.quantize=int8: " in caplog.text
    saved = json.loads((tmp_path / "quantized" / "predictions.json").read_text())
    assert {e["image_id"]: e["caption"] for e in saved} == {
        group[0].image_id: group[0].caption for group in groups
    }
    target = export(str(tmp_path / "quantized"), str(tmp_path / "captioner"))
    assert "quantized as by `model.quantize=int8`" in (Path(target) / "README.md").read_text()
    dense, own = Captioner.load(target).model, load_run(tmp_path / "quantized").model
    batch = batch_of(target, own.tokenizer)
    losses = [model.eval().losses(batch).per_sample for model in (dense, own)]
    torch.testing.assert_close(*losses, atol=1e-6, rtol=1e-6)
    assert (captioner(model_folder("git")).losses(batch).per_sample - losses[0]).abs().max() > 1e-4


@pytest.mark.long
@pytest.mark.parametrize(("kind", "package"), [("int8", "torchao"), ("nf4", "bitsandbytes")])
def test_a_quantized_run_resumes_to_the_bit(
    kind: str, package: str, vlm, tmp_path: Path, monkeypatch
) -> None:
    pytest.importorskip("peft", reason="needs peft")
    pytest.importorskip(package, reason=f"needs {package}")
    dropped = LORA.replace("dropout:0.0", "dropout:0.1")
    chosen = (
        f"+model.lora={dropped}",
        f"model.quantize={kind}",
        "loader.like_lengths=true",
        "curation=remove",
    )
    train(vlm(*chosen, folder="complete"))
    original = callbacks.Speed.on_train_batch_end

    def interrupt(self, trainer, *args) -> None:
        if trainer.current_epoch == 1 and args[-1] == 1:
            raise KeyboardInterrupt
        original(self, trainer, *args)

    monkeypatch.setattr(callbacks.Speed, "on_train_batch_end", interrupt)
    with pytest.raises(KeyboardInterrupt):
        train(vlm(*chosen, folder="halves"))
    monkeypatch.undo()
    train(vlm(*chosen, folder="halves"))
    complete, halves = tmp_path / "complete", tmp_path / "halves"
    for name in ("curation.jsonl", "metrics.json", "predictions.json", "history.json"):
        assert (complete / name).read_bytes() == (halves / name).read_bytes(), name
    first, second = (checkpoint(folder)["state_dict"] for folder in (complete, halves))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.long
def test_frozen_weights_that_training_converts_are_still_known(vlm, tmp_path: Path) -> None:
    pytest.importorskip("peft", reason="needs peft")
    train(vlm(f"+model.lora={LORA}", "num_epochs=1", "trainer.precision=bf16-true"))
    groups, _, _ = predict_run(tmp_path / "run")
    assert len(groups) == 12


@pytest.mark.long
def test_low_rank_runs_are_resumed_to_the_bit(vlm, tmp_path: Path, monkeypatch) -> None:
    pytest.importorskip("peft", reason="needs peft")
    train(vlm(f"+model.lora={LORA}", folder="straight"))
    original = callbacks.Speed.on_train_batch_end

    def interrupt(self, trainer, *args) -> None:
        if trainer.current_epoch == 1 and args[-1] == 1:
            raise KeyboardInterrupt
        original(self, trainer, *args)

    config = vlm(f"+model.lora={LORA}", folder="resumed")
    with monkeypatch.context() as patch:
        patch.setattr(callbacks.Speed, "on_train_batch_end", interrupt)
        with pytest.raises(KeyboardInterrupt, match="resume=auto"):
            train(config)
    train(vlm(f"+model.lora={LORA}", folder="resumed"))
    straight, resumed = (checkpoint(tmp_path / name) for name in ("straight", "resumed"))
    for name, value in straight["state_dict"].items():
        assert torch.equal(value, resumed["state_dict"][name]), name


@pytest.mark.long
def test_other_frozen_weights_are_refused(vlm, tmp_path: Path) -> None:
    pytest.importorskip("peft", reason="needs peft")
    folder = shutil.copytree(model_folder("git"), tmp_path / "model")
    train(vlm(f"+model.lora={LORA}", "num_epochs=1", f"model.pretrained={folder}"))
    network = AutoModelForImageTextToText.from_pretrained(folder)
    with torch.no_grad():
        network.output.bias += 1
    network.save_pretrained(folder)
    with pytest.raises(ValueError, match=r"other weights than model.pretrained=.*output.bias"):
        predict_run(tmp_path / "run")


@pytest.mark.long
def test_a_model_is_searched_by_its_own_generate(vlm, tmp_path: Path) -> None:
    settings = ("search=generate", "search.max_length=5", "tokenizer.max_tokens=128")
    train(vlm(*settings, "num_epochs=1", family="qwen2_vl"))
    groups, _, decoding = predict_run(tmp_path / "run")
    assert decoding["search"]["_target_"].endswith("GenerateSearch.with_settings")
    assert len(groups) == 12


@pytest.mark.long
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "config.json").unlink(), r"no config.json in it"),
        (lambda folder: (folder / "model.safetensors").unlink(), r"no model.safetensors in it"),
        (
            lambda folder: (folder / "processor_config.json").unlink(),
            r"no processor_config.json or preprocessor_config.json",
        ),
        (lambda folder: other_processor(folder), r"BlipProcessor does not fit .*'git'"),
        (lambda folder: other_kind(folder), r"reads text and no photos"),
    ],
)
def test_folders_that_do_not_work_are_refused(damage, message, vlm, tmp_path: Path) -> None:
    folder = shutil.copytree(model_folder("git"), tmp_path / "model")
    damage(folder)
    with pytest.raises((FileNotFoundError, ValueError), match=message):
        train(vlm(f"model.pretrained={folder}"))


def other_processor(folder: Path) -> None:
    for name in ("processor_config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(model_folder("blip") / name, folder / name)


def other_kind(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "bert"}))


def test_a_hub_name_without_network_says_what_to_download(vlm, monkeypatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    message = r"hf download someone/captioner --revision 0{40} --local-dir FOLDER"
    with pytest.raises(ConnectionError, match=message):
        train(vlm(f"model.pretrained=someone/captioner@{'0' * 40}"))


@pytest.mark.long
def test_photos_of_another_reader_are_refused(vlm) -> None:
    with pytest.raises(ValueError, match="choose features=vlm"):
        train(vlm("features=efficientnet_lite0_grid", "features.backbone.weights=random"))
