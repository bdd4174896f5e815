"""Settings for speed: what `auto` comes to, half precision, accumulation, out of memory."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from omegaconf import OmegaConf
from torch.utils.data import DataLoader

from captioning.config.compose import compose_config
from captioning.models.blip import Blip
from captioning.models.layers.graphed_recurrence import GraphedRecurrence
from captioning.models.training_steps import trainable
from captioning.runtime.sample_dropout import use_torchs
from captioning.training import run as running
from captioning.training.preflight import settled
from captioning.training.run import set_up
from captioning.training.settings import TrainSettings
from captioning.training.speed import (
    HalfWeights,
    MixedBfloat,
    check_speed,
    compile_model,
    own_device,
    precision_plugin,
    set_cuda_graphs,
    set_matmul_precision,
    tell_of_speed,
)
from captioning.vision.blip import build_blip_vision
from tests.captioning.training.process_run import CASES as PROCESS_CASES
from tests.captioning.training.process_run import captioner
from tests.run_calls import train
from tests.tiny import MODELS, NUM_IMAGES, build, make_batch

SHARDS = {"_target_": "pytorch_lightning.strategies.ModelParallelStrategy"}
HALVES = [name for name in MODELS if build(name).half_weights]


def config(**settings: Any) -> Any:
    """A config with the keys that speed depends on."""
    base = {
        "optimizer": {"_target_": "torch.optim.AdamW", "fused": "auto"},
        "trainer": {"accelerator": "auto", "precision": "32-true", "gradient_clip_val": 5.0},
        "speed": {"matmul_precision": None, "compile": False},
        "ema_decay": None,
    }
    return OmegaConf.merge(OmegaConf.create(base), OmegaConf.create(settings))


@functools.cache
def composed() -> Any:
    """A training's config that takes further keys."""
    return OmegaConf.create(OmegaConf.to_container(compose_config("train"), resolve=True))


def settings_of(**settings: Any) -> TrainSettings:
    """The settings of a training with those that speed depends on."""
    return TrainSettings.of(OmegaConf.merge(composed(), config(**settings)))


@pytest.fixture
def with_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)


def pixels_model() -> tuple[Blip, Any]:
    """A BLIP that reads bytes, and a batch of them."""
    sizes = {"hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2}
    backbone = build_blip_vision(**sizes, intermediate_size=16, image_size=16, patch_size=8)
    model = build("blip")
    model.backbone = backbone
    generator = torch.Generator().manual_seed(0)
    size = (NUM_IMAGES, 3, 16, 16)
    images = torch.randint(256, size, dtype=torch.uint8, generator=generator)
    return model, replace(make_batch(), regions=None, region_mask=None, images=images)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, True),
        ({"trainer": {"precision": "bf16-mixed"}}, True),
        ({"trainer": {"precision": "16-mixed"}}, None),
        ({"trainer": {"precision": "16-mixed", "gradient_clip_val": None}}, True),
        ({"trainer": {"accelerator": "cpu"}}, None),
        ({"optimizer": {"_target_": "torch.optim.RAdam"}}, None),
    ],
)
def test_an_update_is_fused_where_that_works(settings: dict, expected: Any, with_gpu) -> None:
    assert settled(config(**settings)).optimizer.get("fused") is expected


def test_an_update_is_not_fused_without_a_gpu() -> None:
    assert "fused" not in settled(config()).optimizer
    assert settled(config(optimizer={"fused": True})).optimizer.fused is True


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, True),
        ({"speed": {"cuda_graphs": True}}, False),
        ({"trainer": {"precision": "bf16-mixed"}}, False),
        ({"trainer": {"accelerator": "cpu"}}, False),
    ],
)
def test_an_exact_training_on_a_gpu_is_told_how_to_be_faster(
    settings: dict, told: bool, with_gpu, monkeypatch, caplog
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    with caplog.at_level("INFO"):
        tell_of_speed(settings_of(**settings))
    assert (caplog.messages == []) is not told
    assert all(line.startswith("a GPU: speed=gpu") for line in caplog.messages)


def test_gradients_of_fused_updates_are_clipped_in_bfloat16(tmp_path: Path) -> None:
    chosen = settings_of(optimizer={"fused": True}, trainer={"precision": "bf16-mixed"})
    plugin = precision_plugin(chosen)
    assert isinstance(plugin, MixedBfloat)
    model = build("blip").train()
    model._optimizer = lambda parameters: torch.optim.AdamW(parameters, lr=1e-3, fused=True)
    before = model.decoder.text.cls.predictions.bias.clone()
    fit(model, make_batch(), tmp_path, plugins=[plugin], gradient_clip_val=1.0)
    assert not torch.equal(before, model.decoder.text.cls.predictions.bias)


def fit(model: Any, batch: Any, folder: Path, **settings: Any) -> None:
    """Two updates and a validation."""
    trainer = pl.Trainer(
        accelerator="cpu",
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
        num_sanity_val_steps=0,
        default_root_dir=folder,
        **settings,
    )
    loader = DataLoader([batch, batch], batch_size=None)
    trainer.fit(trainable(model), loader, DataLoader([batch], batch_size=None))


pytestmark = pytest.mark.filterwarnings(
    "ignore:.*does not have many workers", "ignore:.*treespec, LeafSpec", "ignore:.*no loggers"
)


def test_networks_that_were_read_in_evaluation_mode_train_with_dropout(
    tmp_path: Path, monkeypatch
) -> None:
    losses, modes = Blip.losses, []

    def watched(self: Blip, batch: Any) -> Any:
        if torch.is_grad_enabled():
            modes.append({module.training for module in self.modules()})
        return losses(self, batch)

    monkeypatch.setattr(Blip, "losses", watched)
    fit(build("blip").eval(), make_batch(), tmp_path)
    assert modes == [{True}, {True}]


@pytest.mark.parametrize("is_on", [True, False])
def test_dropout_is_torchs_where_that_is_asked_for(is_on: bool) -> None:
    model, batch = captioner(PROCESS_CASES["blip"]).train(), make_batch()
    set_up(settings_of(speed={"torch_dropout": is_on}))
    try:
        torch.manual_seed(0)
        first = model.losses(batch).per_sample
        torch.manual_seed(0)
        other = model.losses(replace(batch, rows=batch.rows + 10)).per_sample
    finally:
        use_torchs(False)
    assert torch.equal(first, other) is is_on


@pytest.mark.parametrize("is_exact", [True, False])
def test_convolutions_are_as_precise_as_products(is_exact: bool, monkeypatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", is_exact)
    try:
        set_matmul_precision(None if is_exact else "high")
        assert torch.backends.cudnn.allow_tf32 is not is_exact
    finally:
        torch.set_float32_matmul_precision("highest")


@pytest.mark.long
@pytest.mark.parametrize("name", HALVES)
def test_weights_in_half_precision_train_and_write(name: str, tmp_path: Path) -> None:
    model = build(name)
    reference = model.losses(make_batch()).per_sample
    fit(model, make_batch(), tmp_path, plugins=[HalfWeights("bf16-true")])
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    losses = model.losses(make_batch())
    assert losses.per_sample.dtype == torch.float32
    half = build(name).bfloat16().losses(make_batch()).per_sample
    torch.testing.assert_close(half, reference, rtol=0.1, atol=0.1)


def test_bytes_are_normalised_in_full_precision_whatever_the_weights(tmp_path: Path) -> None:
    model, batch = pixels_model()
    fit(model, batch, tmp_path, plugins=[HalfWeights("bf16-true")])
    normal = build_blip_vision(
        hidden_size=12, num_hidden_layers=1, num_attention_heads=2, image_size=16, patch_size=8
    ).normalise(batch.images)
    assert torch.equal(model.backbone.normalise(batch.images), normal)
    assert next(model.backbone.parameters()).dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("updown", {"trainer": {"precision": "bf16-true"}}, "UpDown sums over many steps"),
        ("cos_cvae", {"trainer": {"precision": "16-true"}}, "16-true: CosCvae sums"),
        ("blip", {"trainer": {"precision": "bf16-true"}, "ema_decay": 0.99}, "does not move; ch"),
        ("blip", {"trainer": {"strategy": "fsdp"}}, "choose trainer=fsdp"),
        ("blip", {"trainer": {"strategy": SHARDS}, "ema_decay": 0.99}, "choose ema_decay=null"),
    ],
)
def test_what_would_not_train_well_is_refused(name: str, settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_speed(settings_of(**settings), build(name))


def test_networks_are_compiled_and_a_missing_compiler_is_told(monkeypatch) -> None:
    compiled: list[Any] = []

    def stand_in(function: Any, **options: Any) -> Any:
        compiled.append(function)
        return function

    chosen = settings_of(speed={"compile": True})
    monkeypatch.setattr(torch, "compile", stand_in)
    model, batch = pixels_model()
    expected = model.losses(batch).total
    compile_model(chosen, model)
    assert len(compiled) == 3  # a trial, the encoder, and the decoder's layers
    assert model.backbone.network._compiled_call_impl is not None
    model.backbone.network._compiled_call_impl = None  # it would take a minute
    assert torch.equal(model.losses(batch).total, expected)
    with pytest.raises(ValueError, match="UpDown on cached features has no network"):
        compile_model(chosen, build("updown"))

    def broken(function: Any, **options: Any) -> Any:
        raise RuntimeError("InvalidCxxCompiler: No working C++ compiler\nfound")

    monkeypatch.setattr(torch, "compile", broken)
    with pytest.raises(ValueError, match=r"No working C\+\+ compiler\); install a C\+\+ compiler"):
        compile_model(chosen, model)


def test_what_is_compiled_is_tried_on_the_device_of_the_process(with_gpu, monkeypatch) -> None:
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    monkeypatch.delenv("SLURM_LOCALID", raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert own_device(settings_of(trainer={"accelerator": "cpu"})) == torch.device("cpu")
    assert own_device(settings_of()) == torch.device("cuda", 0)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert own_device(settings_of(trainer={"devices": 2})) == torch.device("cuda", 1)
    assert own_device(settings_of(trainer={"devices": [2, 5]})) == torch.device("cuda", 5)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)  # of those that it is shown
    assert own_device(settings_of()) == torch.device("cuda", 0)


@pytest.mark.parametrize(
    ("settings", "used"),
    [
        ({}, True),
        ({"speed": {"cuda_graphs": False}}, False),
        ({"trainer": {"accelerator": "cpu"}}, False),
        ({"trainer": {"strategy": SHARDS}}, False),
    ],
)
def test_graphs_are_used_where_that_is_asked_for(settings: dict, used: bool, with_gpu) -> None:
    chosen = settings_of(**{"speed": {"cuda_graphs": True}, **settings})
    models = [build(name) for name in ("updown", "cos_cvae", "cic_bart")]
    for model in models:
        set_cuda_graphs(chosen, model)
    updown, cos_cvae, cic_bart = models
    kinds = (updown.recurrence, cos_cvae.decoder.recurrence)
    assert [isinstance(kind, GraphedRecurrence) for kind in kinds] == [used, used]
    assert (cic_bart.graphed is not None) is used


@pytest.mark.long
def test_the_rate_ends_at_nothing_with_accumulated_batches(small, monkeypatch) -> None:
    rates: list[float] = []

    class Rates(pl.Callback):
        def on_before_optimizer_step(self, trainer, pl_module, optimizer) -> None:
            rates.append(optimizer.param_groups[0]["lr"])

        def on_train_end(self, trainer, pl_module) -> None:
            rates.append(trainer.optimizers[0].param_groups[0]["lr"])

    build_trainer = running.build_trainer

    def watched(*args: Any, **kwargs: Any) -> pl.Trainer:
        trainer = build_trainer(*args, **kwargs)
        trainer.callbacks.append(Rates())
        return trainer

    monkeypatch.setattr(running, "build_trainer", watched)
    train(small("num_epochs=2", "loader.batch_size=10", "trainer.accumulate_grad_batches=4"))
    *updates, last = rates
    assert len(updates) == 6  # ten batches an epoch
    assert max(updates) == pytest.approx(1e-3, rel=0.1)
    assert last == pytest.approx(0, abs=1e-9)
