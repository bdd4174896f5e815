"""Runs of two forked processes, one of which ends in the middle.

A script: ``python ending_run.py FOLDER`` leaves ``FOLDER/SCENARIO.json`` with the exit status and
the last words of each process, and the seconds until both had ended.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from omegaconf import OmegaConf
from pytorch_lightning.callbacks import ModelCheckpoint

from captioning.commands.command import HydraCommand
from captioning.commands.hydra_command import run_task
from captioning.data.batches.datamodule import CaptionDataModule
from captioning.data.batches.settings import LoaderSettings, Splits
from captioning.models.training_steps import trainable
from captioning.runtime.files import write_json
from captioning.training.processes import EndTogether, ends_together
from tests.captioning.training.process_run import (
    CASES,
    ENVIRONMENT,
    Tensors,
    captioner,
    free_port,
    process,
    roster,
)

# Which process does what in the second epoch; the others go on, or wait as for a GPU.
SCENARIOS = {
    "lost_1": {1: "kill"},
    "lost_0": {0: "kill"},
    "lost_1_while_0_waits": {1: "kill", 0: "wait"},
    "failed_1": {1: "fail"},
    "failed_0_while_1_waits": {0: "fail", 1: "wait"},
    "both_failed": {0: "fail", 1: "fail"},
}


class Fate(pl.Callback):
    """What happens to a process."""

    def __init__(self, what: str | None) -> None:
        self.what = what

    def on_train_batch_start(self, trainer: pl.Trainer, *unused: Any) -> None:
        if trainer.current_epoch < 1 or trainer.global_step < 6:
            return
        if self.what == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.what == "fail":
            raise ValueError("photo 7 is broken")
        if self.what == "wait":
            time.sleep(100)


def train(fates: dict[int, str], folder: Path, config: Any) -> None:
    """Train until something happens."""
    rank = int(ENVIRONMENT["LOCAL_RANK"])
    splits = Splits(train=roster("train", 9), val=roster("val", 1))
    model = captioner(CASES["updown"])
    data = CaptionDataModule(
        splits=splits,
        tokenizer=model.tokenizer,
        readers={"tensors": Tensors(texts=False)},
        loader=LoaderSettings(batch_size=7, num_workers=1),
    )
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_epochs=50,
        callbacks=[
            EndTogether(folder=folder),
            Fate(fates.get(rank)),
            ModelCheckpoint(dirpath=folder / "checkpoints", filename="last"),
        ],
        default_root_dir=folder,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        limit_val_batches=0,
        use_distributed_sampler=False,
        reload_dataloaders_every_n_epochs=1,
    )
    with ends_together(trainer):
        trainer.fit(trainable(model), data)


def run(fates: dict[int, str], folder: Path, number: int) -> None:
    """As the command line ends."""
    os.environ.update(ENVIRONMENT)
    errors = (folder / f"errors-{ENVIRONMENT['LOCAL_RANK']}.txt").open("w")
    os.dup2(errors.fileno(), 2)
    command = HydraCommand(
        name="train",
        summary="",
        config="",
        task=partial(train, fates, folder),
    )
    run_task(command, OmegaConf.create({}))


def scenario(folder: Path, fates: dict[int, str]) -> None:
    """Run one, and write down how it ended."""
    folder.mkdir()
    context = torch.multiprocessing.get_context("fork")
    port, action = free_port(), partial(run, fates)
    children = [
        context.Process(target=process, args=(folder, 2, rank, port, action)) for rank in range(2)
    ]
    for child in children:
        child.start()
    ended: dict[int, float] = {}
    while len(ended) < 2:
        for rank, child in enumerate(children):
            if rank not in ended and not child.is_alive():
                ended[rank] = time.monotonic()
        time.sleep(0.05)
    record = {
        "seconds": max(ended.values()) - min(ended.values()),
        "status": [child.exitcode for child in children],
        "errors": [(folder / f"errors-{rank}.txt").read_text() for rank in range(2)],
    }
    write_json(folder.with_suffix(".json"), record)


def main(folder: str) -> None:
    """All scenarios."""
    torch.set_num_threads(1)
    for name, fates in SCENARIOS.items():
        scenario(Path(folder) / name, fates)


if __name__ == "__main__":
    main(*sys.argv[1:])
