"""No step of training waits for the device."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import CSVLogger
from pytorch_lightning.loops.training_epoch_loop import _TrainingEpochLoop
from torch.utils.data import DataLoader

from captioning.data.roster import CurationView, build_roster
from captioning.models.training_steps import trainable
from captioning.training.callbacks import GradientNorm, ProgressBar, Speed, StayStopped, StepSeed
from captioning.training.finite_loss import FiniteLoss
from captioning.training.trainer import WarmWeightAveraging
from captioning.types import Batch, Sample
from captioning.vision.blip import build_blip_vision
from curation.amend.remove import Remove
from curation.loop.callback import CurationCallback
from curation.loop.policy import Policy
from curation.select.top import Top
from tests.captioning.models.test_cos_cvae import pseudo_model, with_contexts
from tests.host_syncs import HostSyncs, simulated_device
from tests.image_text_folders import FAMILIES, with_long
from tests.tiny import CAPTIONS, FEATURE_SIZE, MODELS, NUM_IMAGES, build, make_batch
from tests.tiny_vlm import batch_of, captioner, model_folder

NUM_STEPS = 5

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*does not have many workers",
    "ignore:.*treespec, LeafSpec",
    "ignore:.*have no `val_dataloader`",
)


class Samples(pl.LightningDataModule):
    """The same batch again and again, with a view for curation."""

    def __init__(self, batch: Batch) -> None:
        super().__init__()
        samples = [
            Sample(
                row=row,
                sample_id=f"s{row}",
                image_id=f"i{row}",
                image_path=Path(f"{row}.jpg"),
                caption=caption,
            )
            for row, caption in enumerate(CAPTIONS)
        ]
        self.view = CurationView(roster=build_roster("train", samples))
        self.batch = batch

    def train_dataloader(self) -> DataLoader:
        return DataLoader([self.batch] * NUM_STEPS, batch_size=None)


def texts_alone(batch: Batch) -> Batch:
    """The batch of a training on captions alone."""
    generator = torch.Generator().manual_seed(0)
    embeddings = torch.randn(len(CAPTIONS), FEATURE_SIZE, generator=generator).half()
    entities = torch.tensor([[0, 2], [1, -1], [3, 4], [-1, -1], [2, -1], [4, 0]])
    extras = {"text_embeddings": embeddings, "text_entities": entities}
    return replace(batch, regions=None, region_mask=None, extras=extras)


def step_waits(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    model: pl.LightningModule,
    batch: Batch,
    *,
    log_every: int = NUM_STEPS,
) -> list[list[str]]:
    """Where each step of an epoch waits for the device, the epoch's last step left out."""
    policy = Policy(select=Top(ratio=0.0), amend=Remove(), name="track")
    averaging = WarmWeightAveraging(decay=0.9)
    trainer = pl.Trainer(
        accelerator="cpu",
        max_epochs=1,
        limit_val_batches=0,
        callbacks=[
            StepSeed(seed=0),
            FiniteLoss(),
            Speed(folder=tmp_path),
            StayStopped(),
            ProgressBar(),
            averaging,
            CurationCallback(policy=policy, plot=False),
            GradientNorm(),
        ],
        logger=CSVLogger(tmp_path),
        log_every_n_steps=log_every,
        gradient_clip_val=5.0,
        enable_checkpointing=False,
        enable_model_summary=False,
        reload_dataloaders_every_n_epochs=1,
        default_root_dir=tmp_path,
    )
    with simulated_device(monkeypatch) as syncs:
        steps = watch_steps(monkeypatch, syncs, model, averaging)
        trainer.fit(trainable(model), datamodule=Samples(batch))
    assert len(steps) == NUM_STEPS
    return steps[:-1]


def watch_steps(
    monkeypatch: pytest.MonkeyPatch,
    syncs: HostSyncs,
    model: pl.LightningModule,
    averaging: WarmWeightAveraging,
) -> list[list[str]]:
    """The list to which every step of Lightning's loop adds the places where it waited."""
    steps: list[list[str]] = []
    advance = _TrainingEpochLoop.advance

    def watched(self: Any, *args: Any) -> None:
        for module in (model, averaging._average_model):
            syncs.put([*module.parameters(), *module.buffers()])
        syncs.places = []
        with syncs:
            advance(self, *args)
        steps.append(syncs.places)

    monkeypatch.setattr(_TrainingEpochLoop, "advance", watched)
    return steps


CASES = {name: functools.partial(build, name) for name in MODELS if name != "viecap"}


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_no_step_waits_for_the_device(name: str, monkeypatch, tmp_path: Path) -> None:
    assert step_waits(monkeypatch, tmp_path, CASES[name](), make_batch()) == 4 * [[]]


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_masked_tokens_do_not_wait(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = CASES[name]().train(), make_batch()
    batch = replace(batch, token_weights=torch.rand(batch.tokens.shape))
    with simulated_device(monkeypatch) as syncs, syncs:
        syncs.put([*model.parameters(), *model.buffers()])
        model.losses(batch.to("device")).total.backward()
    assert syncs.places == []


def test_training_on_captions_alone_does_not_wait(monkeypatch, tmp_path: Path) -> None:
    batch = texts_alone(make_batch())
    assert step_waits(monkeypatch, tmp_path, build("viecap"), batch) == 4 * [[]]


def test_entities_of_photos_are_the_only_wait_of_training_on_pairs(monkeypatch, tmp_path) -> None:
    for places in step_waits(monkeypatch, tmp_path, build("viecap"), make_batch()):
        assert places
        assert all("captioning/models/viecap.py" in place for place in places)


@pytest.mark.long
def test_contexts_of_other_photos_do_not_wait(monkeypatch, tmp_path: Path) -> None:
    model, batch = pseudo_model(), with_contexts(make_batch())
    assert step_waits(monkeypatch, tmp_path, model, batch) == 4 * [[]]


@pytest.mark.long
def test_training_on_pixels_does_not_wait(monkeypatch, tmp_path: Path) -> None:
    sizes = {"hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2}
    backbone = build_blip_vision(**sizes, intermediate_size=16, image_size=16, patch_size=8)
    model = build("blip_prompted")
    model.backbone = backbone
    pixels = torch.randint(256, (NUM_IMAGES, 3, 16, 16), dtype=torch.uint8)
    batch = replace(make_batch(), regions=None, region_mask=None, images=pixels)
    assert step_waits(monkeypatch, tmp_path, model, batch) == 4 * [[]]


@pytest.mark.long
def test_values_are_fetched_where_they_are_logged(monkeypatch, tmp_path: Path) -> None:
    waits = step_waits(monkeypatch, tmp_path, build("updown"), make_batch(), log_every=2)
    assert [bool(places) for places in waits] == [False, True, False, True]


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
@pytest.mark.parametrize("family", with_long(FAMILIES))
def test_models_of_transformers_wait_in_their_own_code_alone(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GIT never does; the masks and photos' sizes of others are read by their own forward pass."""
    folder = model_folder(family)
    model = captioner(folder).train()
    batch = batch_of(folder, model.tokenizer)
    with simulated_device(monkeypatch) as syncs, syncs:
        syncs.put([*model.parameters(), *model.buffers()])
        model.losses(batch.to("device")).total.backward()
    ours = [place for place in syncs.places if "site-packages/transformers" not in place]
    assert ours == []
    assert family != "git" or syncs.places == []
