"""A LightningModule of one's own over a plain loader."""

from __future__ import annotations

from itertools import islice
from types import SimpleNamespace

import pytest
import pytorch_lightning as pl
import torch
from plain_run import files_of, losses_of, opened
from torch.utils.data import DataLoader

from curation import CuratedDataset, LightningCuration
from curation.adapters.lightning import named_losses
from curation.finished_run import read_run

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*smaller than the logging interval.*"),
    pytest.mark.filterwarnings("ignore:.*Checkpoint directory.*exists and is not empty"),
]


class Module(pl.LightningModule):
    """Loses what `losses_of` says, under names of its own."""

    def __init__(self, keys=("losses", "indices")):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(()))
        self.keys = keys
        self.seen: list[list[int]] = []

    def training_step(self, batch, batch_idx):
        losses = losses_of(batch["row"], self.current_epoch) * self.weight
        self.seen.append(batch["row"].tolist())
        return {"loss": losses.mean()} | dict(zip(self.keys, (losses, batch["row"]), strict=False))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.0)


def fit(
    curation,
    folder,
    *,
    module=None,
    loader=None,
    callback=None,
    more=(),
    epochs=2,
    last=None,
    **options,
):
    """Train; returns the module and the trainer."""
    data = CuratedDataset(lambda sample: {"text": sample.caption}, curation, shuffle=True)
    trainer = pl.Trainer(
        accelerator="cpu",
        max_epochs=epochs,
        default_root_dir=folder,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[callback or LightningCuration(curation), *more],
        enable_checkpointing=False,
        **options,
    )
    module = module or Module()
    loaders = (
        {"datamodule": loader}
        if isinstance(loader, pl.LightningDataModule)
        else {"train_dataloaders": loader or DataLoader(data, batch_size=5)}
    )
    trainer.fit(module, ckpt_path=last, weights_only=True, **loaders)
    return module, trainer


def test_a_module_with_names_of_its_own_is_curated_by_a_plain_loader(tmp_path):
    curation = opened(tmp_path)
    module, trainer = fit(curation, tmp_path)
    assert read_run(tmp_path).epochs == [0, 1]
    assert trainer.logged_metrics["curation/num_removed"] == len(curation.view.journal) - 2
    removed = {edit.sample_id for edit in curation.view.journal if edit.epoch == 0}
    rows = {curation.roster.by_id[name].row for name in removed}
    first, second = module.seen[:4], module.seen[4:]
    assert rows & {row for batch in first for row in batch}
    assert not rows & {row for batch in second for row in batch}
    assert len(second) == 4
    assert (tmp_path / "curation" / "report.html").is_file()


@pytest.mark.parametrize("keys", [("losses",), ("per_sample", "rows"), ("sample_losses", "idx")])
def test_usual_names_are_known(tmp_path, keys):
    curation = opened(tmp_path)
    fit(curation, tmp_path, module=Module(keys), epochs=1)
    assert curation.epoch == 1


def test_any_other_names_are_told_by_a_function(tmp_path):
    curation = opened(tmp_path)
    callback = LightningCuration(
        curation, losses_of=lambda outputs, batch: (batch["row"], outputs["mine"])
    )
    fit(curation, tmp_path, module=Module(("mine",)), callback=callback, epochs=1)
    other = opened(tmp_path / "other")
    with pytest.raises(ValueError, match=r"losses \(B,\) under one of .*got \['loss', 'mine'\]"):
        fit(other, tmp_path / "other", module=Module(("mine",)), epochs=1)
    with pytest.raises(ValueError, match="got Tensor"):
        named_losses(torch.ones(()), {})


def test_a_cut_epoch_is_decided_on_too(tmp_path):
    curation = opened(tmp_path)
    fit(curation, tmp_path, epochs=2, limit_train_batches=2)
    assert curation.epoch == 2


def test_a_checkpoint_goes_on_whatever_the_folder_holds(tmp_path):
    straight, resumed = tmp_path / "a", tmp_path / "b"
    fit(opened(straight), straight, epochs=3)
    _, trainer = fit(opened(resumed), resumed, epochs=1)
    trainer.save_checkpoint(tmp_path / "one.ckpt")
    fit(opened(resumed), resumed, epochs=3, last=tmp_path / "one.ckpt")
    names = ("curation.jsonl", "curation/epochs.json", "curation/state.safetensors")
    expected, actual = files_of(straight), files_of(resumed)
    assert all(expected[name] == actual[name] for name in names)


class Saves(pl.Callback):
    """Saves after a batch."""

    def __init__(self, path, batch_idx):
        self.path, self.batch_idx = path, batch_idx

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if batch_idx == self.batch_idx:
            trainer.save_checkpoint(self.path)


class Resumable(DataLoader):
    """Goes on where it was."""

    first = given = 0

    def __iter__(self):
        self.given, self.first = self.first, 0
        for batch in islice(super().__iter__(), self.given, None):
            self.given += 1
            yield batch

    def state_dict(self):
        return {"given": self.given}

    def load_state_dict(self, state):
        self.first = state["given"]


def resumable(curation):
    data = CuratedDataset(lambda sample: {"text": sample.caption}, curation, shuffle=True)
    return Resumable(data, batch_size=5)


def test_an_epoch_is_not_gone_on_with_by_a_loader_from_the_start(tmp_path):
    curation, path = opened(tmp_path / "a"), tmp_path / "mid.ckpt"
    fit(curation, tmp_path / "a", epochs=1, more=[Saves(path, 1)])
    with pytest.raises(ValueError, match=r"mid\.ckpt was saved after batch 2 of epoch 0, and this"):
        fit(opened(tmp_path / "a"), tmp_path / "a", epochs=1, last=path)


def test_an_epoch_is_gone_on_with_by_a_loader_that_can(tmp_path):
    whole, cut, path = opened(tmp_path / "a"), opened(tmp_path / "b"), tmp_path / "mid.ckpt"
    module, _ = fit(whole, tmp_path / "a", epochs=2, loader=resumable(whole))
    fit(cut, tmp_path / "b", epochs=1, loader=resumable(cut), more=[Saves(path, 1)])
    resumed = opened(tmp_path / "b")
    rest, _ = fit(resumed, tmp_path / "b", epochs=2, loader=resumable(resumed), last=path)
    assert rest.seen == module.seen[2:]
    expected, actual = files_of(tmp_path / "a"), files_of(tmp_path / "b")
    assert expected["curation/state.safetensors"] == actual["curation/state.safetensors"]


def test_a_checkpoint_of_an_epochs_last_batch_is_one_of_its_end(tmp_path):
    whole, cut, path = tmp_path / "a", tmp_path / "b", tmp_path / "end.ckpt"
    fit(opened(whole), whole, epochs=2)
    fit(opened(cut), cut, epochs=1, more=[Saves(path, 3)])
    fit(opened(cut), cut, epochs=2, last=path)
    name = "curation/state.safetensors"
    assert files_of(whole)[name] == files_of(cut)[name]


def test_a_checkpoint_has_the_losses_of_all_processes():
    asked = []
    curation = SimpleNamespace(state_dict=lambda **options: asked.append(options) or {})
    assert LightningCuration(curation).state_dict() == {}
    assert asked == [{"gathered": True}]


def test_a_loader_or_a_start_that_does_not_fit_is_refused(tmp_path):
    curation = opened(tmp_path)
    items = [{"row": row} for row in range(18)]
    with pytest.raises(ValueError, match="needs a training loader over CuratedDataset"):
        fit(curation, tmp_path, loader=DataLoader(items, batch_size=5))
    shrinking = CuratedDataset(lambda sample: {}, curation, fixed_length=False)
    with pytest.raises(ValueError, match="reload_dataloaders_every_n_epochs=1"):
        fit(curation, tmp_path, loader=DataLoader(shrinking, batch_size=5))
    fit(curation, tmp_path, epochs=1)
    with pytest.raises(ValueError, match=r"training starts at epoch 0, but .* epoch 1: give"):
        fit(opened(tmp_path), tmp_path)


def test_a_set_that_shrinks_is_trained_on_with_rebuilt_loaders(tmp_path):
    curation = opened(tmp_path)
    data = CuratedDataset(lambda sample: {}, curation, fixed_length=False)

    class Data(pl.LightningDataModule):
        def train_dataloader(self):
            return DataLoader(data, batch_size=6)

    module, _ = fit(
        curation, tmp_path, loader=Data(), epochs=3, reload_dataloaders_every_n_epochs=1
    )
    assert [sum(map(len, module.seen[place : place + 3])) for place in (0, 3, 6)] == [18, 16, 15]
