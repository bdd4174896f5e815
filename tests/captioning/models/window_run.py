"""Gradients of updates of one batch or several, by one process or two that are forked.

A script: ``python window_run.py FOLDER`` leaves ``FOLDER/NAME.pt``, the gradients of each update.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.strategies import ModelParallelStrategy
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.utils.data import DataLoader

from captioning.models.base import AbstractCaptioner
from captioning.models.training_steps import trainable
from captioning.models.vlm import Vlm
from captioning.training.objectives.rewards import AbstractReward
from captioning.training.objectives.self_critical import OF_CAPTIONS, SelfCritical
from captioning.training.sharding import shard
from captioning.types import Batch, CaptionLosses, Sample
from tests import tiny, tiny_vlm
from tests.captioning.models.test_cos_cvae import with_contexts
from tests.captioning.training.process_run import ENVIRONMENT, by_processes

PHASE = {"nll": 0.8, "kl": 0.8, "nll_nn": 0.2, "kl_nn": 0.15}
CASES: dict[str, Callable[[], AbstractCaptioner]] = {
    **{name: partial(tiny.build, name) for name in tiny.MODELS},
    "cos_cvae_pseudo": lambda: tiny.MODELS["cos_cvae"](first=PHASE),
    "vlm_git": lambda: tiny_vlm.captioner(tiny_vlm.model_folder("git")),
    "updown_self_critical": partial(tiny.build, "updown"),
    "blip_self_critical": partial(tiny.build, "blip_prompted"),
    "cos_cvae_self_critical": lambda: tiny.MODELS["cos_cvae"](first=PHASE),
}
# Captions of the batches of two updates; the second is incomplete. Photos are not divided.
WINDOWS = (((0, 1), (2, 5), (3,)), ((4,), (0, 1)))
# The fifth caption has no context, so the second update's first batch has no filled ones.
WEIGHTS = (1.0, 0.5, 0.3, 0.0, 1.0, 0.7)  # a batch of the first update does not count
# Of two processes, the batches of each.
SHARED = ((((0, 1), (4,)), ((3,),)), (((2, 5), (3,)), ((2, 5),)))
OF_TWO = ("updown", "updown_nocaps", "cos_cvae_pseudo", "cic_bart", "updown_self_critical")
SHARDED = "updown_sharded"

Batches = Sequence[Sequence[int]]


class Lengths(AbstractReward):
    """The number of letters."""

    def open(self, samples: Sequence[Sample]) -> None: ...

    def rewards(self, captions, samples, ended) -> Tensor:
        return torch.tensor([float(len(caption)) for caption in captions])


def drawn_alike(model: AbstractCaptioner, batch: Batch, batch_idx: int) -> CaptionLosses:
    """The self-critical losses, with the same draws for a photo in whichever batch it is."""
    objective = SelfCritical(reward=Lengths(), num_samples=2, likelihood_weight=0.5, seed=3)
    path, rows = Path("photo.jpg"), batch.rows.tolist()
    samples = [
        Sample(row=row, sample_id=f"s{row}", image_id="i", image_path=path, caption="a dog")
        for row in rows
    ]
    objective.open(samples)
    return objective.losses(model, batch, (0, 0))


def case(name: str, *, weighted: bool = False) -> tuple[AbstractCaptioner, Batch]:
    """A model in double precision without dropout, and a batch of all captions."""
    torch.manual_seed(0)
    model = CASES[name]().double()
    for module in model.modules():
        for attribute, value in vars(module).items():
            if isinstance(value, float) and _is_random(attribute):
                setattr(module, attribute, 0.0)
    if isinstance(model, Vlm):
        batch = tiny_vlm.batch_of(Path(model.pretrained), model.tokenizer)
    else:
        batch = tiny.make_batch(words=model.tokenizer)
    batch = with_contexts(batch) if name.startswith("cos_cvae_") else batch
    batch = batch._map(lambda x: x.double() if x.is_floating_point() else x)
    if "self_critical" in name:
        model.objective, model.several_means = drawn_alike, True
    weights = torch.tensor(WEIGHTS[: len(batch)]) if weighted else None
    return model, replace(batch, weights=weights)


def _is_random(attribute: str) -> bool:
    """Whether it is a share of what a batch drops."""
    return attribute in ("p", "masking") or "dropout" in attribute


def picked(batch: Batch, captions: Sequence[int]) -> Batch:
    """Some captions of a batch."""
    rows = [row for row in captions if row < len(batch)]
    images = sorted({int(batch.image_index[row]) for row in rows})
    index = [images.index(int(batch.image_index[row])) for row in rows]

    def of_rows(tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else tensor[rows]

    def of_images(tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else tensor[images]

    return replace(
        batch,
        rows=batch.rows[rows],
        sample_ids=tuple(batch.sample_ids[row] for row in rows),
        image_ids=tuple(batch.image_ids[image] for image in images),
        image_index=torch.tensor(index),
        regions=of_images(batch.regions),
        region_mask=of_images(batch.region_mask),
        tokens=of_rows(batch.tokens),
        token_mask=of_rows(batch.token_mask),
        weights=of_rows(batch.weights),
        controls=batch.controls and tuple(batch.controls[row] for row in rows),
        extras={
            name: value[rows] if name in OF_CAPTIONS else value[images]
            for name, value in batch.extras.items()
        },
    )


def joined(batches: Batches) -> list[int]:
    """The captions of all batches, by number."""
    return sorted(row for batch in batches for row in batch)


class Data(pl.LightningDataModule):
    """Batches as they are, without readers of photos."""

    def __init__(self, batches: list[Batch]) -> None:
        super().__init__()
        self.batches, self.readers = batches, {}

    def train_dataloader(self) -> DataLoader[Batch]:
        batches: Any = self.batches
        return DataLoader(batches, batch_size=None)


class Gradients(pl.Callback):
    """Keeps the gradients of each update as callbacks see them, and its loss."""

    def __init__(self) -> None:
        self.updates: list[dict[str, Tensor]] = []
        self.losses: list[Tensor] = []

    def on_before_optimizer_step(self, trainer, pl_module, optimizer) -> None:
        gradients = {
            name: _complete(parameter.grad)
            for name, parameter in pl_module.named_parameters()
            if parameter.grad is not None
        }
        self.updates.append(gradients)

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx) -> None:
        if trainer.global_step == len(self.updates) > len(self.losses):
            self.losses.append(outputs["update_loss"])


def _complete(gradient: Tensor) -> Tensor:
    """A copy, of all shards."""
    return gradient.full_tensor() if isinstance(gradient, DTensor) else gradient.clone()


def gradients(
    model: AbstractCaptioner, batch: Batch, batches: Batches, per_update: int, **settings: Any
) -> Gradients:
    """Gradients of the updates of an epoch of ``batches``."""
    model._optimizer = partial(torch.optim.SGD, lr=0.0)
    found = Gradients()
    trainer = pl.Trainer(
        max_epochs=1,
        callbacks=[found],
        accumulate_grad_batches=per_update,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        limit_val_batches=0,
        **{"accelerator": "cpu", "devices": 1, **settings},
    )
    trainer.fit(trainable(model), Data([picked(batch, captions) for captions in batches]))
    return found


def jobs(folder: Path, number: int) -> None:
    """All cases of two processes."""
    rank = int(ENVIRONMENT["LOCAL_RANK"])
    for name in (*OF_TWO, SHARDED):
        os.environ.update(ENVIRONMENT)
        is_sharded = name == SHARDED
        model, batch = case("updown" if is_sharded else name, weighted=not is_sharded)
        strategy: Any = "ddp"
        if is_sharded:
            shard(model)
            strategy = ModelParallelStrategy(data_parallel_size=number, tensor_parallel_size=1)
        batches = [b[rank] for b in _by_batch()]
        found = gradients(model, batch, batches, 2, devices=number, strategy=strategy)
        if rank == 0:
            torch.save(found.updates, folder / f"{name}.pt")


def _by_batch() -> list[tuple[Sequence[int], Sequence[int]]]:
    """Captions of each process by batch; the second update has one batch."""
    first, second = SHARED
    return [*zip(first[0], second[0], strict=True), *zip(first[1], second[1], strict=True)]


def shared_windows() -> list[list[int]]:
    """The captions of each update over both processes."""
    one, two, three = (tuple(a) + tuple(b) for a, b in _by_batch())
    return [joined((one, two)), joined((three,))]


def main(folder: str) -> None:
    """All updates by two processes."""
    torch.set_num_threads(1)
    by_processes(Path(folder), 2, jobs)


if __name__ == "__main__":
    main(*sys.argv[1:])
