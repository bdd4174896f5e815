"""A model and a data module that are not the project's: curation must work with them as it is.

Also a script: ``python foreign.py FOLDER NUM_PROCESSES`` trains in FOLDER (for tests with DDP).
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Sampler

from captioning.data.roster import CurationView, Roster, build_roster
from captioning.types import Sample
from curation.amend.remove import Remove
from curation.amend.replace import ReplaceCaption
from curation.loop.callback import CurationCallback
from curation.loop.policy import Policy, Schedule
from curation.select.top import Top


def make_roster(num_images: int = 6, num_captions: int = 3) -> Roster:
    """Images ``img0, img1, ...`` with captions of growing length, which is also their target."""
    samples = [
        Sample(
            row=0,
            sample_id=f"img{image}#{k}",
            image_id=f"img{image}",
            image_path=Path(f"img{image}.jpg"),
            caption=f"picture {image} " + "very " * ((image * 7 + k * 5) % 11) + f"way {k}",
        )
        for image in range(num_images)
        for k in range(num_captions)
    ]
    return build_roster("toy/train", samples)


class Captions(Dataset):
    """Rows, an input and a target that depends on the caption as it stands now."""

    def __init__(self, samples):
        self.samples = samples

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        sample = self.samples[index]
        target = float(len(sample.caption.split()))
        features = torch.tensor([1.0, hash_of(sample.image_id), target % 3])
        return torch.tensor(sample.row), features, torch.tensor(target)


def hash_of(text: str) -> float:
    return (sum(map(ord, text)) % 17) / 17


class Shuffled(Sampler):
    """An order that depends on the epoch alone; Lightning calls `set_epoch`."""

    def __init__(self, num_samples: int):
        self.num_samples = num_samples
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self):
        return self.num_samples

    def __iter__(self):
        return iter(np.random.default_rng(self.epoch).permutation(self.num_samples).tolist())


class ForeignData(pl.LightningDataModule):
    """Keeps a view and builds the loader from it; knows nothing else of curation."""

    def __init__(self, *, roster: Roster, batch_size: int = 4):
        super().__init__()
        self.view = CurationView(roster=roster)
        self.batch_size = batch_size
        self.epochs_seen: list[list[int]] = []

    def train_dataloader(self):
        samples = self.view.samples()
        self.epochs_seen.append([sample.row for sample in samples])
        sampler = Shuffled(len(samples))
        return DataLoader(Captions(samples), batch_size=self.batch_size, sampler=sampler)

    def val_dataloader(self):
        return DataLoader(Captions(self.view.samples()), batch_size=self.batch_size)

    def probe_dataloader(self):
        return DataLoader(Captions(self.view.samples()), batch_size=self.batch_size)


class ForeignModule(pl.LightningModule):
    """Regression with dropout. Only the keys of ``training_step``'s result matter to curation."""

    def __init__(self, *, rate: float = 0.01, dropout: float = 0.0):
        super().__init__()
        self.linear = nn.Linear(3, 1)
        with torch.no_grad():
            self.linear.weight.fill_(0.1)
            self.linear.bias.fill_(0.0)
        self.dropout = nn.Dropout(dropout)
        self.rate = rate

    def per_sample(self, features: Tensor, target: Tensor) -> Tensor:
        return (self.linear(self.dropout(features)).squeeze(1) - target) ** 2

    def training_step(self, batch, batch_idx):
        rows, features, target = batch
        per_sample = self.per_sample(features, target)
        return {"loss": per_sample.mean(), "rows": rows, "per_sample": per_sample.detach()}

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.per_sample(*batch[1:]).mean(), on_epoch=True)

    def probe_step(self, batch):
        rows, features, target = batch
        return rows, self.per_sample(features, target)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.rate)


def make_policy(*, ratio: float = 0.12, amend=None, **schedule) -> Policy:
    return Policy(
        select=Top(ratio=ratio),
        amend=amend or Remove(),
        schedule=Schedule(**schedule),
        name="test policy",
    )


def train(
    folder: Path,
    *,
    epochs: int,
    callback: CurationCallback,
    data: ForeignData | None = None,
    module: ForeignModule | None = None,
    resume_from: Path | None = None,
    checkpoint: ModelCheckpoint | None = None,
    **trainer_options,
):
    """Train on the CPU with a checkpoint ``last.ckpt`` an epoch; returns module, data, trainer."""
    data = data or ForeignData(roster=make_roster())
    module = module or ForeignModule()
    options = {
        "devices": 1,
        "reload_dataloaders_every_n_epochs": 1,
        "num_sanity_val_steps": 0,
        "limit_val_batches": 0,
    } | trainer_options
    trainer = pl.Trainer(
        accelerator="cpu",
        max_epochs=epochs,
        default_root_dir=folder,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[
            callback,
            checkpoint
            or ModelCheckpoint(dirpath=folder, save_last=True, save_on_train_epoch_end=True),
        ],
        **options,
    )
    trainer.fit(module, datamodule=data, ckpt_path=resume_from, weights_only=True)
    return module, data, trainer


def main(folder: str, num_processes: str) -> None:
    """Train in ``folder``; processes are forked, which spares each the imports."""
    callback = CurationCallback(policy=make_policy(amend=ReplaceCaption()), seed=3, plot=False)
    train(
        Path(folder),
        epochs=3,
        callback=callback,
        module=ForeignModule(rate=0.0),
        data=ForeignData(roster=make_roster(num_images=7)),
        devices=int(num_processes),
        strategy="ddp_fork" if int(num_processes) > 1 else "auto",
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*sys.argv[1:])
